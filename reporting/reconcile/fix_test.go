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
)

// An order that moves on, and is exported, between the reading and the removing
// of a repair must not be left as it was before.
func TestFix_OrderMovesInTheMiddle(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	o := s.Vendor.Order("", s.today.Add(13*time.Hour))
	s.AwaitExported()
	s.spoil(fmt.Sprintf("ALTER TABLE orders UPDATE order_amount = 1 WHERE order_id = '%s'", o.ID))
	var once sync.Once
	p := s.NewProxy("")
	p.Guard(func(statement string) bool {
		if strings.Contains(statement, "DELETE FROM") || strings.Contains(statement, "INSERT INTO") {
			once.Do(func() {
				s.Move(o, delivery.Delivered, s.today.Add(14*time.Hour))
				s.AwaitExported()
			})
		}
		return true
	}, nil)

	s.reconciler = New(s.Ledger, p.Archive)
	s.compare(Scope{Fix: true})
	s.Want("the order", fmt.Sprintf("status, order_amount FROM %s.orders WHERE order_id = '%s'", s.Database, o.ID), "Delivered\t123.45")
	s.requireEqual()
}

// What was stored is stored again even if the repair is interrupted after its
// removal, or the removal was done although its answer was lost.
func TestFix_CutOffLosesNothing(t *testing.T) {
	t.Parallel()

	for name, interrupted := range map[string]bool{"interrupted": true, "answer lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := newEnv(t)
			o := s.Delivered(s.today.Add(13 * time.Hour))
			s.AwaitExported()
			s.spoil(fmt.Sprintf("INSERT INTO TABLE orders SELECT * REPLACE (version + 1000 AS version, 'Searching' AS status) FROM DB.orders WHERE order_id = '%s'", o.ID))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := s.NewProxy("")
			removed := false
			p.Guard(nil, func(statement string) bool {
				if !strings.Contains(statement, "DELETE FROM") {
					return true
				}
				removed = true
				if interrupted {
					cancel()
				}
				return interrupted
			})

			err := New(s.Ledger, p.Archive).Run(ctx, Scope{From: s.today, To: s.today, Fix: true, Timeout: timeout}, func(*Day) {})
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, delivery.ErrUnavailable) || !removed {
				t.Fatalf("%v, removed %t", err, removed)
			}

			s.Want("orders", "count() FROM "+s.Database+".orders", "11")
			s.Want("events", "count() FROM "+s.Database+".order_events", "66")
		})
	}
}

// A Redis that has lost its data, or is another one, is no reason to delete
// finance's history.
func TestFix_EmptyRedisRemovesNothing(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	s.stop()
	s.EachRecord("o", "redis.call('DEL', k)")
	left := 0
	err := s.reconciler.Run(t.Context(), Scope{From: s.today, To: s.today, Fix: true, Timeout: timeout}, func(d *Day) {
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
