package closing

import (
	"context"
	"fmt"
	"strings"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/reporting/reconcile"
	"vendorapi/reporting/reports"
)

// Grace is how long after its end a month can be held at the earliest: longer than an order lives and than a night's comparison takes.
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
	list := []Check{b.checkOver(m), checkPrevious(l, m)}
	for _, check := range []func(context.Context, Month) (Check, error){
		b.checkExported, b.checkEnded, b.checkDeadLetters, b.checkCompared,
	} {
		line, err := check(ctx, m)
		if err != nil {
			return nil, err
		}
		list = append(list, line)
	}

	balanced, exceptions, err := b.checkReports(ctx, m)
	return append(list, balanced, exceptions), err
}

// orNote makes a line one that a note can explain.
func orNote(c Check) Check {
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

func checkPrevious(l *Log, m Month) Check {
	c := Check{Key: CheckPrevious, Name: "The month before is closed"}
	switch {
	case l.Last == nil:
		c.OK = true
		c.Detail = "this is the first: everything before it is closed with it"
	case l.Closed(m):
		c.Detail = m.Name() + " was closed with " + l.Last.Month.Name()
	default:
		c.OK = m == l.Last.Month.Next()
		c.Detail = "the last one is " + l.Last.Month.Name()
	}
	return c
}

func (b *Books) checkExported(ctx context.Context, _ Month) (Check, error) {
	lag, err := b.ledger.Streams.Lag(ctx, ledger.RoleExport)
	return Check{
		Key: CheckExported, Name: "Everything is in ClickHouse",
		OK:     lag.Entries == 0 || b.now().Sub(lag.Oldest) < exportedWithin,
		Detail: fmt.Sprintf("%d entries wait for the exporter", lag.Entries),
	}, err
}

func (b *Books) checkEnded(ctx context.Context, m Month) (Check, error) {
	open, err := b.archive.OpenOrders(ctx, m.LastDay())
	return Check{
		Key: CheckEnded, Name: "Every order has ended",
		OK:     open == 0,
		Detail: fmt.Sprintf("%d have not", open),
	}, err
}

func (b *Books) checkDeadLetters(ctx context.Context, _ Month) (Check, error) {
	letters, err := b.ledger.Monitor.DeadLetters(ctx, 1)
	c := Check{Key: CheckDeadLetters, Name: "No dead letters", OK: len(letters) == 0, Detail: "none"}
	if !c.OK {
		c.Detail = "there are some: the panel lists them"
	}
	return orNote(c), err
}

// checkReports checks that the reports balance, and counts the rows of the exceptions.
func (b *Books) checkReports(ctx context.Context, m Month) (balanced, exceptions Check, err error) {
	isBalanced, rows, err := reports.Balance(ctx, b.archive, params(m))

	balanced = Check{Key: CheckBalanced, Name: "The reports balance", OK: isBalanced, Detail: "all lines"}
	if !isBalanced {
		balanced.Detail = "see the control totals"
	}
	exceptions = orNote(Check{
		Key: CheckExceptions, Name: "Exceptions were looked at",
		OK:     rows == 0,
		Detail: fmt.Sprintf("%d rows", rows),
	})
	return balanced, exceptions, err
}

// checkCompared names the days that were not compared with Redis after their end, those with open
// differences, and those whose orders have changed since they were compared.
func (b *Books) checkCompared(ctx context.Context, m Month) (Check, error) {
	comparisons, err := reconcile.Comparisons(ctx, b.ledger, m.Time, m.LastDay())
	if err != nil {
		return Check{}, err
	}
	digests, err := b.archive.DayDigests(ctx, m.Time, m.LastDay())
	if err != nil {
		return Check{}, err
	}

	var notCompared, differing, changed []string
	day := m.Time
	for _, c := range comparisons {
		number := day.Format("2")
		switch {
		case c.Open != nil:
			differing = append(differing, number)
		case c.Clean == nil:
			notCompared = append(notCompared, number)
		case c.Clean.Digest != digests[day]:
			changed = append(changed, number)
		}
		day = day.AddDate(0, 0, 1)
	}

	var found []string
	for _, part := range []struct {
		what string
		days []string
	}{{"not compared", notCompared}, {"with differences", differing}, {"changed since", changed}} {
		if len(part.days) > 0 {
			found = append(found, part.what+": "+strings.Join(part.days, " "))
		}
	}
	return orNote(Check{
		Key: CheckCompared, Name: "Every day was compared with Redis",
		OK:     len(found) == 0,
		Detail: strings.Join(found, "; "),
	}), nil
}

// params are those of a month's reports, as they are booked.
func params(m Month) reports.Params {
	return reports.Params{From: reports.DayOf(m.Time), To: reports.DayOf(m.LastDay()), Basis: reports.Booked}
}
