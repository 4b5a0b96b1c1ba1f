package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// retireAll makes every order leave Redis.
func (s *compared) retireAll() {
	s.T.Helper()
	// An hour is retired when it is over: an event of a later one says so.
	s.EachKey("e", fmt.Sprintf(`redis.call('XADD', k, '%d-0', 'e', '\2evt_x')`,
		time.Now().Add(3*time.Hour).UnixMilli()))
	s.Consume(ledger.RoleStatus)
	s.Consume(ledger.RoleWebhook)
	s.AwaitExported()
	for p := range s.Ledger.Partitions() {
		if _, err := s.Ledger.Retire(s.T.Context(), p, time.Now().Add(48*time.Hour), 1000); err != nil {
			s.T.Fatal(err)
		}
	}
}

// An order that moves on, and is exported, between the reading and the removing
// of a repair must not be left as it was before.
func TestFix_OrderMovesInTheMiddle(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	o := s.Vendor.Order("", s.today.Add(13*time.Hour))
	s.AwaitExported()
	s.spoil(fmt.Sprintf("ALTER TABLE orders UPDATE order_amount = 1 WHERE order_id = '%s'", o.ID))
	var once sync.Once
	g := newGate(t, s.Env)
	g.stand(func(statement string) bool {
		if strings.Contains(statement, "DELETE FROM") || strings.Contains(statement, "INSERT INTO") {
			once.Do(func() {
				s.Move(o, delivery.Delivered, s.today.Add(14*time.Hour))
				s.AwaitExported()
			})
		}
		return true
	}, nil)
	s.reconciler = New(s.Ledger, g.Archive)
	s.compare(Scope{Fix: true})
	s.Want("the order", fmt.Sprintf("status, order_amount FROM %s.orders WHERE order_id = '%s'", s.Database, o.ID), "Delivered\t123.45")
	s.tied()
}

// What was stored is stored again even if the repair is interrupted in its
// middle.
func TestFix_InterruptedLosesNothing(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	o := s.Delivered(s.today.Add(13 * time.Hour))
	s.AwaitExported()
	s.spoil(fmt.Sprintf("INSERT INTO TABLE orders SELECT * REPLACE (version + 1000 AS version, 'Searching' AS status) FROM %s.orders WHERE order_id = '%s'", s.Database, o.ID))
	ctx, cancel := context.WithCancel(t.Context())
	g := newGate(t, s.Env)
	g.stand(nil, func(statement string) bool {
		if strings.Contains(statement, "DELETE FROM") {
			cancel()
		}
		return true
	})
	err := New(s.Ledger, g.Archive).Run(ctx, Scope{From: s.today, To: s.today, Fix: true, Patience: 20 * time.Second}, func(*Day) {})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.Want("orders", "count() FROM "+s.Database+".orders", "11")
	s.Want("events", "count() FROM "+s.Database+".order_events", "66")
}

// A removal that was done although its answer was lost leaves nothing out.
func TestFix_RemovalWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	o := s.Delivered(s.today.Add(13 * time.Hour))
	s.AwaitExported()
	s.spoil(fmt.Sprintf("INSERT INTO TABLE orders SELECT * REPLACE (version + 1000 AS version, 'Searching' AS status) FROM %s.orders WHERE order_id = '%s'", s.Database, o.ID))
	g := newGate(t, s.Env)
	g.stand(nil, func(statement string) bool { return !strings.Contains(statement, "DELETE FROM") })
	err := New(s.Ledger, g.Archive).Run(t.Context(), Scope{From: s.today, To: s.today, Fix: true, Patience: 20 * time.Second}, func(*Day) {})
	if err != nil && !errors.Is(err, delivery.ErrUnavailable) {
		t.Fatal(err)
	}
	s.Want("orders", "count() FROM "+s.Database+".orders", "11")
	s.Want("events", "count() FROM "+s.Database+".order_events", "66")
}

// Of what has left Redis, ClickHouse has the only record: no repair removes it.
func TestFix_KeepsWhatHasLeftRedis(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ statement, rows string }{
		"no row":               {"ALTER TABLE orders DELETE WHERE order_id = '%s'", "0\t6"},
		"an impossible amount": {"ALTER TABLE orders UPDATE order_amount = -1 WHERE order_id = '%s'", "1\t6"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newCompared(t)
			o := s.Delivered(s.today.Add(13 * time.Hour))
			s.AwaitExported()
			s.retireAll()
			s.spoil(fmt.Sprintf(c.statement, o.ID))
			for range 2 {
				found, _ := s.compare(Scope{Fix: true})
				if len(found) != 1 || strings.Contains(found[0], "fixed") {
					t.Errorf("found %q; want one, which cannot be fixed", found)
				}
			}
			s.Want("rows", fmt.Sprintf("(SELECT count() FROM %[1]s.orders WHERE order_id = '%[2]s'), (SELECT count() FROM %[1]s.order_events WHERE order_id = '%[2]s')",
				s.Database, o.ID), c.rows)
		})
	}
}

// A Redis that has lost its data, or is another one, is no reason to delete
// finance's history.
func TestFix_EmptyRedisRemovesNothing(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	s.stop()
	s.EachRecord("o", "redis.call('DEL', k)")
	var left int
	err := s.reconciler.Run(t.Context(), Scope{From: s.today, To: s.today, Fix: true, Patience: time.Second}, func(d *Day) {
		for _, x := range d.Differences {
			if !x.Fixed {
				left++
			}
		}
	})
	if err == nil && left != 10 {
		t.Errorf("%d differences left, want all 10, or an error", left)
	}
	s.Want("orders", "count() FROM "+s.Database+".orders", "10")
}

func TestFix_TwiceChangesNothing(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	s.spoil("ALTER TABLE orders UPDATE order_amount = order_amount + 1 WHERE 1")
	s.spoil("ALTER TABLE order_events DELETE WHERE sequence = 4")
	if found, _ := s.compare(Scope{Fix: true}); len(found) != 10 {
		t.Errorf("found %q", found)
	}
	rows := "count(), sum(order_amount), sum(cityHash64(*)), (SELECT sum(cityHash64(*)) FROM " + s.Database + ".order_events) FROM " + s.Database + ".orders"
	before := s.Ask(rows)
	if found, _ := s.compare(Scope{Fix: true}); len(found) != 0 {
		t.Errorf("again %q", found)
	}
	if after := s.Ask(rows); after != before {
		t.Errorf("%q, then %q", before, after)
	}
}

// Repairs beside an exporter, while the same orders are created, move and are
// spoilt: whatever is found meanwhile, no order is left behind what it is.
func TestFix_BesideMovingOrders(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	var all sync.WaitGroup
	made := 10
	all.Go(func() {
		var open []*delivery.Order
		for i := 0; ctx.Err() == nil && !t.Failed(); i++ {
			at := s.today.Add(13*time.Hour + time.Duration(i)*time.Second)
			open = append(open, s.Vendor.Order("", at))
			made++
			for j, o := range open {
				if target := delivery.Assigned + delivery.Status(i-j); target <= delivery.Delivered && i > j {
					s.Move(o, target, at)
				}
			}
			if len(open) > 6 {
				open = open[:0]
				i = 0
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	all.Go(func() {
		for i := 0; ctx.Err() == nil && !t.Failed(); i++ {
			s.spoil([]string{
				fmt.Sprintf("INSERT INTO TABLE orders SELECT * REPLACE (version + 1000 AS version) FROM %s.orders WHERE cityHash64(order_id) %% 7 = %d", s.Database, i%7),
				fmt.Sprintf("ALTER TABLE order_events DELETE WHERE cityHash64(order_id) %% 7 = %d", i%7),
				fmt.Sprintf("ALTER TABLE orders UPDATE order_amount = 1 WHERE cityHash64(order_id) %% 7 = %d", i%7),
			}[i%3])
			time.Sleep(100 * time.Millisecond)
		}
	})
	repairs := 0
	for ctx.Err() == nil {
		s.compare(Scope{From: s.today, To: s.today, Fix: true})
		repairs++
	}
	all.Wait()
	s.AwaitExported()
	s.compare(Scope{From: s.today, To: s.today, Fix: true})
	s.tied()
	s.Want("orders", "count() FROM "+s.Database+".orders", fmt.Sprint(made))
	t.Logf("%d orders, %d repairs", made, repairs)
}
