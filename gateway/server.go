package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
)

type front struct {
	name     string
	listener net.Listener
	server   *fasthttp.Server
}

const (
	vendorListener  = "vendor_api"
	fleetListener   = "fleet_api"
	privateListener = "private_api"
)

// listen opens the listeners; the vendor's comes first, the private one last.
func (g *gateway) listen() (fronts []*front, err error) {
	handlers := map[string]fasthttp.RequestHandler{
		vendorListener: func(ctx *fasthttp.RequestCtx) {
			g.serve(ctx, g.vendorRoutes, g.settings.VendorAPI.MaxBodyBytes, true)
		},
		fleetListener: func(ctx *fasthttp.RequestCtx) {
			g.serve(ctx, g.fleetRoutes, g.settings.FleetAPI.MaxBodyBytes, false)
		},
		privateListener: g.servePrivate,
	}

	for _, l := range g.settings.listeners() {
		f, err := g.newFront(l.name, l.ListenerSettings, handlers[l.name])
		if err != nil {
			for _, open := range fronts {
				err = errors.Join(err, open.listener.Close())
			}
			return nil, err
		}
		fronts = append(fronts, f)
	}

	return fronts, nil
}

func (g *gateway) servePrivate(ctx *fasthttp.RequestCtx) {
	path := string(pathOf(ctx.Request.Header.RequestURI())) // as it was sent: "/x/../metrics" names no page
	switch {
	case path == "/metrics" || path == "/healthz" || path == "/readyz", g.settings.Pprof && strings.HasPrefix(path, "/debug/pprof/"):
		g.operations(ctx)
	default:
		g.serve(ctx, g.privateRoutes, g.settings.PrivateAPI.MaxBodyBytes, false)
	}
}

func (g *gateway) newFront(name string, s *ListenerSettings, handler fasthttp.RequestHandler) (*front, error) {
	secure, err := tlsConfig(s, g.Log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	var lc net.ListenConfig
	plain, err := lc.Listen(g.work, "tcp", s.Addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	refused := g.metrics.connections.WithLabelValues(name)
	trusted, _ := service.ParseNetworks(s.ProxyProtocolFrom) // Validate has read them
	addressed := service.NewProxyListener(plain, trusted, g.metrics.proxyHeaders.WithLabelValues(name).Inc)
	var listener net.Listener = service.NewListener(addressed, service.Limits{
		Connections: s.MaxConnections, PerAddress: s.MaxConnectionsPerIP,
		Refused: func(c net.Conn, perAddress bool) {
			refused.Inc()
			if secure == nil { // over TLS it could only be sent after a handshake
				writeRefusal(c, perAddress)
			}
		},
		Wrap: func(c net.Conn) net.Conn { return &guardedConn{Conn: c, lingerTime: g.lingerTime} },
	})

	if secure != nil {
		g.showExpiry(name, secure)
		listener = tls.NewListener(listener, secure)
	}

	return &front{name: name, listener: listener, server: g.newServer(name, s, handler)}, nil
}

// newServer configures fasthttp. It streams bodies, so that an oversize one is
// refused from its headers. It never writes a header into its logs.
func (g *gateway) newServer(name string, s *ListenerSettings, handler fasthttp.RequestHandler) *fasthttp.Server {
	return &fasthttp.Server{
		Handler:                      handler,
		ErrorHandler:                 func(ctx *fasthttp.RequestCtx, err error) { g.answerUnparsed(ctx, err, name == vendorListener) },
		ConnState:                    noteState,
		ReadBufferSize:               s.MaxHeaderBytes,
		ReadTimeout:                  s.ReadTimeout,
		WriteTimeout:                 s.WriteTimeout,
		IdleTimeout:                  s.IdleTimeout,
		MaxRequestBodySize:           s.MaxBodyBytes,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		// One more than the listener lets in, which refuses in the envelope.
		Concurrency:           s.MaxConnections + 1,
		NoDefaultServerHeader: true,
		SecureErrorLogMessage: true,
		CloseOnShutdown:       true,
		Logger:                slog.NewLogLogger(g.Log.With("listener", name).Handler(), slog.LevelDebug),
	}
}

func tlsConfig(s *ListenerSettings, log *slog.Logger) (*tls.Config, error) {
	if s.TLSCertFile == "" {
		return nil, nil
	}

	certificate, err := openCertificate(s.TLSCertFile, s.TLSKeyFile, log)
	if err != nil {
		return nil, err
	}

	return &tls.Config{
		GetCertificate: certificate.get,
		MinVersion:     tls.VersionTLS12, // spec, "Versioning"
		NextProtos:     []string{"http/1.1"},
	}, nil
}

// answerUnparsed answers what could not be read as a request; the server closes
// the connection after it. A connection on which nothing came is closed without an
// answer: clients dial spare ones, and would take it for that to their next request.
func (g *gateway) answerUnparsed(ctx *fasthttp.RequestCtx, err error, vendor bool) {
	if c := guarded(ctx.Conn()); c != nil && !c.firstByte {
		_ = ctx.Conn().Close()
		return
	}

	x := g.acquireContext(ctx, vendor)
	defer x.release()
	x.meter = g.metrics.unparsed
	code, message := delivery.CodeMalformedRequest, "this is no HTTP request that the service accepts"
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	switch {
	case errors.As(err, &small):
		code, message = delivery.CodeRequestHeaderTooLarge, "the request line and headers are too large"
	case errors.As(err, &timeout) && timeout.Timeout():
		message = "the request did not arrive in time"
	case errors.Is(err, fasthttp.ErrUnsupportedTransferEncoding):
		message = wrongFraming
	}

	linger(ctx.Conn())
	g.refuse(x, &delivery.Error{Code: code, Message: message})
	x.meter.answered(ctx.Response.StatusCode(), time.Since(x.began))
}

func (f *front) serve() error {
	if err := f.server.Serve(f.listener); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

// shutDown fails /readyz, waits for balancers to notice, closes the vendors' listener,
// lets requests in flight finish, and closes the private listener last. A request that
// takes longer than the timeout is abandoned, and that is an error.
func (g *gateway) shutDown(fronts []*front) error {
	g.draining.Store(true)
	g.Log.Info("shutting down", "delay", g.settings.Shutdown.Delay, "timeout", g.settings.Shutdown.Timeout)
	time.Sleep(g.settings.Shutdown.Delay)
	ctx, cancel := context.WithTimeout(g.work, g.settings.Shutdown.Timeout)
	defer cancel()
	var faults []error
	for _, f := range fronts {
		if err := f.server.ShutdownWithContext(ctx); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", f.name, err))
		}

		// A server that ends before it began to serve knows no listener to close.
		_ = f.listener.Close()
	}

	return errors.Join(faults...)
}

// certificateEvery is how often a handshake reads the files again.
const certificateEvery = 10 * time.Second

// servedCertificate is a listener's certificate, which may be replaced while it runs.
// Files that cannot be read, or do not belong together, leave the one before in force,
// with a line in the log.
type servedCertificate struct {
	certFile, keyFile string
	log               *slog.Logger
	every             time.Duration

	mu      sync.Mutex
	current *tls.Certificate
	looked  time.Time
}

func openCertificate(certFile, keyFile string, log *slog.Logger) (*servedCertificate, error) {
	current, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &servedCertificate{certFile: certFile, keyFile: keyFile, log: log, every: certificateEvery, current: &current, looked: time.Now()}, nil
}

func (c *servedCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.looked) < c.every {
		return c.current, nil
	}

	c.looked = now
	fresh, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	switch {
	case err != nil:
		c.log.Error("the new certificate cannot be used; the one before stays in force", "file", c.certFile, "error", err)
	case !slices.EqualFunc(fresh.Certificate, c.current.Certificate, bytes.Equal):
		c.current = &fresh
		c.log.Info("certificate read again", "file", c.certFile, "expires", fresh.Leaf.NotAfter)
	}

	return c.current, nil
}
