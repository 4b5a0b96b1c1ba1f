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
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// readyTimeout bounds one question to the program's readiness; a balancer
// asks about every second.
const readyTimeout = 2 * time.Second

// shutdownTimeout is how long Serve lets a running answer finish.
const shutdownTimeout = 5 * time.Second

// NewRegistry is a registry that already holds the Go runtime's and the
// process's own metrics, and what was built.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newBuildInfo(),
	)
	return reg
}

// Handler serves /metrics from reg, /healthz (200 while the process lives),
// /readyz (200 when ready answers nil within 2 s, otherwise 503 with the
// reason) and, when profiles are asked for, /debug/pprof.
func Handler(reg *prometheus.Registry, ready func(context.Context) error, profiles bool) http.Handler {
	registerReady(reg, ready)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := ready(ctx); err != nil {
			answer(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		answer(w, http.StatusOK, "ready")
	})
	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
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
	_, _ = io.WriteString(w, text+"\n") // the asker went away: nothing to do
}

// Serve is Listen and ServeOn.
func Serve(ctx context.Context, addr string, h http.Handler) error {
	listener, err := Listen(ctx, addr)
	if err != nil {
		return err
	}
	return ServeOn(ctx, listener, h)
}

// Listen takes addr; its port may be 0, for any that is free. An error names addr.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("ops listener: %w", err)
	}
	return listener, nil
}

// ServeOn answers with h on the listener until ctx ends, then lets running
// answers finish for at most 5 s. It returns nil after such an end, and an error
// when the listener fails.
func ServeOn(ctx context.Context, listener net.Listener, h http.Handler) error {
	addr := listener.Addr()
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("ops listener on %s: %w", addr, err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil {
		return fmt.Errorf("ops listener on %s: %w", addr, errors.Join(err, server.Close()))
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
	url := "http://" + reachable(addr) + "/readyz"
	transport := &http.Transport{}
	if secure {
		url = "https" + strings.TrimPrefix(url, "http")
		// The certificate has the name that others reach the listener by. Nothing
		// is told to whoever answers, and all that is believed is "ready".
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask for readiness: %w", err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("ask for readiness: %w", err)
	}
	defer resp.Body.Close()
	reason, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", strings.TrimSpace(string(reason)))
	}
	return nil
}

// reachable turns an address to listen on into one to call: a wildcard means
// every interface, loopback included.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr // the request fails and says why
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
