package ledger

import (
	"context"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/failpoint/point"
)

// Calls of scripts carry the marks of failpoints, and no script notices: an argument behind the last
// one is not read, and a command of a step may read a key that never exists.

func (l *Orders) prepareCreation(r partition, c *Creation) {
	l.prepareCreationOriginal(r, c)
	c.call.value(append(c.call.buf, point.CreateOrder.Mark()...))
}

func (l *Orders) cancel(ctx context.Context, r partition, account delivery.AccountID, id delivery.OrderID, change *delivery.Change, nonce uint64) (countingReply, error) {
	return l.cancelOriginal(point.In(ctx, point.CancelOrder), r, account, id, change, nonce)
}

func (l *Orders) Report(ctx context.Context, u delivery.Update, now time.Time) (delivery.Status, error) {
	return l.ReportOriginal(point.In(ctx, point.Report), u, now)
}

func (l *core) run(ctx context.Context, file string, keys []string, args ...any) (reply any, err error) {
	p := point.Of(ctx)
	if p != "" {
		args = append(args, p.Mark())
	}
	return l.runOriginal(ctx, file, keys, args...)
}

func (s *Step) Schedule(account delivery.AccountID, spill bool, events []Scheduled) {
	if spill && len(events) > 0 {
		s.command("GET", s.partition.prefix+point.Spill.Mark())
	}
	s.ScheduleOriginal(account, spill, events)
}

func (s *Step) call() call {
	s.command("GET", s.partition.prefix+point.Step.Mark())
	if len(s.changes)+len(s.adds) > 0 {
		s.command("GET", s.partition.prefix+point.ChangeOrders.Mark())
	}
	return s.callOriginal()
}
