package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
	"vendorapi/reporting/access"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/download"
)

// panelSettings are the keys below "panel" of the configuration.
type panelSettings struct {
	Addr     string            `yaml:"addr"`
	Access   access.Settings   `yaml:"access"`
	Download download.Settings `yaml:"download"`
}

// Validate names the first key whose value is out of range.
func (s *panelSettings) Validate() error {
	if s.Addr == "" {
		return errors.New("panel.addr: missing")
	}
	if err := errors.Join(s.Access.Validate(), s.Download.Validate()); err != nil {
		return fmt.Errorf("panel.%w", err)
	}
	return nil
}

// panel is what finance reaches over HTTP.
type panel struct {
	settings panelSettings
	people   access.People
	log      *slog.Logger
	registry prometheus.Registerer
	// listening tells that the port is open.
	listening atomic.Bool
}

// newPanel reads who may come in.
func newPanel(s panelSettings, log *slog.Logger, reg prometheus.Registerer) (*panel, error) {
	people, err := access.FromEnvironment()
	if err != nil {
		return nil, err
	}
	return &panel{settings: s, people: people, log: log, registry: reg}, nil
}

// handler is the list of what is served.
func (p *panel) handler(l *ledger.Ledger, a *archive.Archive) (http.Handler, error) {
	gate, err := access.New(l, p.people, p.settings.Access, p.log, p.registry)
	if err != nil {
		return nil, err
	}
	downloads, err := download.New(a, p.settings.Download, p.log, p.registry)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/reports/", downloads.Handler(gate))
	mux.Handle("/", downloads.Page(gate))
	signIn := gate.Handler()
	for _, path := range []string{"/login", "/logout", "/login.css"} {
		mux.Handle(path, signIn)
	}
	return mux, nil
}

// How long the panel waits for a request, and at its end for downloads under
// way.
const (
	panelHeaderTimeout = 10 * time.Second
	panelIdleTimeout   = 2 * time.Minute
	panelGrace         = 10 * time.Second
)

// listen serves until ctx ends, then lets downloads finish for a while.
func (p *panel) listen(ctx context.Context, h http.Handler) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", p.settings.Addr)
	if err != nil {
		return fmt.Errorf("panel: %w", err)
	}
	p.listening.Store(true)
	server := &http.Server{Handler: h, ReadHeaderTimeout: panelHeaderTimeout, IdleTimeout: panelIdleTimeout,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug)}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("panel on %s: %w", p.settings.Addr, err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), panelGrace)
	defer cancel()
	if server.Shutdown(bounded) != nil {
		p.log.Warn("downloads were cut off at the end", "close", server.Close())
	}
	return nil
}
