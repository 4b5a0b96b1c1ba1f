//go:build long

package owner

import (
	"context"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
)

// withoutOwner is for how long a partition may have no owner that renews its token.
const withoutOwner = 10 * time.Second

// stillest watches the tokens until stop is called, which returns for how long one has stood still at most.
func (e *env) stillest() (stop func() time.Duration) {
	ctx, cancel := context.WithCancel(e.T.Context())
	result := make(chan time.Duration, 1)
	go func() {
		var longest time.Duration
		last := make(map[int]partitions.Stored)
		changed := make(map[int]time.Time)
		for ctx.Err() == nil {
			tokens, err := e.Ledger.Ownership.Tokens(ctx)
			now := time.Now()
			for p, token := range tokens {
				if err == nil && token != last[p] {
					last[p], changed[p] = token, now
				}
				longest = max(longest, now.Sub(changed[p]))
			}

			sleep(ctx, 20*time.Millisecond)
		}

		result <- longest
	}()

	return func() time.Duration { cancel(); return <-result }
}

// For each right of the worker's user in turn: a worker that never had it, and one that loses it while it owns
// its share, beside a healthy one. Orders are decided in every partition all the while.
func TestShare_NoRightLeavesAPartitionWithoutAnOwner(t *testing.T) {
	rules := workerRules(t)
	for _, rule := range rules {
		t.Run(rule, func(t *testing.T) {
			e := ownServer(t)
			e.Start(e.role.Run)
			e.awaitOwners(testenv.Partitions, "w1")
			stop := e.stillest()
			lacking, err := ledger.Open(t.Context(), e.setUser("lacking", without(rules, rule)))
			if err == nil {
				t.Cleanup(func() { _ = lacking.Close() })
				end := e.Start(e.roleOf(lacking, "lacking").Run)
				e.decideEverywhere()
				e.awaitRenewals(10)
				end()
			}

			e.awaitOwners(testenv.Partitions, "w1")
			losing, err := ledger.Open(t.Context(), e.setUser("losing", rules))
			testenv.Must(t, err)
			t.Cleanup(func() { _ = losing.Close() })
			e.Start(e.roleOf(losing, "losing").Run)
			e.awaitOwners(testenv.Partitions/2, "w1", "losing")

			e.setUser("losing", without(rules, rule))
			e.decideEverywhere()
			e.awaitRenewals(10)
			e.decideEverywhere()

			if still := stop(); still > withoutOwner {
				t.Errorf("a partition was without an owner for %s", still)
			}
		})
	}
}

// decideEverywhere waits until an order of each partition was decided.
func (e *env) decideEverywhere() {
	e.T.Helper()
	for p := range testenv.Partitions {
		o := e.vendorIn(p).Order("", time.Now())
		e.Accept(o, time.Now())
		e.AwaitStatus(o, delivery.Assigned)
	}
}
