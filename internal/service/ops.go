// Package service is what every program shows to its operators: structured logs,
// Prometheus metrics, liveness, readiness and profiles.
//
// It owns the form of these, not their content: which metrics exist and when a
// program is ready is said by the program. It refuses to listen anywhere but
// where it is told.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
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

// CheckLog judges what NewLogger takes; an error begins with the key of the
// settings that is to blame.
func CheckLog(level, format string) error {
	var faults []error
	if err := new(slog.Level).UnmarshalText([]byte(level)); err != nil {
		faults = append(faults, fmt.Errorf("log.level: %q is none of debug, info, warn, error", level))
	}
	if format != "text" && format != "json" {
		faults = append(faults, fmt.Errorf("log.format: %q is neither text nor json", format))
	}
	return errors.Join(faults...)
}

// NewLogger writes to w from level on ("debug", "info", "warn" or "error") in
// the format "text" or "json". Anything else is an error.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	if err := CheckLog(level, format); err != nil {
		return nil, err
	}
	var least slog.Level
	_ = least.UnmarshalText([]byte(level)) // judged above
	options := &slog.HandlerOptions{Level: least}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}

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
