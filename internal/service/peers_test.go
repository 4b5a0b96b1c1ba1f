package service

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/tracing"
)

// What is not known is absent: an alert must not take 0 for a date.
func TestPeerCertificate_IsShown(t *testing.T) {
	t.Parallel()

	p, err := NewProcess(t.Context(), "worker", "sandbox", tracing.Settings{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	h := Handler(p.Registry, func(context.Context) error { return nil }, false)
	shown := func() string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}

	if text := shown(); strings.Contains(text, "vendorapi_peer_certificate") || !strings.Contains(text, "\nvendorapi_clock_ahead_seconds 0\n") {
		t.Errorf("before anything is connected: %s", text)
	}

	seen := p.SeenCertificate("redis")
	seen(time.Unix(1_800_000_000, 0))
	seen(time.Unix(1_900_000_000, 0))
	if text := shown(); !strings.Contains(text, `vendorapi_peer_certificate_expiry_timestamp_seconds{server="redis"} 1.9e+09`) {
		t.Errorf("after two connections: %s", text)
	}
}
