// Package closing closes months: what was paid stays what it was, and what is found out later is
// booked as a correction in the month that is open (reporting/CLOSING.md).
//
// What was decided is a log in Redis (ledger.Closings): holds, releases, closings and corrections.
// Each entry is a manifest with the SHA-256 of the one before, its seal; two processes that decide
// at once write the same number, and one of them loses. Rows in ClickHouse are stored under a
// batch of their own, read back, and count once an entry names the batch. The log is copied to
// ClickHouse for reports, and from there to a Redis that was restored from an older backup.
package closing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/reports"
)

// The kinds of entries.
const (
	KindHold       = "hold"
	KindRelease    = "release"
	KindClose      = "close"
	KindCorrection = "correction"
)

// Manifest is an entry of the log. Its JSON, as it was stored, is what the seal is of.
type Manifest struct {
	Format   int       `json:"format"` // 1
	Sequence int       `json:"sequence"`
	Previous string    `json:"previous"` // the seal of the entry before; empty: this is the first
	Kind     string    `json:"kind"`
	Month    Month     `json:"month"` // that it is about; of a correction: in which it is booked
	At       time.Time `json:"at"`
	By       string    `json:"by"` // a user of the panel; of a correction that needed nobody: "reporting"
	Note     string    `json:"note,omitempty"`

	Checklist []Check              `json:"checklist,omitempty"` // of a hold
	Batch     uuid.UUID            `json:"batch,omitzero"`      // of a closing or a correction
	Digest    archive.Digest       `json:"digest,omitzero"`     // of the batch's rows; of a hold: of those that closing will freeze
	Control   []reports.StoredLine `json:"control,omitempty"`   // of a closing: the month's control totals, with the digests of its reports

	Posted      string       `json:"posted,omitempty"` // of a correction: the day on which it is booked
	Corrections []Correction `json:"corrections,omitempty"`
}

// Correction is an order of a closed month in a manifest. Amounts are in kuruş.
type Correction struct {
	Order    delivery.OrderID   `json:"order"`
	Account  delivery.AccountID `json:"account"`
	Month    Month              `json:"month"` // that was closed
	Cause    string             `json:"cause"`
	From     string             `json:"from,omitempty"` // its status before; empty: it was not there
	To       string             `json:"to,omitempty"`   // empty: it is not there any more
	Expected int64              `json:"expected"`       // what the correction adds to the expected collections
	// ReportedAt is when a late delivery was reported, in milliseconds since 1970.
	ReportedAt int64 `json:"reportedAt,omitempty"`
	// PossiblyCollected is the amount that a courier may have collected on a late delivery. It is in no sum.
	PossiblyCollected int64 `json:"possiblyCollected,omitempty"`
}

// Entry is a manifest with its seal.
type Entry struct {
	Manifest
	Seal string // SHA-256 of JSON
	JSON string
}

func parse(text string) (e Entry, err error) {
	if err = json.Unmarshal([]byte(text), &e.Manifest); err == nil && e.Format != format {
		err = fmt.Errorf("its format is %d, this program knows %d", e.Format, format)
	}
	sum := sha256.Sum256([]byte(text))
	e.Seal, e.JSON = hex.EncodeToString(sum[:]), text
	return e, err
}

const format = 1

// Month is its first day at +03:00; in text 2026-10.
type Month struct{ time.Time }

const monthLayout = "2006-01"

// MonthOf is the month of a time.
func MonthOf(t time.Time) Month {
	y, m, _ := t.In(delivery.Istanbul).Date()
	return Month{time.Date(y, m, 1, 0, 0, 0, 0, delivery.Istanbul)}
}

// ParseMonth reads 2026-10.
func ParseMonth(text string) (Month, error) {
	t, err := time.ParseInLocation(monthLayout, text, delivery.Istanbul)
	if err != nil || t.Year() < 2000 || t.Year() > 2100 {
		return Month{}, fmt.Errorf("%q is not a month such as 2026-10", text)
	}
	return Month{t}, nil
}

// String is 2026-10.
func (m Month) String() string { return m.Format(monthLayout) }

// Name is October 2026.
func (m Month) Name() string { return m.Format("January 2006") }

// Next is the month behind it.
func (m Month) Next() Month { return Month{m.AddDate(0, 1, 0)} }

// LastDay is its last day's midnight.
func (m Month) LastDay() time.Time { return m.AddDate(0, 1, -1) }

// MarshalJSON takes the place of that of the time.
func (m Month) MarshalJSON() ([]byte, error) { return json.Marshal(m.String()) }

// UnmarshalJSON takes the place of that of the time.
func (m *Month) UnmarshalJSON(text []byte) (err error) {
	var s string
	if err = json.Unmarshal(text, &s); err == nil {
		*m, err = ParseMonth(s)
	}
	return err
}

// Log is all that was decided.
type Log struct {
	Entries []Entry
	Held    *Entry // of the month that is held; nil: none
	Last    *Entry // the latest closing; nil: none
}

// Head is the seal of the last entry; empty: there is none.
func (l *Log) Head() string {
	if len(l.Entries) == 0 {
		return ""
	}
	return l.Entries[len(l.Entries)-1].Seal
}

// Closed reports whether the month, or one behind it, was closed.
func (l *Log) Closed(m Month) bool { return l.Last != nil && !m.After(l.Last.Month.Time) }

// NextMonth is the one that is held or can be closed next: by default the one before now's.
func (l *Log) NextMonth(now time.Time) Month {
	switch {
	case l.Held != nil:
		return l.Held.Month
	case l.Last != nil:
		return l.Last.Month.Next()
	}
	return MonthOf(MonthOf(now).AddDate(0, 0, -1))
}

// State is what a month is, in words.
func (l *Log) State(m Month) string {
	if l.Held != nil && l.Held.Month == m {
		return fmt.Sprintf("held by %s since %s", l.Held.By, l.Held.At.Format("2 Jan 2006 15:04"))
	}
	if !l.Closed(m) {
		return "open"
	}
	if e := l.Closing(m); e != nil {
		return fmt.Sprintf("closed by %s on %s, seal %.12s", e.By, e.At.Format("2 Jan 2006 15:04"), e.Seal)
	}
	return "closed with the first closing"
}

// Closing is the entry that closed the month; nil: it is open, or was closed with the first one.
func (l *Log) Closing(m Month) *Entry {
	for i := range l.Entries {
		if e := &l.Entries[i]; e.Kind == KindClose && e.Month == m {
			return e
		}
	}
	return nil
}

// add checks that an entry may follow, and adds it.
func (l *Log) add(e Entry) error {
	switch {
	case e.Sequence != len(l.Entries)+1:
		return fmt.Errorf("entry %d says that it is number %d", len(l.Entries)+1, e.Sequence)
	case e.Previous != l.Head():
		return fmt.Errorf("entry %d (%s of %s) does not follow the seal of the one before: one of them was changed, or they were exchanged",
			e.Sequence, e.Kind, e.Month)
	}
	following := l.Last == nil || e.Month == l.Last.Month.Next()
	allowed := false
	switch e.Kind {
	case KindHold:
		allowed = l.Held == nil && following
	case KindRelease, KindClose:
		allowed = l.Held != nil && l.Held.Month == e.Month
	case KindCorrection:
		allowed = l.Last != nil && !l.Closed(e.Month)
	}
	if !allowed {
		return fmt.Errorf("entry %d: a %s of %s cannot follow", e.Sequence, e.Kind, e.Month)
	}
	l.Entries = append(l.Entries, e)
	switch e.Kind {
	case KindHold:
		l.Held = &e
	case KindRelease:
		l.Held = nil
	case KindClose:
		l.Held, l.Last = nil, &e
	}
	return nil
}

// Books are the months of one environment.
type Books struct {
	ledger  *ledger.Ledger
	archive *archive.Archive
	log     *slog.Logger
	now     func() time.Time  // Redis's, but in tests
	step    func(name string) // called after each step of a change; tests end the process there
}

// New prepares them.
func New(l *ledger.Ledger, a *archive.Archive, log *slog.Logger) *Books {
	now := func() time.Time { return l.Now() }
	return &Books{ledger: l, archive: a, log: log, now: now, step: func(string) {}}
}

// Now is the time by which months end: Redis's.
func (b *Books) Now() time.Time { return b.now() }

var (
	// ErrChanged says that somebody else has decided something in the meantime.
	ErrChanged = errors.New("somebody else has held, released, closed or corrected something in the meantime: look again")
	// ErrForked says that Redis and ClickHouse hold different logs.
	ErrForked = errors.New("the logs of closings in Redis and in ClickHouse contradict each other")
	// ErrRefused is a step that the state of a month does not allow.
	ErrRefused = errors.New("refused")
)

// Read reads the log. What Redis or ClickHouse lacks, because a process died in between or one of
// them was restored from an older backup, is copied from the other; rows of a batch that ClickHouse
// lacks are made again, and must be what was sealed.
func (b *Books) Read(ctx context.Context) (*Log, error) {
	texts, err := b.ledger.Closings.After(ctx, 0)
	if err != nil {
		return nil, err
	}
	copies, err := b.archive.Seals(ctx)
	if err != nil {
		return nil, err
	}
	l, copied := &Log{}, map[int]string{}
	for _, c := range copies {
		if text, twice := copied[c.Sequence]; twice && text != c.Manifest {
			return nil, fmt.Errorf("%w: entry %d", ErrForked, c.Sequence)
		}
		copied[c.Sequence] = c.Manifest
	}
	for i := 1; i <= len(texts) || copied[i] != ""; i++ {
		if i > len(texts) {
			text, err := b.ledger.Closings.Append(ctx, i, copied[i])
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
		}
		if copied[i] != "" && copied[i] != texts[i-1] {
			return nil, fmt.Errorf("%w: entry %d", ErrForked, i)
		}
		e, err := parse(texts[i-1])
		if err == nil {
			err = l.add(e)
		}
		if err == nil && copied[i] == "" {
			err = b.complete(ctx, &e)
		}
		if err != nil {
			return nil, fmt.Errorf("the log of closings: %w", err)
		}
	}
	return l, nil
}

// complete copies an entry to ClickHouse, once its rows are there. Rows are made again by one process at a time: once the
// entry is copied, nothing is open of which they could be made.
func (b *Books) complete(ctx context.Context, e *Entry) error {
	whole, err := b.whole(ctx, e)
	switch {
	case err != nil:
		return err
	case whole:
		return b.copyToArchive(ctx, e)
	}
	return b.ledger.Closings.Alone(ctx, func(ctx context.Context) error {
		copies, err := b.archive.Seals(ctx)
		if err != nil || slices.ContainsFunc(copies, func(c archive.Seal) bool { return c.Sequence == e.Sequence }) {
			return err
		}
		if err := b.restoreRows(ctx, e); err != nil {
			return err
		}
		return b.copyToArchive(ctx, e)
	})
}

// restoreRows makes the rows of a batch as they were made before it was sealed.
func (b *Books) restoreRows(ctx context.Context, e *Entry) (err error) {
	b.log.Warn("rows that were sealed are missing and are made again", "entry", e.Sequence, "kind", e.Kind, "month", e.Month.String())
	if err = b.archive.RemoveBatch(ctx, e.Batch); err == nil {
		if e.Kind == KindClose {
			err = b.archive.Freeze(ctx, e.Batch, e.Month.LastDay())
		} else {
			err = b.insertCorrections(ctx, e)
		}
	}
	if err == nil {
		err = b.archive.InsertDays(ctx, e.Batch)
	}
	if err != nil {
		return err
	}
	whole, err := b.whole(ctx, e)
	if err == nil && !whole {
		err = fmt.Errorf("entry %d (%s of %s): its rows are not in ClickHouse, and the orders there are not any more what was sealed: restore a backup of ClickHouse that has them, or run `reporting rebuild`",
			e.Sequence, e.Kind, e.Month)
	}
	return err
}

// whole reports whether the rows of an entry's batch, if it has one, are what was sealed.
func (b *Books) whole(ctx context.Context, e *Entry) (bool, error) {
	if e.Batch == uuid.Nil {
		return true, nil
	}
	d, err := b.archive.DigestBatch(ctx, e.Batch)
	if err != nil || d != e.Digest {
		return false, err
	}
	differing, err := b.archive.DaysDiffering(ctx, e.Batch)
	return len(differing) == 0, err
}

// copyToArchive makes an entry visible to reports. One that is copied much later was there before, and lost.
func (b *Books) copyToArchive(ctx context.Context, e *Entry) error {
	recorded := b.now()
	if recorded.Sub(e.At) > 24*time.Hour {
		recorded = e.At
	}
	return b.archive.InsertSeal(ctx, &archive.Seal{Sequence: e.Sequence, Kind: e.Kind, Month: e.Month.Time, Batch: e.Batch, At: e.At, RecordedAt: recorded,
		Manifest: e.JSON, Seal: e.Seal})
}

// append decides. After an error other than ErrChanged nobody knows whether it was decided: Read shows it.
func (b *Books) append(ctx context.Context, l *Log, m *Manifest) (*Entry, error) {
	m.Format, m.Sequence, m.Previous, m.At = format, len(l.Entries)+1, l.Head(), b.now().In(delivery.Istanbul).Truncate(time.Millisecond)
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	e, err := parse(string(text))
	if err == nil {
		err = l.add(e)
	}
	if err != nil {
		return nil, err
	}
	stored, err := b.ledger.Closings.Append(ctx, e.Sequence, e.JSON)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it is not known whether it was decided, `reporting month status` shows it: %w", err)
	case stored != e.JSON:
		return nil, ErrChanged
	}
	b.step("decided")
	err = b.copyToArchive(ctx, &e)
	b.step("copied")
	return &e, err
}
