//go:build !race

// The race detector allocates on its own, so these tests run without it:
// go test -run TestAllocations ./gateway

package main

import (
	"runtime"
	"testing"
)

// The most allocations that one accepted order may cost from socket to socket:
// in all, and in the gateway and fasthttp alone, without the ledger.
const (
	mostAllocations        = 30
	mostGatewayAllocations = 5
)

func TestAllocations_AcceptedOrder(t *testing.T) {
	holdAllocations(t, newPipelinesEnv(t), mostAllocations)
}

func TestAllocations_AcceptedOrderWithoutPipelines(t *testing.T) {
	holdAllocations(t, newOrderEnv(t), mostAllocations)
}

func TestAllocations_GatewayAlone(t *testing.T) {
	holdAllocations(t, newReferenceEnv(t, newNothingReference), mostGatewayAllocations)
}

// holdAllocations sends orders and counts what the process allocates meanwhile,
// the load's nothing included. What goes on in the background (the poll of the
// fleets, pools that the collector has emptied) is spread over many orders.
func holdAllocations(t *testing.T, s *benchEnv, most float64) {
	t.Helper()
	const orders = 100 * connections
	var before, after runtime.MemStats
	err := s.load.orders(orders, func() { runtime.ReadMemStats(&before) })
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}

	each := float64(after.Mallocs-before.Mallocs) / orders
	t.Logf("%.1f allocations and %.0f bytes an order", each, float64(after.TotalAlloc-before.TotalAlloc)/orders)
	if each > most {
		t.Errorf("%.1f allocations an order, at most %v are allowed", each, most)
	}
}
