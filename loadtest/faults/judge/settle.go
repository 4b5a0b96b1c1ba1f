package judge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
)

// How often the system is looked at, and how often in a row it must be found at
// rest: what one look misses, on its way from one queue to another, the next
// finds.
const (
	lookEvery  = 250 * time.Millisecond
	restsInRow = 3
)

// Settle waits until the system is at rest: everything is consumed, nothing is
// pending or leased, nothing waits for a receiver that is well, and every order
// that a courier moves has ended. It tells so when that was found three times in
// a row; when ctx ends first, the error says what is left. A Redis that does not
// answer is waited for. progress hears a line each time what is left has changed;
// nil: nobody does.
func (s *Sources) Settle(ctx context.Context, progress func(string)) error {
	if progress == nil {
		progress = func(string) {}
	}
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	said, rests := "", 0
	for {
		left, err := s.left(ctx)
		if err != nil {
			left = []string{err.Error()}
		}
		if len(left) == 0 {
			if rests++; rests == restsInRow {
				return nil
			}
		} else {
			rests = 0
		}
		if line := strings.Join(left, ", "); line != said && line != "" {
			said = line
			progress(line)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the system has not settled, %s: %w", said, context.Cause(ctx))
		case <-ticks.C:
		}
	}
}

// left is what is not at rest, one text for each kind.
func (s *Sources) left(ctx context.Context) (left []string, err error) {
	groups, err := s.Ledger.Audit.GroupsLeft(ctx)
	if err != nil {
		return nil, err
	}
	entries := make(map[string]int64)
	for _, g := range groups {
		entries[string(g.Role)+" has yet to settle of "+g.Stream] += g.Unread + g.Pending
	}
	for what, n := range entries {
		left = append(left, fmt.Sprintf("%s: %d", what, n))
	}
	slices.Sort(left)
	waiting, err := s.webhooksLeft(ctx)
	if err != nil {
		return nil, err
	}
	if waiting > 0 {
		left = append(left, fmt.Sprintf("webhooks to receivers that are well: %d", waiting))
	}
	moving, err := s.moving(ctx)
	if err != nil {
		return nil, err
	}
	if moving > 0 {
		left = append(left, fmt.Sprintf("orders that have not ended: %d", moving))
	}
	return left, nil
}

func (s *Sources) webhooksLeft(ctx context.Context) (n int, err error) {
	webhooks, err := s.Ledger.Audit.WebhooksLeft(ctx)
	if err != nil {
		return 0, err
	}
	for _, w := range webhooks {
		i := slices.IndexFunc(s.Accounts, func(a Account) bool { return a.ID == w.Account.String() })
		if i >= 0 && s.Accounts[i].Receiver != Dead {
			n += len(w.Queued) + len(w.Waiting) + len(w.Leased)
		}
	}
	return n, nil
}

// moving counts the orders that a courier has yet to end. It goes by the timers,
// of which each such order has one.
func (s *Sources) moving(ctx context.Context) (n int64, err error) {
	couriers := func(a Account) bool { return a.Couriers }
	if !slices.ContainsFunc(s.Accounts, couriers) {
		return 0, nil
	}
	stats, err := s.Ledger.Monitor.Stats(ctx)
	if err != nil || stats.InFlight == 0 {
		return 0, err
	}
	// Somebody's orders are in flight; whose, only the orders tell.
	err = s.Ledger.Orders.Each(ctx, func(orders []*delivery.Order) error {
		for _, o := range orders {
			i := slices.IndexFunc(s.Accounts, func(a Account) bool { return a.Couriers && a.ID == o.Account.String() })
			if i >= 0 && !o.Status.Terminal() {
				n++
			}
		}
		return nil
	})
	return n, err
}
