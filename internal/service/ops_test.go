package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestNewLogger_FiltersByLevelAndFormats(t *testing.T) {
	var out bytes.Buffer
	log, err := NewLogger(&out, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("dropped")
	log.Warn("kept", "order", 7)
	var line struct {
		Level, Msg string
		Order      int
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v in %q", err, out.String())
	}
	if line.Level != slog.LevelWarn.String() || line.Msg != "kept" || line.Order != 7 {
		t.Errorf("line = %+v", line)
	}

	out.Reset()
	log, err = NewLogger(&out, "debug", "text")
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("seen")
	if !strings.Contains(out.String(), "level=DEBUG msg=seen") {
		t.Errorf("text line = %q", out.String())
	}
}

func TestNewLogger_RefusesUnknownWords(t *testing.T) {
	for _, c := range [][2]string{{"loud", "text"}, {"info", "xml"}, {"", "text"}, {"info", ""}} {
		if _, err := NewLogger(io.Discard, c[0], c[1]); err == nil {
			t.Errorf("level %q, format %q: accepted", c[0], c[1])
		}
	}
}

func TestHandler(t *testing.T) {
	var reason error
	h := Handler(NewRegistry(), func(ctx context.Context) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("readiness is asked for without a deadline")
		}
		return reason
	}, false)
	withProfiles := Handler(NewRegistry(), func(context.Context) error { return nil }, true)
	for name, c := range map[string]struct {
		h      http.Handler
		reason error
		path   string
		status int
		body   string
	}{
		"process metrics": {h, nil, "/metrics", 200, "process_open_fds"},
		"alive":           {h, errors.New("x"), "/healthz", 200, "ok"},
		"ready":           {h, nil, "/readyz", 200, "ready"},
		"not ready":       {h, errors.New("redis is away"), "/readyz", 503, "redis is away"},
		"profiles off":    {h, nil, "/debug/pprof/", 404, ""},
		"profiles on":     {withProfiles, nil, "/debug/pprof/", 200, "goroutine"},
		"nothing else":    {h, nil, "/", 404, ""},
	} {
		t.Run(name, func(t *testing.T) {
			reason = c.reason
			rec := httptest.NewRecorder()
			c.h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, c.path, nil))
			if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.body) {
				t.Errorf("%s: %d %q", c.path, rec.Code, rec.Body.String())
			}
		})
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/readyz", nil))
	if rec.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /readyz: %d", rec.Code)
	}
}

func TestServe_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	listener, err := Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	if err := Serve(ctx, addr, http.NotFoundHandler()); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("taken address: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- ServeOn(ctx, listener, http.NotFoundHandler()) }()
	resp, err := http.Get("http://" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("after cancel: %v", err)
	}
}
