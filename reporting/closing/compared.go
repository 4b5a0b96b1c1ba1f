package closing

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"vendorapi/reporting/archive"
	"vendorapi/reporting/reconcile"
)

// UncomparedDays are the days of a month, such as 2026-10-03, that do not count as compared with Redis, by
// what is wrong with them.
type UncomparedDays struct {
	Never     []string `json:"never,omitempty"`     // not compared as a whole after their end
	Differing []string `json:"differing,omitempty"` // with differences that are open
	Changed   []string `json:"changed,omitempty"`   // their orders are not any more those that were compared
}

// uncompared returns the days of a month that do not count as compared. rows are the digests of the month's days.
// With nil they are read here if a comparison needs them.
func (b *Books) uncompared(ctx context.Context, m Month, rows []archive.DayDigest) (UncomparedDays, error) {
	comparisons, err := reconcile.Comparisons(ctx, b.ledger, m.Time, m.LastDay())
	if err != nil {
		return UncomparedDays{}, err
	}

	wasCompared := slices.ContainsFunc(comparisons, func(c reconcile.Comparison) bool { return c.Clean != nil })
	if rows == nil && wasCompared {
		rows, err = b.archive.DigestRows(ctx, m.Time, m.LastDay())
		if err != nil {
			return UncomparedDays{}, err
		}
	}

	digests := map[string]archive.Digest{}
	for _, day := range rows {
		digests[day.Day] = day.Orders
	}

	hasLateDifferences, err := b.daysWithLateDifferences(ctx, m)
	if err != nil {
		return UncomparedDays{}, err
	}

	var found UncomparedDays
	day := m.Time
	for _, c := range comparisons {
		name := day.Format(time.DateOnly)
		switch {
		case c.Open != nil, hasLateDifferences[name]:
			found.Differing = append(found.Differing, name)
		case c.Clean == nil:
			found.Never = append(found.Never, name)
		case c.Clean.Digest != digests[name]:
			found.Changed = append(found.Changed, name)
		}

		day = day.AddDate(0, 0, 1)
	}

	return found, nil
}

// daysWithLateDifferences returns the days of a month, such as 2026-10-03, of which late deliveries are missing, or
// are there that nobody has reported; all days, if there are more than can be compared. They are compared now: a
// courier may report one long after the day.
func (b *Books) daysWithLateDifferences(ctx context.Context, m Month) (map[string]bool, error) {
	days := map[string]bool{}
	differences, err := reconcile.New(b.ledger, b.archive).LateDifferences(ctx, m.Time, m.LastDay())
	if errors.Is(err, archive.ErrManyLate) {
		for day := m.Time; !day.After(m.LastDay()); day = day.AddDate(0, 0, 1) {
			days[day.Format(time.DateOnly)] = true
		}
		return days, nil
	}

	if err != nil {
		return nil, err
	}

	for i := range differences {
		days[differences[i].Day.Format(time.DateOnly)] = true
	}

	return days, nil
}

// days returns all of them.
func (u *UncomparedDays) days() []string {
	var all []string
	all = append(all, u.Never...)
	all = append(all, u.Differing...)
	return append(all, u.Changed...)
}

// String names the days by their numbers; empty: every day counts.
func (u *UncomparedDays) String() string {
	var parts []string
	for _, part := range []struct {
		what string
		days []string
	}{{"not compared", u.Never}, {"with differences", u.Differing}, {"changed since", u.Changed}} {
		if len(part.days) > 0 {
			parts = append(parts, part.what+": "+strings.Join(dayNumbers(part.days), " "))
		}
	}

	return strings.Join(parts, "; ")
}

// dayNumbers returns 3 of 2026-10-03.
func dayNumbers(days []string) []string {
	numbers := make([]string, len(days))
	for i, day := range days {
		numbers[i] = strings.TrimPrefix(day[len("2026-10-"):], "0")
	}
	return numbers
}
