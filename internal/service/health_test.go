package service

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

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
