package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/closing"
	"vendorapi/reporting/download"
	"vendorapi/reporting/journal"
	"vendorapi/reporting/layout"
	"vendorapi/reporting/panel/admin"
	"vendorapi/reporting/panel/dashboard"
	"vendorapi/reporting/panel/finance"
)

type panelSettings struct {
	Addr                string `yaml:"addr"`
	URL                 string `yaml:"url"`
	TrackingAddr        string `yaml:"tracking_addr"`
	MaxConnections      int    `yaml:"max_connections"`
	MaxConnectionsPerIP int    `yaml:"max_connections_per_ip"`
	MaxInFlight         int    `yaml:"max_in_flight"`

	ProxyProtocolFrom []string `yaml:"proxy_protocol_from"`

	Programs []string `yaml:"programs"`

	Access   auth.Settings     `yaml:"access"`
	Admin    admin.Settings    `yaml:"admin"`
	Download download.Settings `yaml:"download"`
}

// Validate names the keys whose values are out of range.
func (s *panelSettings) Validate() error {
	var faults []error
	note := func(key string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("panel.%s%w", key, err))
		}
	}

	note("addr: ", config.CheckAddr(s.Addr))
	if s.TrackingAddr != "" {
		note("tracking_addr: ", config.CheckAddr(s.TrackingAddr))
	}

	if s.URL != "" {
		u, err := url.Parse(s.URL)
		isAddress := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
		if !isAddress {
			note("url: ", errors.New("want https://host, or nothing"))
		}
	}

	for _, number := range []struct {
		key       string
		is, least int
	}{{"max_connections: ", s.MaxConnections, 1}, {"max_connections_per_ip: ", s.MaxConnectionsPerIP, 0}, {"max_in_flight: ", s.MaxInFlight, 1}} {
		if number.is < number.least {
			note(number.key, fmt.Errorf("want %d or more", number.least))
		}
	}

	_, err := service.ParseNetworks(s.ProxyProtocolFrom)
	note("proxy_protocol_from: ", err)
	for _, err := range []error{s.Access.Validate(), s.Admin.Validate(), s.Download.Validate()} {
		note("", err)
	}

	if len(faults) == 0 { // the gateway of Admin is one of them
		_, err := s.programs()
		note("programs: ", err)
	}

	return errors.Join(faults...)
}

func (s *panelSettings) programs() ([]dashboard.Program, error) {
	var programs []dashboard.Program
	for _, text := range config.SplitList("gateway=" + s.Admin.URL + "," + strings.Join(s.Programs, ",")) {
		name, address, _ := strings.Cut(text, "=")
		u, err := url.Parse(address)
		isHTTP := err == nil && (u.Scheme == "http" || u.Scheme == "https")
		isProgram := isHTTP && name != "" && u.Hostname() != "" && u.User == nil
		if !isProgram {
			return nil, errors.New("want name=http://host:port, or several with commas")
		}

		secure := u.Scheme == "https"
		host := u.Host
		if u.Port() == "" {
			port := "80"
			if secure {
				port = "443"
			}
			host = net.JoinHostPort(u.Hostname(), port)
		}

		programs = append(programs, dashboard.Program{Name: name, Ask: func(ctx context.Context) error { return service.Ask(ctx, host, secure) }})
	}

	return programs, nil
}

// panel is what people reach with a browser: operators, finance and customers. Without the role panel
// it is the tracking pages alone, and has only what these need.
type panel struct {
	settings    panelSettings
	environment string
	people      auth.People
	admin       *admin.Client
	tracking    delivery.TrackingKeys
	books       journal.Keys
	targets     []string // the names in deliver.targets
	log         *slog.Logger
	registry    prometheus.Registerer
	overview    *dashboard.Pages // asks the programs
	payments    *finance.Pages   // carries out what people decide about the books
	// proxyHeaders counts malformed ones.
	proxyHeaders prometheus.Counter

	// unopened is how many listeners are not open yet.
	unopened atomic.Int32
}

// mistakes are what production does not start with. A session's cookie without
// secure_cookies would be sent without TLS, too.
func (s *panelSettings) mistakes() error {
	faults := []error{
		config.Demand(s.Access.SecureCookies,
			"panel.access.secure_cookies: must be true in production (PANEL_SECURE_COOKIES): put TLS in front of the panel"),
		service.TooWide("panel.access.trusted_proxies", s.Access.TrustedProxies),
		service.TooWide("panel.proxy_protocol_from", s.ProxyProtocolFrom),
	}

	if errors.Join(faults...) == nil {
		faults = append(faults, s.listenerMistakes(s.Addr, slices.Concat(s.ProxyProtocolFrom, s.Access.TrustedProxies)))
	}

	if s.TrackingAddr != "" {
		faults = append(faults, s.listenerMistakes(s.TrackingAddr, s.ProxyProtocolFrom))
	}

	return errors.Join(faults...)
}

// trackingMistakes are those of a process that serves only the tracking pages.
func (s *panelSettings) trackingMistakes() error {
	return errors.Join(service.TooWide("panel.proxy_protocol_from", s.ProxyProtocolFrom), s.listenerMistakes(s.TrackingAddr, s.ProxyProtocolFrom))
}

func (s *panelSettings) listenerMistakes(addr string, proxies []string) error {
	listener := service.PublicListener{
		Addr: addr, Proxies: proxies, ConnectionsPerIP: s.MaxConnectionsPerIP,
		ProxiesKey: "panel.proxy_protocol_from", IPKey: "max_connections_per_ip",
	}
	return listener.Mistakes()
}

// newPanel reads who may come in, and the secrets that the roles work with.
func newPanel(s *settings, log *slog.Logger, reg prometheus.Registerer) (*panel, error) {
	p := &panel{settings: s.Panel, environment: s.Environment, books: s.ClickHouse.BooksKeys, log: log, registry: reg,
		proxyHeaders: service.NewMetrics(reg, nil).Counter("reporting_proxy_headers_malformed_total", "Connections of trusted proxies closed because of their PROXY header.")}
	for _, target := range s.Deliver.Targets {
		p.targets = append(p.targets, target.Name)
	}

	p.unopened.Store(1)
	var err error
	if s.has(rolePanel) {
		p.people, err = auth.FromEnvironment()
		if err != nil {
			return nil, err
		}
		p.admin, err = adminClient(s.Panel.Admin)
		if err != nil {
			return nil, err
		}
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

// adminClient is that of the gateway's admin API.
func adminClient(s admin.Settings) (*admin.Client, error) {
	key, err := config.Secret("ADMIN_KEY")
	if err != nil {
		return nil, err
	}

	if keys := config.SplitList(key); len(keys) > 0 {
		key = keys[0] // several while it is rotated; the gateway takes each
	}
	return admin.NewClient(s, key)
}

// listener returns what the panel serves: its pages and reports, which read with the one user of
// history, and decisions about months, which write with the other. isComplete reports whether all
// that reports need is in ClickHouse.
func (p *panel) listener(l *ledger.Ledger, history *histories, customers http.Handler, isComplete func() bool) (listener, error) {
	shown := history.read.ForPeople(history.readable.Load)
	decided := history.write.ForPeople(history.writable.Load)

	gate, err := auth.New(l, p.people, p.settings.Access, p.log, p.registry)
	if err != nil {
		return listener{}, err
	}

	shared := layout.New(gate, l, p.environment, p.log)
	mux := http.NewServeMux()
	shared.Routes(mux)
	for _, path := range []string{"/login", "/logout", "/login.css"} {
		mux.Handle(path, gate.Handler())
	}

	p.overview = dashboard.New(shared, shown)
	p.overview.Programs, _ = p.settings.programs() // Validate has read them
	p.overview.TrackingURL = func(id delivery.OrderID) string { return "/track/" + p.tracking.Token(id) }
	p.overview.Routes(mux)
	admin.New(shared, p.admin).Routes(mux)

	payments := finance.New(shared, shown, closing.New(l, decided, p.books, p.log), p.admin)
	payments.Targets = p.targets
	p.payments = payments
	payments.Routes(mux)
	downloads := download.New(shown, payments.Named, p.settings.Download, shared.Refuse, p.log, p.registry)
	mux.Handle("/reports/", p.once(isComplete, downloads.Handler(gate)))

	mux.Handle("/track/", customers) // operators follow links from here

	return listener{"panel", p.settings.Addr, mux}, nil
}

// once holds back what needs ClickHouse's tables until it can be used.
func (p *panel) once(history func() bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !history() {
			auth.Refuse(w, r, p.log, fmt.Errorf("ClickHouse cannot be used yet: %w", delivery.ErrUnavailable))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// How long the panel waits for a request, for its answer to be taken, and at its end for
// downloads in progress.
const (
	panelHeaderTimeout = 10 * time.Second
	panelBodyTimeout   = 10 * time.Second
	panelAnswerTimeout = 3 * time.Minute // longer than the slowest page takes
	panelIdleTimeout   = 2 * time.Minute
	panelGrace         = 10 * time.Second

	panelHeaderBytes = 64 << 10
	panelBodyBytes   = 1 << 20
)

// bounded keeps a client that sends or takes nothing from holding its connection for ever:
// even a body that no handler reads is waited for. Downloads have bounds of their own.
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

// inFlight bounds how many requests are in progress; one more gets 503 at once.
func (p *panel) inFlight(next http.Handler) http.Handler {
	places := semaphore.NewWeighted(int64(p.settings.MaxInFlight))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !places.TryAcquire(1) {
			auth.Refuse(w, r, p.log, &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: time.Second,
				Message: "too many requests at once; sending the same request again is safe"})
			return
		}
		defer places.Release(1)
		next.ServeHTTP(w, r)
	})
}

type listener struct {
	name, addr string
	handler    http.Handler
}

// listen serves until ctx ends, then lets downloads finish for a while.
func (p *panel) listen(ctx context.Context, l listener) error {
	var lc net.ListenConfig
	port, err := lc.Listen(ctx, "tcp", l.addr)
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}

	p.unopened.Add(-1)
	trusted, _ := service.ParseNetworks(p.settings.ProxyProtocolFrom) // Validate has read both
	forwarding, _ := service.ParseNetworks(p.settings.Access.TrustedProxies)
	addressed := service.NewProxyListener(port, trusted, p.proxyHeaders.Inc)
	limited := service.NewListener(addressed, service.Limits{Connections: p.settings.MaxConnections, PerAddress: p.settings.MaxConnectionsPerIP, Exempt: forwarding.Contain})
	server := &http.Server{Handler: bounded(p.inFlight(l.handler)), ReadHeaderTimeout: panelHeaderTimeout, IdleTimeout: panelIdleTimeout, MaxHeaderBytes: panelHeaderBytes,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug)}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(limited) }()
	select {
	case err := <-failed:
		return fmt.Errorf("%s on %s: %w", l.name, l.addr, err)
	case <-ctx.Done():
	}

	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), panelGrace)
	defer cancel()
	if server.Shutdown(last) != nil {
		p.log.Warn("downloads were cut off at the end", "close", server.Close())
	}

	return nil
}
