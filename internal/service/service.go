// Package service is what all programs have in common: the command line and the
// check of settings (Program), the connection to Redis, log, traces and orderly end
// (Process), the operators' pages /metrics, /healthz, /readyz and /debug/pprof
// (Handler), and listeners with limits (Listener).
package service

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"vendorapi/internal/config"
)

// readyTimeout bounds one question to the program's readiness; a balancer
// asks about every second.
const readyTimeout = 2 * time.Second

// shutdownTimeout is how long Serve lets a running answer finish.
const shutdownTimeout = 5 * time.Second

// Handler serves /metrics from reg, /healthz (200 while the process lives),
// /readyz (200 when ready answers nil within 2 s, otherwise 503 with the
// reason) and, when profiles are asked for, /debug/pprof. It registers vendorapi_ready,
// which says what /readyz would answer.
func Handler(reg *prometheus.Registry, ready func(context.Context) error, profiles bool) http.Handler {
	bounded := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, readyTimeout)
		defer cancel()
		return ready(ctx)
	}

	NewMetrics(reg, nil).GaugeFunc("vendorapi_ready", "1 when /readyz answers 200, else 0; asked at every scrape.", func() float64 {
		if bounded(context.Background()) != nil {
			return 0
		}
		return 1
	})

	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := bounded(r.Context()); err != nil {
			answer(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		answer(w, http.StatusOK, "ready")
	})

	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index) // and every profile below it but these
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}

	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // the client disconnected: nothing to do
}

// Serve answers with h on the listener until ctx ends, then lets running answers finish
// for at most 5 s. It returns nil after such an end, and an error when the listener
// fails.
func Serve(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("listener on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}

	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil {
		return fmt.Errorf("listener on %s: %w", listener.Addr(), errors.Join(err, server.Close()))
	}

	return nil
}

// askTimeout bounds Ask; it is longer than a readiness takes at most.
const askTimeout = 5 * time.Second

// Ask puts the question /readyz to the program of this machine that listens at
// addr, with TLS if secure. It is the health check of a container that holds
// nothing but the program. The answer is nil for 200, else the reason.
func Ask(ctx context.Context, addr string, secure bool) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// The certificate has the name that others reach the listener by. Nothing is sent to
	// whoever answers, and all that is believed is "ready".
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	scheme := "http://"
	if secure {
		scheme = "https://"
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+config.Reachable(addr)+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("ask for readiness: %w", err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("ask for readiness: %w", err)
	}
	defer resp.Body.Close()

	reason, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // the status says enough
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", strings.TrimSpace(string(reason)))
	}

	return nil
}
