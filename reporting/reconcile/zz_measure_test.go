package reconcile

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	fleet "vendorapi/worker/testbed"
)

func TestMeasure(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("MEASURE"))
	if n == 0 {
		return
	}
	s := newCompared(t)
	began := time.Now()
	var all sync.WaitGroup
	const hands = 24
	for h := range hands {
		v := s.NewVendor()
		all.Go(func() {
			for i := h; i < n; i += hands {
				at := s.today.Add(10*time.Hour + time.Duration(i)*time.Millisecond)
				draft := &delivery.OrderDraft{ExternalStoreID: v.Store.ExternalID, ExternalOrderID: fmt.Sprint("m", i), ReadyAt: at,
					Recipient: delivery.Recipient{Name: "Ali Veli", Phone: "5321234567"}, Dropoff: delivery.Dropoff{Text: "Bahariye Cd. No 5 D 3", Point: delivery.Point{Latitude: 40.99, Longitude: 29.03}}}
				v.Edit(draft)
				c, _, err := s.Ledger.CreateOrder(t.Context(), &ledger.Creation{Account: v.Account, IdempotencyKey: draft.ExternalOrderID, Body: []byte("x"), Draft: draft, Now: at,
					Candidates: []ledger.Candidate{{Terms: s.Bed.Fleet.Terms(), Covers: true}}})
				if err != nil {
					t.Error(err)
					return
				}
				o, err := s.Ledger.Order(t.Context(), c.Order.ID)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Ledger.CommitAll(t.Context(), []ledger.Commit{{Order: o, Changes: delivery.Decide(o, delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: delivery.Delivered, At: at, Courier: fleet.Courier}, time.Now()).Changes}}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("made %d in %s", n, time.Since(began))
	began = time.Now()
	for {
		lag, err := s.Ledger.Lag(t.Context(), ledger.RoleExport)
		if err != nil {
			t.Fatal(err)
		}
		if lag.Entries == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("then exported in %s", time.Since(began))
	run := func(what string, fix bool) {
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		peak := uint64(0)
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					var x runtime.MemStats
					runtime.ReadMemStats(&x)
					peak = max(peak, x.HeapAlloc)
				}
			}
		}()
		began := time.Now()
		differ, fixed := 0, 0
		err := s.reconciler.Run(t.Context(), Scope{From: s.today, To: s.today, Fix: fix}, func(d *Day) {
			differ += len(d.Differences)
			for i := range d.Differences {
				if d.Differences[i].Fixed {
					fixed++
				}
			}
			t.Logf("%s: compared %d retired %d moving %d totals %v", what, d.Compared, d.Retired, d.Moving, d.Totals)
		})
		close(stop)
		t.Logf("%s: %s, %d differ, %d fixed, %v, heap +%d MB", what, time.Since(began).Round(time.Millisecond), differ, fixed, err, (int64(peak)-int64(before.HeapAlloc))>>20)
	}

	run("tied", false)
	s.spoil("ALTER TABLE orders UPDATE order_amount = order_amount + 1 WHERE cityHash64(order_id) % 20 = 0")
	run("one in 20", false)
	run("one in 20 fixed", true)
	s.spoil("ALTER TABLE order_events DELETE WHERE cityHash64(order_id) % 20 = 1 AND sequence = 6")
	s.Engine.Exec(t, "INSERT INTO "+s.Database+".orders SELECT * REPLACE (version + 1 AS version) FROM "+s.Database+".orders WHERE cityHash64(order_id) % 20 = 2")
	run("later versions", true)
	run("tied again", false)
}


