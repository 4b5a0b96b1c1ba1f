package closing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
	"vendorapi/reporting/deliver"
)

// VerifyInTurn verifies the closed month whose last verification is the oldest, with what targets have of it,
// and notes what was found. The zero Month: none is closed. Of a month before the first closing, what was booked
// later is verified.
func (b *Books) VerifyInTurn(ctx context.Context, targets []*deliver.Target) (Month, []string, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return Month{}, nil, err
	}
	months, err := b.closedMonths(ctx, l)
	if err != nil {
		return Month{}, nil, err
	}
	_, r, err := b.readReview(ctx)
	if err != nil || len(months) == 0 {
		return Month{}, nil, err
	}

	month := nextToVerify(months, r.Verified, b.now())
	findings, err := b.verifyAndNote(ctx, l, month, targets)
	return month, findings, err
}

// VerifyFindings verifies again each month whose last verification found something, so that its number of findings
// stays true. A month that cannot be verified holds up no other one.
func (b *Books) VerifyFindings(ctx context.Context, targets []*deliver.Target) error {
	l, err := b.Read(ctx)
	if err != nil {
		return err
	}
	_, r, err := b.readReview(ctx)
	if err != nil {
		return err
	}

	var failed error
	for name, last := range r.Verified {
		if last.Findings == 0 {
			continue
		}
		month, err := ParseMonth(name)
		if err == nil {
			_, err = b.verifyAndNote(ctx, l, month, targets)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		}
	}
	return failed
}

// verifyAndNote verifies a month and its files at the targets, and stores how many findings there were. If a target
// does not answer it returns an error too, but stores the result: the month has had its turn. The numbers are then
// not lowered, because earlier findings can be at that target.
func (b *Books) verifyAndNote(ctx context.Context, l *Log, month Month, targets []*deliver.Target) ([]string, error) {
	v := &Verified{}
	if err := b.verifyMonth(ctx, v, l, month); err != nil {
		return nil, err
	}
	delivered, unknown, deliveryErr := b.checkDeliveredMonth(ctx, targets, month)
	v.Findings = append(v.Findings, delivered...)

	err := b.updateReview(ctx, func(r *review) {
		noted := verification{At: b.now(), Findings: len(v.Findings)}
		unknownSets := len(unknown)
		if deliveryErr != nil {
			noted.Findings = max(noted.Findings, r.Verified[month.String()].Findings)
			unknownSets = max(unknownSets, r.UnknownSets)
		}
		r.Verified[month.String()] = noted
		r.UnknownSets = unknownSets
	})
	return append(v.Findings, unknown...), errors.Join(deliveryErr, err)
}

// verifyMonth verifies what was booked of a month, and the reports that were closed.
func (b *Books) verifyMonth(ctx context.Context, v *Verified, l *Log, month Month) error {
	for _, e := range l.entriesOf(month) {
		if err := v.orFinding(ctx, e, b.verifyBatch(ctx, v, e)); err != nil {
			return err
		}
	}
	closing := l.Closing(month)
	if closing == nil {
		return nil
	}
	if !l.Foreign.AreNone() { // reports are not made beside foreign rows
		v.addFinding("%s: its reports cannot be verified while there are rows that do not belong to the log", month)
		return nil
	}
	return v.orFinding(ctx, closing, b.verifyReports(ctx, v, closing))
}

// entriesOf returns the closing of a month, and the corrections of its orders.
func (l *Log) entriesOf(m Month) []*Entry {
	var found []*Entry
	for i := range l.Entries {
		e := &l.Entries[i]
		if e.concerns(m) {
			found = append(found, e)
		}
	}
	return found
}

// concerns reports whether the entry is the closing of a month, or corrects orders of it.
func (e *Entry) concerns(m Month) bool {
	isClosing := e.Kind == KindClose && e.Month == m
	corrects := slices.ContainsFunc(e.Corrections, func(c Correction) bool { return c.Month == m })
	return isClosing || corrects
}

// nextToVerify returns the month that was verified longest ago. There must be one. A verification in the
// future was noted while a clock was wrong, and counts as none.
func nextToVerify(months []Month, all map[string]verification, now time.Time) Month {
	verifiedAt := func(m Month) time.Time {
		at := all[m.String()].At
		if at.After(now) {
			return time.Time{}
		}
		return at
	}

	next := months[0]
	for _, m := range months {
		if verifiedAt(m).Before(verifiedAt(next)) {
			next = m
		}
	}
	return next
}

// watchEvery is how often the log is read for Watch.
const watchEvery = time.Minute

// Watch shows, until ctx ends, whether the books can be read, and what the nightly work found, in whichever process.
func (b *Books) Watch(ctx context.Context, reg prometheus.Registerer) {
	m := service.NewMetrics(reg, nil)
	readable := m.Gauge("reporting_books_readable",
		"1: the log of the books can be read, and every row belongs to it; 0: nothing can be decided.")
	findings := m.Gauge("reporting_books_findings",
		"What the last verification of each closed month found: what is not any more what was sealed.")
	verified := m.Gauge("reporting_books_verified_timestamp_seconds",
		"When the closed month was verified whose last verification is the oldest; 0: one never was, or no month is closed.")
	unexplained := m.Gauge("reporting_closed_orders_unexplained",
		"Orders of closed months that have changed in a way that a person has to decide on, at the last look.")
	completed := m.Gauge("reporting_closings_last_completed_timestamp_seconds",
		"When closed months were last compared with what is known now, and one of them verified; 0: they never were.")
	readable.Set(1)

	service.Repeat(ctx, b.log, watchEvery, "the books cannot be read", "the books can be read again", func(ctx context.Context) error {
		_, r, err := b.readReview(ctx)
		if err != nil {
			return err
		}
		unexplained.Set(float64(len(r.Waiting)))
		if !r.Completed.IsZero() {
			completed.Set(float64(r.Completed.Unix()))
		}

		l, err := b.Read(ctx)
		if err == nil {
			err = l.requireSettled()
		}
		isAway := errors.Is(err, delivery.ErrUnavailable) || ctx.Err() != nil
		if isAway { // other alerts say so
			return err
		}
		if err != nil {
			readable.Set(0)
			return err
		}
		readable.Set(1)
		found, oldest := summarize(l, r, b.now())
		findings.Set(float64(found))
		verified.Set(oldest)
		return nil
	})
}

// summarize returns how many findings there are, of all months and of sets without an entry, and when the closed one was verified whose last
// verification is the oldest, in seconds since 1970.
func summarize(l *Log, r *review, now time.Time) (findings int, oldest float64) {
	var months []Month
	for i := range l.Entries {
		if l.Entries[i].Kind == KindClose {
			months = append(months, l.Entries[i].Month)
		}
	}
	if len(months) == 0 {
		return 0, 0
	}

	verifiedAt := r.Verified[nextToVerify(months, r.Verified, now).String()].At
	if !verifiedAt.IsZero() {
		oldest = float64(verifiedAt.Unix())
	}
	findings = r.UnknownSets
	for _, v := range r.Verified {
		findings += v.Findings
	}
	return findings, oldest
}
