package closing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

// Verified is what Verify found.
type Verified struct {
	Findings []string // each a sentence; none: the books are what they were
	Pending  []string // what became known since and is not booked; the books are no less what they were
	Closings int
	Rows     int64 // frozen rows of all closings: orders and late deliveries
	Entries  int
	Head     string    // the seal of the last entry, which proves all before it
	At       time.Time // of the last entry

	unreadable bool // the log is not whole, or has foreign rows
}

// Verify calculates everything again: the chain of seals and their signatures; the rows of every batch and their
// sums; the reports of every closed month; and what is known now. It changes nothing and believes no stored sum. What
// was found before an error is returned with it.
func (b *Books) Verify(ctx context.Context, progress func(string)) (*Verified, error) {
	v := &Verified{}
	l, err := b.verifyLog(ctx, v)
	if err != nil {
		return nil, err
	}

	for i := range l.Entries {
		e := &l.Entries[i]
		if e.Batch == uuid.Nil {
			continue
		}

		progress(fmt.Sprintf("%s of %s, entry %d", e.Kind, e.Month, e.Sequence))
		if err := v.orFinding(ctx, e, b.verifyBatch(ctx, v, e)); err != nil {
			return v, err
		}
		if e.Kind != KindClose {
			continue
		}

		v.Closings++
		v.Rows += e.Digest.Rows
		if v.unreadable { // reports are not made from such books
			continue
		}
		if err := v.orFinding(ctx, e, b.verifyReports(ctx, v, e)); err != nil {
			return v, err
		}
	}

	return v, b.pending(ctx, l, v, progress)
}

// orFinding returns err if trying again may help. Any other error is a finding: a row that was added can make
// a calculation impossible.
func (v *Verified) orFinding(ctx context.Context, e *Entry, err error) error {
	mayPass := errors.Is(err, delivery.ErrUnavailable) || ctx.Err() != nil
	if err == nil || mayPass {
		return err
	}
	v.addFinding("%s of %s, entry %d cannot be verified: %v", e.Kind, e.Month, e.Sequence, err)
	return nil
}

// addFinding adds a sentence to Findings.
func (v *Verified) addFinding(form string, args ...any) {
	v.Findings = append(v.Findings, fmt.Sprintf(form, args...))
}

// verifyLog reads the log as it is. Entries that are missing are a finding, and the log is what is left before them.
func (b *Books) verifyLog(ctx context.Context, v *Verified) (*Log, error) {
	l, chain, err := b.readAsIs(ctx)
	if errors.Is(err, ErrBehind) {
		v.addFinding("%v", err)
		v.unreadable = true
		l, chain, err = b.readWithoutHead(ctx)
	}

	if err != nil {
		return nil, err
	}

	if chain.Unstored {
		v.addFinding("entry %d is only in Redis: a process has died, and the next reading stores it", len(l.Entries)-chain.Ahead)
	}

	v.unreadable = v.unreadable || chain.Unstored || !l.Foreign.AreNone()
	for _, text := range l.Foreign.Named() {
		v.addFinding("a row that does not belong to the log: %s", text)
	}

	if l.Disputed != nil {
		v.addFinding("%s disputes %d rows of the log, which nobody has set aside", l.Disputed.By, l.Disputed.Rows.Count)
	}

	v.Entries = len(l.Entries)
	if v.Entries > 0 {
		last := &l.Entries[v.Entries-1]
		v.Head, v.At = last.Seal, last.At
	}

	return l, nil
}

func (b *Books) verifyBatch(ctx context.Context, v *Verified, e *Entry) error {
	days, err := b.archive.DigestBatch(ctx, e.Batch, e.Digest.Rows)
	if err != nil {
		return err
	}

	digest := archive.Sum(days)
	if digest != e.Digest {
		v.addFinding("%s of %s, entry %d: %d rows with the digest %.12s were sealed, there are %d: rows were changed, removed or added%s",
			e.Kind, e.Month, e.Sequence, e.Digest.Rows, e.Digest.SHA256, digest.Rows, e.daysDiffering(days))
	}

	hasMoreRows := digest.Rows > e.Digest.Rows
	if hasMoreRows { // perhaps more than can be compared one by one
		return nil
	}

	if e.Kind == KindCorrection {
		if err := b.verifyCorrections(ctx, v, e); err != nil {
			return err
		}
	}

	differing, err := b.archive.DaysDiffering(ctx, e.Batch)
	for _, day := range differing {
		v.addFinding("%s of %s, entry %d: the sums of %s are not those of its rows", e.Kind, e.Month, e.Sequence, day)
	}

	return err
}

// verifyCorrections names the orders whose rows are not what the manifest says.
func (b *Books) verifyCorrections(ctx context.Context, v *Verified, e *Entry) error {
	rows, err := b.archive.ClosedRows(ctx, e.Batch)
	if err != nil {
		return err
	}

	for _, want := range e.Corrections {
		have := Correction{Account: want.Account, Order: want.Order, Cause: want.Cause, ReportedAt: want.ReportedAt}
		have.fillFrom(rows)
		if have.Month.IsZero() {
			v.addFinding("the correction of order %s of %s (%s, entry %d) is missing", want.Order, want.Month, want.Cause, e.Sequence)
		} else if have != want {
			v.addFinding("the correction of order %s of %s (%s, entry %d) was changed", want.Order, want.Month, want.Cause, e.Sequence)
		}
	}

	return nil
}

// verifyReports calculates the reports of a closed month, as they were booked, and compares sums and digests.
func (b *Books) verifyReports(ctx context.Context, v *Verified, e *Entry) error {
	count, err := b.archive.CountBatch(ctx, e.Batch)
	if err != nil {
		return err
	}

	if count > e.Digest.Rows { // perhaps so many that nobody would wait for the end
		v.addFinding("%s: its reports are not calculated, because there are more rows than were sealed", e.Month)
		return nil
	}

	control, err := b.reports.closeLines(ctx, b.archive, params(e.Month))
	if err != nil {
		return err
	}

	for i, have := range control {
		if i >= len(e.Control) {
			v.addFinding("%s: %s was not sealed", e.Month, have.Line)
			continue
		}

		sealed := &e.Control[i]
		if !hasFigures(have.Figures, sealed.Figures) {
			v.addFinding("%s: the sums of %s are not those that were sealed", e.Month, have.Line)
		}

		if have.SHA256 != sealed.SHA256 {
			v.addFinding("%s: the report %s is not the one that was sealed (SHA-256 %.12s, was %.12s)", e.Month, have.Line, have.SHA256, sealed.SHA256)
		}
	}

	if len(control) < len(e.Control) {
		v.addFinding("%s: %s was sealed and is not calculated any more", e.Month, e.Control[len(control)].Line)
	}

	return nil
}

// hasFigures reports whether figures are those that were sealed. There may be further ones since.
func hasFigures(now, sealed map[string]int64) bool {
	for key, figure := range sealed {
		n, exists := now[key]
		if !exists || n != figure {
			return false
		}
	}
	return true
}

// daysDiffering names, for people, the first days of a closing of which there are other rows than were sealed.
func (e *Entry) daysDiffering(days []archive.DayDigest) string {
	const named = 5
	var differing []string
	found := map[string]archive.DayDigest{}
	for _, day := range days {
		if day.Day == "" { // more rows than are digested
			return ""
		}
		found[day.Day] = day
	}

	for _, sealed := range e.Days {
		if found[sealed.Day] != sealed {
			differing = append(differing, sealed.Day)
		}
		delete(found, sealed.Day)
	}

	if e.Kind == KindClose {
		differing = append(differing, slices.Sorted(maps.Keys(found))...)
	}

	if len(differing) == 0 {
		return ""
	}

	return fmt.Sprintf(" (of %s)", strings.Join(differing[:min(len(differing), named)], ", "))
}

// pendingPerMonth bounds the orders, and the late deliveries, that are named of each month.
const pendingPerMonth = 20

// pending adds to v.Pending the orders whose row in the table orders is not what was booked, at most
// pendingPerMonth of each month. Beside a batch that was changed it says which.
func (b *Books) pending(ctx context.Context, l *Log, v *Verified, progress func(string)) error {
	parts, err := b.allParts(ctx, l)
	if err != nil {
		return err
	}

	for _, part := range parts {
		progress("what is known now of " + part.Name)
		all, err := b.archive.Differing(ctx, l.batches(), part, pendingPerMonth)
		if err != nil {
			return err
		}

		for i := range all {
			u := Unexplained{ClosedDifference: all[i], Why: causeOf(&all[i])}
			v.Pending = append(v.Pending, u.String())
		}

		late, err := b.archive.UnbookedLate(ctx, l.batches(), part, pendingPerMonth)
		if err != nil {
			return err
		}

		for _, d := range late {
			v.Pending = append(v.Pending, fmt.Sprintf("order %s of %s: a late delivery", d.Order, d.CreatedAt.Format(time.DateOnly)))
		}
	}

	return nil
}

// String is the result in one line.
func (v *Verified) String() string {
	if v.Entries == 0 && len(v.Findings) == 0 {
		return "nothing is decided yet"
	}

	text := fmt.Sprintf("the books are what they were: %d closings, %d rows, %d entries; the last seal is %s", v.Closings, v.Rows, v.Entries, v.Head)
	if len(v.Findings) > 0 {
		text = fmt.Sprintf("the books are NOT what they were: %d findings", len(v.Findings))
	}

	if len(v.Pending) > 0 {
		text += fmt.Sprintf("; %d orders are not booked as they are known now", len(v.Pending))
	}

	return text
}
