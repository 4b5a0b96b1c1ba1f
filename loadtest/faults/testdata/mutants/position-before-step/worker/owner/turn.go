package owner

import (
	"cmp"
	"context"
)

// decide first lets the position pass what it will decide.
func (l *loop) decide(ctx context.Context, turns []*turn) {
	var early []*turn
	for _, t := range turns {
		if t.inbox == nil {
			continue
		}
		p := t.partition
		first := p.beginTurn(nil)
		first.makePlan(l.role, l.role.Now())
		first.step.Token.Events = cmp.Or(t.inbox.Events, p.Token.Events)
		first.step.Token.Updates = cmp.Or(t.inbox.Updates, p.Token.Updates)
		early = append(early, first)
	}

	l.write(ctx, early)
	l.decideOriginal(ctx, turns)
}
