package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/download"
	"vendorapi/reporting/panel/admin"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/dashboard"
	"vendorapi/reporting/panel/finance"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/tracking"
)

// panelSettings are the keys below "panel" of the configuration.
type panelSettings struct {
	Addr string `yaml:"addr"`
	// TrackingAddr is a listener of the tracking pages alone; empty: there is none.
	TrackingAddr string `yaml:"tracking_addr"`
	// Bounds of each of the two listeners.
	MaxConnections      int `yaml:"max_connections"`
	MaxConnectionsPerIP int `yaml:"max_connections_per_ip"`
	MaxInFlight         int `yaml:"max_in_flight"`

	// Programs are asked for the overview whether they are ready: name=URL of a private
	// listener; one text may name several, with commas.
	Programs []string `yaml:"programs"`

	Access   auth.Settings     `yaml:"access"`
	Admin    admin.Settings    `yaml:"admin"`
	Download download.Settings `yaml:"download"`
}

// Validate names the first key whose value is out of range.
func (s *panelSettings) Validate() error {
	if err := config.CheckAddr(s.Addr); err != nil {
		return fmt.Errorf("panel.addr: %w", err)
	}
	if s.TrackingAddr != "" {
		if err := config.CheckAddr(s.TrackingAddr); err != nil {
			return fmt.Errorf("panel.tracking_addr: %w", err)
		}
	}
	switch {
	case s.MaxConnections < 1:
		return errors.New("panel.max_connections: want 1 or more")
	case s.MaxConnectionsPerIP < 0:
		return errors.New("panel.max_connections_per_ip: want 0 or more")
	case s.MaxInFlight < 1:
		return errors.New("panel.max_in_flight: want 1 or more")
	}
	var faults []error
	for _, err := range []error{s.Access.Validate(), s.Admin.Validate(), s.Download.Validate()} {
		if err != nil {
			faults = append(faults, fmt.Errorf("panel.%w", err))
		}
	}
	if len(faults) == 0 {
		_, err := s.programs()
		return err
	}
	return errors.Join(faults...)
}

// programs are those of the overview: the gateway that the panel works through, and those
// of the settings.
func (s *panelSettings) programs() ([]dashboard.Program, error) {
	var programs []dashboard.Program
	for text := range strings.SplitSeq("gateway="+s.Admin.URL+","+strings.Join(s.Programs, ","), ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		name, address, _ := strings.Cut(text, "=")
		u, err := url.Parse(address)
		if err != nil || name == "" || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
			return nil, errors.New("panel.programs: want name=http://host:port, or several with commas")
		}
		host, secure := u.Host, u.Scheme == "https"
		if u.Port() == "" {
			host = net.JoinHostPort(u.Hostname(), map[bool]string{false: "80", true: "443"}[secure])
		}
		programs = append(programs, dashboard.Program{Name: name, Ask: func(ctx context.Context) error { return service.Ask(ctx, host, secure) }})
	}
	return programs, nil
}

// panel is what people reach with a browser: operators, finance and customers.
type panel struct {
	settings    panelSettings
	environment string
	people      auth.People
	admin       *admin.Client
	tracking    delivery.TrackingKeys
	log         *slog.Logger
	registry    prometheus.Registerer
	overview    *dashboard.Pages // asks the programs
	// closed is how many listeners are not open yet.
	closed atomic.Int32
}

// errInsecure is why production does not start: a session's cookie would be sent
// without TLS, too.
var errInsecure = errors.New("panel.access.secure_cookies: must be true in production (PANEL_SECURE_COOKIES): put TLS in front of the panel")

// newPanel reads who may come in, and the secrets that the panel works with.
func newPanel(s *settings, log *slog.Logger, reg prometheus.Registerer) (*panel, error) {
	if s.Environment == delivery.Production && !s.Panel.Access.SecureCookies {
		return nil, errInsecure
	}
	p := &panel{settings: s.Panel, environment: s.Environment, log: log, registry: reg}
	if p.closed.Store(1); s.Panel.TrackingAddr != "" {
		p.closed.Store(2)
	}
	var err error
	if p.people, err = auth.FromEnvironment(); err != nil {
		return nil, err
	}
	key, err := config.Secret("ADMIN_KEY")
	if err != nil {
		return nil, err
	}
	if keys := config.SplitSecrets(key); len(keys) > 0 {
		key = keys[0] // several while it is rotated; the gateway takes each
	}
	if p.admin, err = admin.NewClient(s.Panel.Admin, key); err != nil {
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

// listeners is what is served where; history reports whether ClickHouse's tables exist.
func (p *panel) listeners(l *ledger.Ledger, a *archive.Archive, history func() bool) ([]listener, error) {
	gate, err := auth.New(l, p.people, p.settings.Access, p.log, p.registry)
	if err != nil {
		return nil, err
	}
	shared, err := layout.New(gate, l, p.environment, p.log)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/assets/", shared.Assets())
	mux.Handle("/favicon.ico", shared.Icon())
	mux.Handle("GET /{$}", shared.Home())
	for _, path := range []string{"/login", "/logout", "/login.css"} {
		mux.Handle(path, gate.Handler())
	}

	if p.overview, err = dashboard.New(shared, l, a, p.log); err != nil {
		return nil, err
	}
	if p.overview.Programs, err = p.settings.programs(); err != nil {
		return nil, err
	}
	p.overview.TrackingURL = func(id delivery.OrderID) string { return "/track/" + p.tracking.Token(id) }
	p.overview.Routes(mux)
	operators, err := admin.New(shared, l, p.admin, p.log)
	if err != nil {
		return nil, err
	}
	operators.Routes(mux)

	payments, err := finance.New(shared, l, a, p.log)
	if err != nil {
		return nil, err
	}
	payments.Routes(mux)
	downloads, err := download.New(a, payments.Named, p.settings.Download, p.log, p.registry)
	if err != nil {
		return nil, err
	}
	downloads.Refuse = shared.Refuse // a page for a browser
	mux.Handle("/reports/", p.once(history, downloads.Handler(gate)))

	customers, err := tracking.New(l, p.tracking, p.log, p.registry)
	if err != nil {
		return nil, err
	}
	mux.Handle("/track/", customers.Handler()) // operators follow links from here
	list := []listener{{"panel", p.settings.Addr, mux}}
	if p.settings.TrackingAddr != "" {
		alone := http.NewServeMux()
		alone.Handle("/track/", customers.Handler())
		list = append(list, listener{"tracking", p.settings.TrackingAddr, alone})
	}
	return list, nil
}

// once holds back what needs ClickHouse's tables until they are there.
func (p *panel) once(history func() bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !history() {
			auth.Refuse(w, r, p.log, fmt.Errorf("the tables are not there yet: %w", delivery.ErrUnavailable))
			return
		}
		next.ServeHTTP(w, r)
	})
}
