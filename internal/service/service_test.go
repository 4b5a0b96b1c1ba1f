package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLog_FiltersByLevelAndFormats(t *testing.T) {
	var out bytes.Buffer
	log := (&Log{Level: "warn", Format: "json"}).Logger(&out)
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
	(&Log{Level: "debug", Format: "text"}).Logger(&out).Debug("seen")
	if !strings.Contains(out.String(), "level=DEBUG msg=seen") {
		t.Errorf("text line = %q", out.String())
	}
}

// What others send may be quoted in a line of the log; it does not fill it.
func TestLog_CutsWhatIsVeryLong(t *testing.T) {
	for name, foreign := range map[string]string{
		"letters":            strings.Repeat("x", 60_000),
		"no UTF-8":           strings.Repeat("\xff", 60_000),
		"control characters": strings.Repeat("\x00\x1b[31m", 10_000),
		"lines":              strings.Repeat("level=ERROR msg=forged\r\n", 2_500),
	} {
		for _, format := range []string{"text", "json"} {
			var out bytes.Buffer
			(&Log{Level: "info", Format: format}).Logger(&out).With("path", foreign).Error(foreign, "error", fmt.Errorf("asking: %w", errors.New(foreign)), "order", 7)
			lines := strings.Count(out.String(), "\n")
			if lines != 1 || out.Len() > 3*maxLogged+500 || !strings.Contains(out.String(), "order") {
				t.Errorf("%s, %s: %d lines of %d bytes", name, format, lines, out.Len())
			}
		}
	}
}

// The limit is one of bytes, whatever a character takes, and what is cut stays valid UTF-8.
func TestLog_CutsToBytes(t *testing.T) {
	for name, text := range map[string]string{
		"one byte a character":      strings.Repeat("x", 3*maxLogged),
		"two bytes a character":     strings.Repeat("ş", 3*maxLogged),
		"three bytes a character":   strings.Repeat("漢", 3*maxLogged),
		"four bytes a character":    "x" + strings.Repeat("😀", 3*maxLogged),
		"no UTF-8":                  strings.Repeat("a\xff", 3*maxLogged),
		"no more than one too many": strings.Repeat("x", maxLogged+1),
		"a panic":                   "panic: x" + strings.Repeat("😀", maxStack),
	} {
		limit := maxLogged
		if name == "a panic" {
			limit = maxStack
		}

		cut := boundLogged(nil, slog.String("error", text)).Value.String()

		if len(cut) > limit || len(cut) < limit-4 || !utf8.ValidString(cut) {
			t.Errorf("%s: cut to %d bytes, want %d; valid UTF-8: %t", name, len(cut), limit, utf8.ValidString(cut))
		}
	}

	whole := strings.Repeat("ş", maxLogged/2)
	if kept := boundLogged(nil, slog.String("error", whole)).Value.String(); kept != whole {
		t.Errorf("a text of exactly %d bytes was changed", maxLogged)
	}
}

type pointedError struct{ text string }

func (e *pointedError) Error() string { return e.text }

// The log's own handlers write a nil pointer that is an error as such; so does one that cuts.
func TestLog_WritesATypedNilError(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		var none *pointedError

		(&Log{Level: "info", Format: format}).Logger(&out).Error("failed", "error", none, "order", 7)

		if !strings.Contains(out.String(), "order") {
			t.Errorf("%s: the line is %q", format, out.String())
		}
	}
}

// Where the program panicked is what one looks for.
func TestLog_KeepsTheStackOfAPanic(t *testing.T) {
	var out bytes.Buffer
	stack := strings.Repeat("goroutine 1\n\t/src/file.go:12\n", 200)
	(&Log{Level: "info", Format: "json"}).Logger(&out).Error("request failed", "error", fmt.Errorf("panic: nil map\n%s", stack))
	if !strings.Contains(out.String(), strings.ReplaceAll(strings.ReplaceAll(stack, "\n", `\n`), "\t", `\t`)) {
		t.Error("the stack was cut")
	}

	out.Reset()
	(&Log{Level: "info", Format: "json"}).Logger(&out).Error("request failed", "error", fmt.Errorf("panic: %s", strings.Repeat("x", 60_000)))
	if out.Len() > maxStack+500 {
		t.Errorf("%d bytes", out.Len())
	}
}

func TestLog_RefusesUnknownWords(t *testing.T) {
	for _, l := range []Log{{"loud", "text"}, {"info", "xml"}, {"", "text"}, {"info", ""}} {
		if err := l.Validate(); err == nil {
			t.Errorf("%+v: accepted", l)
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
		"not ready":       {h, errors.New("redis is unavailable"), "/readyz", 503, "redis is unavailable"},
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
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	addr := listener.Addr().String()
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, listener, http.NotFoundHandler()) }()
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
func TestAsk_AnswersAsReadyzDoes(t *testing.T) {
	t.Parallel()

	reason := error(nil)
	h := Handler(NewRegistry(), func(context.Context) error { return reason }, false)
	plain, secure := httptest.NewServer(h), httptest.NewTLSServer(h)
	defer plain.Close()
	defer secure.Close()
	addr := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	_, port, _ := strings.Cut(addr(plain), ":")
	for _, listens := range []string{addr(plain), "0.0.0.0:" + port, ":" + port} {
		if err := Ask(t.Context(), listens, false); err != nil {
			t.Errorf("%s: %v", listens, err)
		}
	}

	if err := Ask(t.Context(), addr(secure), true); err != nil {
		t.Errorf("TLS: %v", err)
	}
	if err := Ask(t.Context(), addr(secure), false); err == nil {
		t.Error("plain HTTP to a TLS listener counts as ready")
	}

	reason = errors.New("waiting for Redis")
	if err := Ask(t.Context(), addr(plain), false); err == nil || !strings.Contains(err.Error(), "waiting for Redis") {
		t.Errorf("not ready: %v", err)
	}
}

func TestAsk_RefusesWhatIsNotThere(t *testing.T) {
	t.Parallel()

	s := httptest.NewServer(http.NotFoundHandler())
	addr := s.Listener.Addr().String()
	if err := Ask(t.Context(), addr, false); err == nil || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("a stranger: %v", err)
	}

	s.Close()
	for _, gone := range []string{addr, "nowhere", "a b:1"} {
		if err := Ask(t.Context(), gone, false); err == nil {
			t.Errorf("%s counts as ready", gone)
		}
	}
}
