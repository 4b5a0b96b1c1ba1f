package main

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Operators are called for Redis; so what Redis cannot help is counted under another cause.
func TestLedgerErrors_AreCountedByCause(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want ledgerCause
	}{
		"Redis is unavailable":      {fmt.Errorf("reading: %w", delivery.ErrUnavailable), causeRedis},
		"Redis refuses to write":    {fmt.Errorf("%w: OOM command not allowed", delivery.ErrUnavailable), causeRedis},
		"no replica has confirmed":  {fmt.Errorf("creating: %w", ledger.ErrUnconfirmed), causeUnconfirmed},
		"others write all the time": {errContended, causeContended},
		"not connected yet":         {errStarting, causeStarting},
		"no room":                   {errOverloaded, ""},
		"a refusal":                 {delivery.Refuse(delivery.CodeWebhookBeingRemoved, "wait"), ""},
		"a defect":                  {errors.New("nonsense"), ""},
	} {
		got := ledgerCauseOf(c.err)
		if got != c.want {
			t.Errorf("%s: cause %q, want %q", name, got, c.want)
		}
	}
}

// An alert sees the first failure of a kind only if the count was there before.
func TestLedgerErrors_EveryCauseIsThereFromTheStart(t *testing.T) {
	registry := prometheus.NewRegistry()
	failing := newMetrics(registry).meter("orders_create")
	failing.refused(&delivery.Error{Code: delivery.CodeServiceUnavailable}, causeContended)
	failing.refused(errOverloaded, "")

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	got := map[ledgerCause]float64{}
	for _, family := range families {
		if family.GetName() != "gateway_ledger_errors_total" {
			continue
		}

		for _, metric := range family.GetMetric() {
			labels := metric.GetLabel() // by name
			if labels[1].GetValue() == "orders_create" {
				got[ledgerCause(labels[0].GetValue())] = metric.GetCounter().GetValue()
			}
		}
	}

	want := map[ledgerCause]float64{causeRedis: 0, causeUnconfirmed: 0, causeContended: 1, causeStarting: 0}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}
