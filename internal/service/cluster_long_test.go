//go:build long

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
	"vendorapi/internal/tracing"
)

// A program starts while one master of a cluster is away, whichever, and is ready.
func TestConnect_WhileAMasterIsAway(t *testing.T) {
	cluster, err := stack.StartCluster(t.Context(), t.TempDir(), 3, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(cluster.Stop)
	config := ledger.Config{URL: cluster.URL, Environment: "sandbox", Partitions: 12}
	first, err := ledger.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = first.Close() })
	config.Partitions = 0 // it is stored

	for i, dead := range cluster.Nodes {
		dead.Kill()
		var logged bytes.Buffer
		p, err := service.NewProcess(t.Context(), "worker", "sandbox", tracing.Settings{}, slog.New(slog.NewTextHandler(&logged, nil)))
		if err != nil {
			t.Fatal(err)
		}

		prepared := false
		l, err := p.Connect(t.Context(), config, func(context.Context, *ledger.Ledger) error {
			prepared = true
			return nil
		})
		if err != nil || !prepared {
			t.Fatalf("without master %d: %v, prepared %t", i, err, prepared)
		}
		if err := p.Ready(t.Context()); err != nil {
			t.Errorf("without master %d: not ready: %v", i, err)
		}

		tokens, err := l.Ownership.Tokens(t.Context())
		if l.ID() == "" || l.ID() != first.ID() {
			t.Errorf("without master %d: the ledger is %q, was %q", i, l.ID(), first.ID())
		}
		if l.Partitions() != 12 || len(tokens) != 8 || err == nil {
			t.Errorf("without master %d: %d partitions, of which %d can be read: %v", i, l.Partitions(), len(tokens), err)
		}

		if strings.Contains(logged.String(), "waiting for Redis") || !strings.Contains(logged.String(), "a master of Redis does not answer") {
			t.Errorf("without master %d it logged %s", i, logged.String())
		}

		p.Close(t.Context())
		if err := dead.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := cluster.AwaitWhole(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A ledger's number of partitions is compared also when only a copy of it can be read.
func TestConnect_AnotherNumberOfPartitionsIsRefusedWithoutTheMeta(t *testing.T) {
	cluster, err := stack.StartCluster(t.Context(), t.TempDir(), 3, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(cluster.Stop)
	config := ledger.Config{URL: cluster.URL, Environment: "sandbox", Partitions: 12}
	first, err := ledger.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = first.Close() })
	for _, dead := range cluster.Nodes {
		dead.Kill()
		config.Partitions = 16
		_, err := ledger.Open(t.Context(), config)
		if err == nil || !strings.Contains(err.Error(), "has 12 partitions") {
			t.Errorf("%v", err)
		}
		if err := dead.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := cluster.AwaitWhole(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
