package service_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/internal/tracing"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// Debian's redis 7.0.15 and valkey 8.0.1 have numbers without the fix, so both are warned of.
func TestConnect_NamesTheServerAndWarnsOfItsRelease(t *testing.T) {
	t.Parallel()

	var logged bytes.Buffer
	p, err := service.NewProcess(t.Context(), "gateway", "sandbox", tracing.Settings{}, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}

	redis := testserver.NewRedis(t)
	prepared := false
	l, err := p.Connect(t.Context(), ledger.Config{URL: redis.URLFor(stack.GatewayUser), Environment: "sandbox"}, func(context.Context, *ledger.Ledger) error {
		prepared = true
		return nil
	})
	if err != nil || !prepared {
		t.Fatalf("%v, prepared %t", err, prepared)
	}
	defer p.Close(t.Context())

	servers, err := l.Monitor.Servers(t.Context())
	if err != nil || len(servers) != 1 {
		t.Fatal(servers, err)
	}

	named := `msg="connected to Redis" server=` + servers[0].Name + " version=" + servers[0].Version
	if got := logged.String(); !strings.Contains(got, named) || strings.Contains(got, "CVE-2025-49844") == servers[0].IsFixed() {
		t.Errorf("logged %q, want %q", got, named)
	}
}
