package closing

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
	"vendorapi/reporting/deliver"
)

// maxComparing bounds how long a night compares what targets have of one month: a target must not hold up the nights.
const maxComparing = 10 * time.Minute

// MonthsToVerify returns the closed months that a night verifies: the one that was verified longest ago, and behind it
// those whose last verification found something, so that the number of findings stays true.
func (b *Books) MonthsToVerify(ctx context.Context) ([]Month, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	_, r, err := b.readReview(ctx)
	if err != nil {
		return nil, err
	}

	months := l.months()
	if len(months) == 0 {
		return nil, nil
	}

	inTurn := nextToVerify(months, r.Verified, b.now())
	due := []Month{inTurn}
	for _, m := range months {
		hasFindings := r.Verified[m.String()].Findings > 0
		if hasFindings && m != inTurn {
			due = append(due, m)
		}
	}

	return due, nil
}

// VerifyMonth verifies a month and its files at the targets, and stores how many findings there were. Of a month before
// the first closing, what was booked later is verified. If something cannot be verified, such as a target that does
// not answer, the rest is; the number of findings is then not lowered.
func (b *Books) VerifyMonth(ctx context.Context, month Month, targets []*deliver.Target) ([]string, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}

	v := &Verified{}
	failed := b.verifyMonth(ctx, v, l, month)

	comparing, cancel := context.WithTimeout(ctx, maxComparing)
	defer cancel()
	isOfMonth := func(e *Entry) bool { return e.concerns(month) }
	delivered, err := b.checkDelivered(comparing, targets, isOfMonth)
	failed = errors.Join(failed, err)
	v.Findings = append(v.Findings, delivered.wrong...)

	err = b.updateReview(ctx, func(r *review) {
		noted := r.Verified[month.String()]
		noted.Tried = b.now()
		if failed == nil {
			noted.At = noted.Tried
			noted.Findings = len(v.Findings)
		} else {
			noted.Findings = max(noted.Findings, len(v.Findings))
		}

		r.Verified[month.String()] = noted
	})

	return v.Findings, errors.Join(failed, err)
}

// months returns the months that were closed, or of which something was booked later, in their order.
func (l *Log) months() []Month {
	var months []Month
	for i := range l.Entries {
		e := &l.Entries[i]
		if e.Kind == KindClose {
			months = append(months, e.Month)
		}
		for _, c := range e.Corrections {
			months = append(months, c.Month)
		}
	}

	slices.SortFunc(months, func(a, b Month) int { return a.Compare(b.Time) })

	return slices.Compact(months)
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

// nextToVerify returns the month for which it was tried longest ago. There must be one. What was noted of the future,
// while a clock was wrong, counts as nothing.
func nextToVerify(months []Month, all map[string]verification, now time.Time) Month {
	triedAt := func(m Month) time.Time {
		at := all[m.String()].Tried
		if at.After(now) {
			return time.Time{}
		}
		return at
	}

	next := months[0]
	for _, m := range months {
		if triedAt(m).Before(triedAt(next)) {
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
		"What the last verification of each closed month found, and sets of files at targets that the log does not have.")
	verified := m.Gauge("reporting_books_verified_timestamp_seconds",
		"When the closed month was verified whose last verification is the oldest; 0: one never was, or no month is closed.")
	unexplained := m.Gauge("reporting_closed_orders_unexplained",
		"Orders of closed months that have changed in a way that a person has to decide on, at the last look.")
	completed := m.Gauge("reporting_closings_last_completed_timestamp_seconds",
		"When closed months were last compared with what is known now, and one of them verified; 0: they never were.")
	readable.Set(1)

	service.Repeat(ctx, b.log, watchEvery, "the books cannot be read", "the books can be read again", func(ctx context.Context) error {
		_, r, reviewErr := b.readReview(ctx)
		if reviewErr == nil {
			unexplained.Set(float64(len(r.Waiting)))
		}

		if reviewErr == nil && !r.Completed.IsZero() {
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
		if reviewErr != nil {
			return reviewErr
		}

		found, oldest := summarize(l, r, b.now())
		findings.Set(float64(found))
		verified.Set(oldest)

		return nil
	})
}

// summarize returns how many findings there are, of all months and of sets without an entry, and when the month was
// verified whose last verification is the oldest, in seconds since 1970; 0: one never was, or a clock was wrong.
func summarize(l *Log, r *review, now time.Time) (findings int, oldest float64) {
	findings = r.UnknownSets
	for i, m := range l.months() {
		last := r.Verified[m.String()]
		findings += last.Findings

		verifiedAt := float64(0)
		if !last.At.IsZero() && !last.At.After(now) {
			verifiedAt = float64(last.At.Unix())
		}

		if i == 0 || verifiedAt < oldest {
			oldest = verifiedAt
		}
	}

	return findings, oldest
}
