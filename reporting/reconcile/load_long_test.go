//go:build long

package reconcile

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// Orders that are created and move all the time are no differences.
func TestReconcile_IsQuietUnderLoad(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; i < 1000 && ctx.Err() == nil; i++ {
			s.Delivered(s.today.Add(13*time.Hour + time.Duration(i)*time.Millisecond))
		}
	}()

	for range 3 {
		s.requireEqual()
	}

	cancel()
	<-done
	s.AwaitExported()
	s.requireEqual()
}

// Repairs beside an exporter, while the same orders are created, move and are
// spoilt: whatever is found meanwhile, no order is left behind what it is.
func TestFix_BesideMovingOrders(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
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
			s.spoil(fmt.Sprintf([]string{
				"INSERT INTO TABLE orders SELECT * REPLACE (version + 1000 AS version) FROM DB.orders WHERE cityHash64(order_id) %% 7 = %d",
				"ALTER TABLE order_events DELETE WHERE cityHash64(order_id) %% 7 = %d",
				"ALTER TABLE orders UPDATE order_amount = 1 WHERE cityHash64(order_id) %% 7 = %d",
			}[i%3], i%7))
			time.Sleep(100 * time.Millisecond)
		}
	})

	for ctx.Err() == nil {
		s.compare(Scope{From: s.today, To: s.today, Fix: true})
	}

	all.Wait()
	s.AwaitExported()
	s.compare(Scope{From: s.today, To: s.today, Fix: true})
	s.requireEqual()
	s.Want("orders", "count() FROM "+s.Database+".orders", fmt.Sprint(made))
}
