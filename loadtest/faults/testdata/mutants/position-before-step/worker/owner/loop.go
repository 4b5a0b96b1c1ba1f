package owner

import (
	"cmp"
	"context"
)

// decide first lets the position pass what it will decide.
func (l *loop) decide(ctx context.Context, writes []*write) {
	var early []*write
	for _, w := range writes {
		if w.inbox == nil {
			continue
		}
		step := l.role.ledger.Ownership.Step(w.Partition, w.Token)
		step.Token.Events = cmp.Or(w.inbox.Events, w.Token.Events)
		step.Token.Updates = cmp.Or(w.inbox.Updates, w.Token.Updates)
		early = append(early, &write{held: w.held, read: w.Read, step: step})
	}

	l.advance(ctx, early)
	l.decideOriginal(ctx, writes)
}
