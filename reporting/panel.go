package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/access"
	"vendorapi/reporting/adminapi"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/download"
	"vendorapi/reporting/finance"
	"vendorapi/reporting/frame"
	"vendorapi/reporting/operate"
	"vendorapi/reporting/tracking"
	"vendorapi/reporting/watch"
)

// panelSettings are the keys below "panel" of the configuration.
type panelSettings struct {
	Addr     string            `yaml:"addr"`
	Access   access.Settings   `yaml:"access"`
	Admin    adminapi.Settings `yaml:"admin"`
	Download download.Settings `yaml:"download"`
}

// Validate names the first key whose value is out of range.
func (s *panelSettings) Validate() error {
	if err := config.CheckAddr(s.Addr); err != nil {
		return fmt.Errorf("panel.addr: %w", err)
	}
	var faults []error
	for _, err := range []error{s.Access.Validate(), s.Admin.Validate(), s.Download.Validate()} {
		if err != nil {
			faults = append(faults, fmt.Errorf("panel.%w", err))
		}
	}
	return errors.Join(faults...)
}

// panel is what people reach with a browser: operators and finance behind the
// gate, customers by their tracking links.
type panel struct {
	settings    panelSettings
	environment string
	people      access.People
	admin       *adminapi.Client
	tracking    delivery.TrackingKeys
	log         *slog.Logger
	registry    prometheus.Registerer
	// listening tells that the port is open.
	listening atomic.Bool
}

// newPanel reads who may come in, and the secrets that the panel works with.
func newPanel(s *settings, log *slog.Logger, reg prometheus.Registerer) (*panel, error) {
	p := &panel{settings: s.Panel, environment: s.Environment, log: log, registry: reg}
	var err error
	if p.people, err = access.FromEnvironment(); err != nil {
		return nil, err
	}
	key, err := config.Secret("ADMIN_KEY")
	if err != nil {
		return nil, err
	}
	if keys := config.SplitSecrets(key); len(keys) > 0 {
		key = keys[0] // several while it is rotated; the gateway takes each
	}
	if p.admin, err = adminapi.New(s.Panel.Admin, key); err != nil {
		return nil, err
	}
	ring, err := config.Keys("TRACKING_KEYS")
	if err != nil {
		return nil, err
	}
	p.tracking = delivery.TrackingKeys(ring)
	if err := p.tracking.Check(); err != nil {
		return nil, fmt.Errorf("TRACKING_KEYS: %w", err)
	}
	return p, nil
}

// handler is the list of what is served. history tells whether ClickHouse's
// tables are there.
func (p *panel) handler(l *ledger.Ledger, a *archive.Archive, history func() bool) (http.Handler, error) {
	gate, err := access.New(l, p.people, p.settings.Access, p.log, p.registry)
	if err != nil {
		return nil, err
	}
	f, err := frame.New(gate, p.environment, p.log)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/assets/", f.Assets())
	mux.Handle("/favicon.ico", f.Icon())
	mux.Handle("GET /{$}", f.Home())
	signIn := gate.Handler()
	for _, path := range []string{"/login", "/logout", "/login.css"} {
		mux.Handle(path, signIn)
	}
	if err := p.customers(mux, l); err != nil {
		return nil, err
	}
	if err := p.operators(mux, f, l, a); err != nil {
		return nil, err
	}
	return mux, p.finance(mux, f, gate, l, a, history)
}

// customers see their order by the link that came with it.
func (p *panel) customers(mux *http.ServeMux, l *ledger.Ledger) error {
	pages, err := tracking.New(l, p.tracking, p.log, p.registry)
	if err == nil {
		mux.Handle("/track/", pages.Handler())
	}
	return err
}

func (p *panel) operators(mux *http.ServeMux, f *frame.Frame, l *ledger.Ledger, a *archive.Archive) error {
	look, err := watch.New(f, l, a, p.log)
	if err != nil {
		return err
	}
	look.TrackingURL = func(id delivery.OrderID) string { return "/track/" + p.tracking.Token(id) }
	look.Routes(mux)
	act, err := operate.New(f, l, p.admin, p.log)
	if err != nil {
		return err
	}
	act.Routes(mux)
	return nil
}

func (p *panel) finance(mux *http.ServeMux, f *frame.Frame, gate *access.Gate, l *ledger.Ledger, a *archive.Archive, history func() bool) error {
	downloads, err := download.New(a, p.settings.Download, p.log, p.registry)
	if err != nil {
		return err
	}
	mux.Handle("/reports/", p.once(history, downloads.Handler(gate)))
	pages, err := finance.New(f, l, a, p.log)
	if err != nil {
		return err
	}
	pages.Routes(mux)
	return nil
}

// once holds back what needs ClickHouse's tables until they are there.
func (p *panel) once(history func() bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !history() {
			access.Refuse(w, r, p.log, fmt.Errorf("the tables are not there yet: %w", delivery.ErrUnavailable))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// How long the panel waits for a request and for its answer to be taken, and at
// its end for downloads under way.
const (
	panelHeaderTimeout = 10 * time.Second
	panelBodyTimeout   = 10 * time.Second
	panelAnswerTimeout = 3 * time.Minute // longer than the slowest page takes
	panelIdleTimeout   = 2 * time.Minute
	panelGrace         = 10 * time.Second

	panelHeaderBytes = 64 << 10
	panelBodyBytes   = 1 << 20
)

// bounded keeps a client that sends or takes nothing from holding its connection
// for ever, whoever it is and whatever it asks for: even a body that no handler
// reads is waited for before the answer goes out. Downloads may take long; they
// look after their clients themselves.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control, now := http.NewResponseController(w), time.Now()
		if len(r.TransferEncoding) > 0 {
			// A length beside the chunks has been dropped by now: nothing behind
			// such a body may be taken for a request (RFC 9112, section 6.1).
			w.Header().Set("Connection", "close")
		}
		if r.ContentLength != 0 {
			r.Body = http.MaxBytesReader(w, r.Body, panelBodyBytes)
			if control.SetReadDeadline(now.Add(panelBodyTimeout)) != nil {
				panic(http.ErrAbortHandler) // the connection is gone
			}
		}
		until := now.Add(panelAnswerTimeout)
		if strings.HasPrefix(r.URL.Path, "/reports/") {
			until = time.Time{}
		}
		if control.SetWriteDeadline(until) != nil {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	})
}

// listen serves until ctx ends, then lets downloads finish for a while.
func (p *panel) listen(ctx context.Context, h http.Handler) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", p.settings.Addr)
	if err != nil {
		return fmt.Errorf("panel: %w", err)
	}
	p.listening.Store(true)
	server := &http.Server{Handler: bounded(h), ReadHeaderTimeout: panelHeaderTimeout, IdleTimeout: panelIdleTimeout, MaxHeaderBytes: panelHeaderBytes,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug)}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("panel on %s: %w", p.settings.Addr, err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), panelGrace)
	defer cancel()
	if server.Shutdown(last) != nil {
		p.log.Warn("downloads were cut off at the end", "close", server.Close())
	}
	return nil
}
