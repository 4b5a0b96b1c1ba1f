package main

import (
	"log/slog"
	"testing"

	"vendorapi/internal/ops"
)

// Told to end before it began: whatever fails at the start must not leave a
// server behind that waits for connections for ever.
func TestShutDown_BeforeServingEndsTheServers(t *testing.T) {
	g, err := newGateway(t.Context(), testSettings(t), testSecrets(), slog.New(slog.DiscardHandler), ops.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	fronts, err := g.listen()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.shutDown(fronts); err != nil {
		t.Fatal(err)
	}
	for _, f := range fronts {
		if err := f.serve(); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
}
