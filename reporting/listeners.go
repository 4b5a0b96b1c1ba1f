package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
	"vendorapi/reporting/panel/auth"
)

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
	places := make(chan struct{}, p.settings.MaxInFlight)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			next.ServeHTTP(w, r)
		default:
			auth.Refuse(w, r, p.log, &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: time.Second,
				Message: "too many requests at once; sending the same request again is safe"})
		}
	})
}

// listener is an address with what is served there.
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
	p.closed.Add(-1)
	limited := service.NewListener(port, service.Limits{Connections: p.settings.MaxConnections, PerAddress: p.settings.MaxConnectionsPerIP, Exempt: p.settings.Access.Trusts})
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
