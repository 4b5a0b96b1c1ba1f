package closing

import (
	"context"
	"fmt"
	"strings"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/reporting/reports"
)

// Grace is how long after its end a month can be held at the earliest. An order lives for a shorter time, and
// a night's comparison takes less.
const Grace = 48 * time.Hour

// exportedWithin is how far the exporter may be behind.
const exportedWithin = time.Minute

// The keys of the checklist's lines.
const (
	CheckOver        = "over"
	CheckPrevious    = "previous"
	CheckExported    = "exported"
	CheckEnded       = "ended"
	CheckDeadLetters = "dead-letters"
	CheckBalanced    = "balanced"
	CheckCompared    = "compared"
	CheckExceptions  = "exceptions"
)

// Check is a line of a month's checklist.
type Check struct {
	Key    string `json:"key"`
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`

	// NeedsNote is set on a line that is not OK if somebody may hold the month all the same, and says
	// why in a note.
	NeedsNote bool `json:"needsNote,omitempty"`
}

// Checklist returns what has to be so before a month is held, and whether it is.
func (b *Books) Checklist(ctx context.Context, l *Log, m Month) ([]Check, error) {
	months, err := b.monthsToHold(ctx, l, m)
	if err != nil {
		return nil, err
	}

	toHold := make([]HeldMonth, len(months))
	for i, month := range months {
		uncompared, err := b.uncompared(ctx, month, nil)
		if err != nil {
			return nil, err
		}
		toHold[i] = HeldMonth{Month: month, Uncompared: uncompared}
	}

	return b.checklist(ctx, l, toHold)
}

// checklist returns the checklist for some months, of which the last is the one that a person holds.
func (b *Books) checklist(ctx context.Context, l *Log, months []HeldMonth) ([]Check, error) {
	m := months[len(months)-1].Month
	list := []Check{b.checkOver(m), checkPrevious(l, months)}

	exported, err := b.checkExported(ctx)
	if err != nil {
		return nil, err
	}
	ended, err := b.checkEnded(ctx, months[0].Month, m)
	if err != nil {
		return nil, err
	}
	deadLetters, err := b.checkDeadLetters(ctx)
	if err != nil {
		return nil, err
	}

	balanced, exceptions, err := b.checkReports(ctx, m)

	return append(list, exported, ended, deadLetters, checkCompared(months), balanced, exceptions), err
}

// withNote lets a line that is not OK be explained by a note.
func withNote(c Check) Check {
	c.NeedsNote = !c.OK
	return c
}

func (b *Books) checkOver(m Month) Check {
	from := m.Next().Add(Grace)
	return Check{
		Key: CheckOver, Name: "The month is over",
		OK:     !b.now().Before(from),
		Detail: "from " + from.Format("2 Jan 2006 15:04") + " on",
	}
}

func checkPrevious(l *Log, months []HeldMonth) Check {
	m := months[len(months)-1].Month
	c := Check{Key: CheckPrevious, Name: "The month before is closed"}
	switch {
	case l.Last == nil && len(months) == 1:
		c.OK = true
		c.Detail = "this is the first"
	case l.Last == nil:
		c.OK = true
		c.Detail = fmt.Sprintf("this is the first: with it, %d earlier months are closed, from %s on", len(months)-1, months[0].Month.Name())
	case l.Closed(m):
		c.Detail = m.Name() + " is closed already; the last closed month is " + l.Last.Month.Name()
	default:
		c.OK = m == l.Last.Month.Next()
		c.Detail = "the last one is " + l.Last.Month.Name()
	}

	return c
}

func (b *Books) checkExported(ctx context.Context) (Check, error) {
	lag, err := b.ledger.Streams.Lag(ctx, ledger.RoleExport)
	c := Check{
		Key: CheckExported, Name: "Everything is in ClickHouse",
		OK:     lag.Entries == 0 || b.now().Sub(lag.Oldest) < exportedWithin,
		Detail: fmt.Sprintf("%d entries wait for the exporter", lag.Entries),
	}

	if c.OK && lag.Entries > 0 {
		c.Detail += fmt.Sprintf(", for less than %.0f seconds", exportedWithin.Seconds())
	}

	return c, err
}

func (b *Books) checkEnded(ctx context.Context, from, to Month) (Check, error) {
	open, err := b.archive.OpenOrders(ctx, from.Time, to.LastDay())
	return Check{
		Key: CheckEnded, Name: "Every order has ended",
		OK:     open == 0,
		Detail: fmt.Sprintf("%d have not", open),
	}, err
}

func (b *Books) checkDeadLetters(ctx context.Context) (Check, error) {
	letters, err := b.ledger.Monitor.DeadLetters(ctx, 1)
	c := Check{Key: CheckDeadLetters, Name: "No dead letters", OK: len(letters) == 0, Detail: "none"}
	if !c.OK {
		c.Detail = "there are some: the panel lists them"
	}
	return withNote(c), err
}

// checkReports checks that the reports balance, and counts the rows of the exceptions.
func (b *Books) checkReports(ctx context.Context, m Month) (balanced, exceptions Check, err error) {
	isBalanced, rows, err := b.reports.balance(ctx, b.archive, params(m))

	balanced = Check{Key: CheckBalanced, Name: "The reports balance", OK: isBalanced, Detail: "all lines"}
	if !isBalanced {
		balanced.Detail = "see the control totals"
	}

	exceptions = withNote(Check{
		Key: CheckExceptions, Name: "Exceptions were looked at",
		OK:     rows == 0,
		Detail: fmt.Sprintf("%d rows", rows),
	})

	return balanced, exceptions, err
}

// checkCompared says which days of the last month do not count as compared with Redis, and of the months
// before how many.
func checkCompared(months []HeldMonth) Check {
	last := &months[len(months)-1]
	earlier := 0
	for i := range months[:len(months)-1] {
		earlier += len(months[i].Uncompared.days())
	}

	var flaws []string
	if earlier > 0 {
		flaws = append(flaws, fmt.Sprintf("before %s: %d days", last.Month.Name(), earlier))
	}

	if len(last.Uncompared.days()) > 0 {
		flaws = append(flaws, last.Uncompared.String())
	}

	return withNote(Check{
		Key: CheckCompared, Name: "Every day was compared with Redis",
		OK:     len(flaws) == 0,
		Detail: strings.Join(flaws, "; "),
	})
}

// params are those of a month's reports, as they are booked.
func params(m Month) reports.Params {
	return reports.Params{From: reports.DayOf(m.Time), To: reports.DayOf(m.LastDay()), Basis: reports.Booked}
}
