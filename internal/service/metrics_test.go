package service

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func scrape(t *testing.T, reason *error) string {
	t.Helper()
	reg := NewRegistry()
	observe := ObserveScripts(reg)
	observe("never_called")
	observe("create_order")(t.Context(), time.Now().Add(-3*time.Millisecond), nil)
	h := Handler(reg, func(context.Context) error { return *reason }, false)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))

	return w.Body.String()
}

func TestMetrics_OfEveryProgram(t *testing.T) {
	t.Parallel()

	var reason error
	text := scrape(t, &reason)
	for _, want := range []string{
		"vendorapi_ready 1\n", "vendorapi_build_info{goversion=\"go", "revision=\"", "version=\"",
		`vendorapi_redis_script_duration_seconds_count{script="create_order"} 1`,
		`vendorapi_redis_script_duration_seconds_bucket{script="create_order",le="0.0025"} 0`,
		`vendorapi_redis_script_duration_seconds_bucket{script="create_order",le="3"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}

	if strings.Contains(text, "never_called") {
		t.Error("a script that was never called has a series")
	}

	reason = errors.New("waiting for Redis")
	if text := scrape(t, &reason); !strings.Contains(text, "vendorapi_ready 0\n") {
		t.Error("not ready, and /metrics says ready")
	}
}

func TestObserveScripts_AllocatesNothing(t *testing.T) {
	observe, ctx := ObserveScripts(NewRegistry())("create_order"), t.Context()
	observe(ctx, time.Now(), nil)
	if n := testing.AllocsPerRun(100, func() { observe(ctx, time.Now(), nil) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
