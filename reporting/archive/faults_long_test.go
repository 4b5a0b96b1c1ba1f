//go:build long

package archive

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

// Writers go on over kill -9 at any moment, sending again what was not
// acknowledged: everything is there, once.
func TestInsert_SurvivesKill(t *testing.T) {
	t.Parallel()
	e := testserver.DedicatedClickHouse(t)
	a := newArchiveIn(t, e)
	const writers, rounds, perBatch = 3, 5, 300
	var stop atomic.Bool
	var mu sync.Mutex
	var acknowledged []*delivery.Order
	var running sync.WaitGroup
	var repeated atomic.Int64
	for w := range writers {
		running.Go(func() {
			for n := 0; !stop.Load(); n++ {
				var all []*delivery.Order
				for i := range perBatch {
					// Two months, so that a batch has two parts.
					all = append(all, newOrder(account(w*100+i%10), (w*1000+n)*perBatch+i, noon.AddDate(0, 0, i%20), toDelivered[:i%6]...))
				}
				insertUntilStored(t, a, batchOf(all...), &repeated)
				mu.Lock()
				acknowledged = append(acknowledged, all...)
				mu.Unlock()
			}
		})
	}
	for range rounds {
		time.Sleep(rand.N(250 * time.Millisecond))
		e.Kill(t)
		before := repeated.Load()
		testserver.Await(t, "an insert is repeated", func() bool { return repeated.Load() > before })
		e.Start(t)
	}
	stop.Store(true)
	running.Wait()
	t.Logf("%d orders acknowledged, %d inserts repeated, over %d kills", len(acknowledged), repeated.Load(), rounds)
	requireStored(t, a, noon, noon.AddDate(0, 1, 0), acknowledged...)
}

func insertUntilStored(t *testing.T, a *Archive, b *Batch, repeated *atomic.Int64) {
	for ; ; repeated.Add(1) {
		err := a.Insert(t.Context(), b)
		if err == nil {
			return
		}
		if !errors.Is(err, delivery.ErrUnavailable) {
			t.Error(err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestArchive_AwayAndBack(t *testing.T) {
	t.Parallel()
	e := testserver.DedicatedClickHouse(t)
	a := newArchiveIn(t, e)
	o := newOrder(account(1), 1, noon, toDelivered...)
	calls := map[string]func(context.Context) error{
		"Ping":    a.Ping,
		"Insert":  func(ctx context.Context) error { return a.InsertAnew(ctx, batchOf(o)) },
		"Migrate": func(ctx context.Context) error { _, err := a.Migrate(ctx); return err },
		"Stored": func(ctx context.Context) error {
			for _, err := range a.Stored(ctx, Selection{From: noon, To: noon}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"AccountsOf": func(ctx context.Context) error { _, err := a.AccountsOf(ctx, noon); return err },
		"Misplaced":  func(ctx context.Context) error { _, err := a.Misplaced(ctx, []Place{{Day: noon}}); return err },
		"Remove":     func(ctx context.Context) error { return a.Remove(ctx, []Place{{Account: account(2), Day: noon}}) },
	}
	each := func(check func(name string, err error)) {
		for name, call := range calls {
			check(name, call(t.Context()))
		}
	}
	works := func(name string, err error) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	each(works)
	e.Stop(t)
	for range 3 {
		each(func(name string, err error) {
			if !errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), strings.TrimPrefix(e.URL, "http://")) ||
				strings.Contains(err.Error(), "ledger") {
				t.Errorf("%s, while it is away: %v", name, err)
			}
		})
	}
	e.Start(t)
	each(works)
	requireStored(t, a, noon, noon, o)
}

// A reader that is cut off says so: half a day must not look like a whole one.
func TestStored_ClickHouseKilledWhileReading(t *testing.T) {
	t.Parallel()
	e := testserver.DedicatedClickHouse(t)
	a := newArchiveIn(t, e)
	b := &Batch{}
	const all = 2 * rowsAtOnce
	random := make([]byte, 1000) // what cannot be compressed does not fit into the sockets
	for i := range all {
		row := OrderOf(newOrder(account(i%5), i, noon), kebap)
		_, _ = crand.Read(random)
		row.ExternalOrderID = hex.EncodeToString(random)
		b.Orders = append(b.Orders, row)
	}
	noError(t, a.Insert(t.Context(), b))
	n := 0
	var err error
	for _, failure := range a.Stored(t.Context(), Selection{From: noon, To: noon}) {
		if err = failure; err != nil {
			break
		}
		if n++; n == 10 {
			e.Kill(t)
		}
	}
	if !errors.Is(err, delivery.ErrUnavailable) || n >= all {
		t.Errorf("%d of %d orders, then %v", n, all, err)
	}
}
