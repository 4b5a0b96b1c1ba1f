// Package closing closes months: what was paid stays what it was, and what is found out later is
// booked as a correction in the month that is open (reporting/CLOSING.md).
//
// What was decided is one log of signed entries (package journal) in ClickHouse; its last entry, the
// head, is in Redis as well, and decides who comes first. An entry is made in three steps:
//
//  1. Its rows are stored in ClickHouse under a batch of their own, and read back.
//  2. The head is moved to the new entry, if it is still the one that was read.
//  3. The entry is stored in ClickHouse, and its rows count.
//
// A crash after the first step leaves rows that never count. After the second, whoever reads next
// finds the whole entry in the head, and does the third step.
package closing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/operations"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/journal"
	"vendorapi/reporting/reports"
)

// Books are the months of one environment. They are safe for concurrent use, and for several
// processes at once.
type Books struct {
	ledger  *ledger.Ledger
	archive *archive.Archive
	keys    journal.Keys
	log     *slog.Logger

	// reports is everyReport, except in tests that are about something else.
	reports calculations

	// now returns Redis's time; tests replace it.
	now func() time.Time

	// step is called after each step of a change with its name; tests end the process there.
	step func(name string)
}

// New returns the books that are kept in a ledger and an archive. The keys sign what is decided,
// and check what was.
func New(l *ledger.Ledger, a *archive.Archive, keys journal.Keys, log *slog.Logger) *Books {
	return &Books{
		ledger:  l,
		archive: a,
		keys:    keys,
		log:     log,
		reports: everyReport,
		now:     func() time.Time { return l.Now() },
		step:    func(string) {},
	}
}

// calculations are what the books take from the reports.
type calculations struct {
	// balance reports whether the reports of a month balance, and how many rows its exceptions have.
	balance func(ctx context.Context, a *archive.Archive, month reports.Params) (balanced bool, exceptions int64, err error)

	// closeLines returns the control totals of a month with the digest of each report, as they are sealed.
	closeLines func(ctx context.Context, a *archive.Archive, month reports.Params) ([]reports.StoredLine, error)

	// daily are the reports of a day that are delivered.
	daily []*reports.Report
}

// everyReport has the reports that finance reads.
var everyReport = calculations{
	balance:    reports.Balance,
	closeLines: reports.CloseLines,
	daily:      reports.All()[:4],
}

// Now returns the time by which months end: Redis's.
func (b *Books) Now() time.Time { return b.now() }

// today returns the local day.
func (b *Books) today() time.Time { return archive.BusinessDay(b.now().In(delivery.Istanbul)) }

var (
	// ErrChanged reports that somebody else has decided something in the meantime.
	ErrChanged = errors.New("somebody else has held, released, closed or corrected something in the meantime: look again")

	// ErrBehind reports that ClickHouse has less than was decided: it was restored from an older
	// state, or entries or their rows were removed.
	ErrBehind = errors.New("ClickHouse has less than was decided: load a newer backup with `reporting restore --only-history`, " +
		"or give `reporting month recover` the delivered files")
)

// Read returns the log. It completes what a process that died has left: an entry that is in the head
// alone is stored, a head that is behind is moved forward, and rows that were set aside are removed.
//
// The error is ErrBehind when entries are missing. Rows that do not belong to the log are no error:
// they are Foreign.
func (b *Books) Read(ctx context.Context) (*Log, error) {
	l, chain, err := b.readAsIs(ctx)
	if err != nil {
		return nil, err
	}

	if chain.Unstored {
		if err := b.storeHead(ctx, l, chain); err != nil {
			return nil, err
		}
	}

	if err := b.moveHeadForward(ctx, l, chain); err != nil {
		return nil, err
	}

	b.removeSetAside(ctx, l)

	return l, nil
}

// readAsIs reads the log and changes nothing.
func (b *Books) readAsIs(ctx context.Context) (*Log, *journal.Chain, error) {
	// The head first: a row that is stored in between only looks like a head that is behind.
	head, err := b.ledger.Books.Head(ctx)
	if err != nil {
		return nil, nil, err
	}
	return b.follow(ctx, head)
}

// readWithoutHead reads the log from ClickHouse alone.
func (b *Books) readWithoutHead(ctx context.Context) (*Log, *journal.Chain, error) {
	return b.follow(ctx, "")
}

func (b *Books) follow(ctx context.Context, head string) (*Log, *journal.Chain, error) {
	rows, err := b.archive.JournalRows(ctx)
	if err != nil {
		return nil, nil, err
	}

	chain, err := rows.Follow(journal.ParseHead(head))
	missing, isMissing := errors.AsType[*journal.MissingError](err)
	if isMissing {
		err = fmt.Errorf("%w: %w", ErrBehind, missing)
	}

	if err != nil {
		return nil, nil, err
	}

	l := &Log{head: head, stored: chain.Rows, Foreign: chain.Foreign}
	for _, signed := range chain.Entries {
		e, err := parse(signed)
		if err != nil {
			return nil, nil, fmt.Errorf("the log of the books: %w", err)
		}
		if err := l.add(e); err != nil {
			return nil, nil, fmt.Errorf("the log of the books: %w", err)
		}
	}

	return l, chain, nil
}

// storeHead stores the row of the entry that is in the head alone, once its batch is whole.
func (b *Books) storeHead(ctx context.Context, l *Log, chain *journal.Chain) error {
	unstored := &l.Entries[len(l.Entries)-1-chain.Ahead]
	isWhole, err := b.isWhole(ctx, unstored)
	if err != nil {
		return err
	}

	if !isWhole {
		return fmt.Errorf("%w: the rows of entry %d (%s of %s)", ErrBehind, unstored.Sequence, unstored.Kind, unstored.Month)
	}

	b.log.Warn("an entry of the books' log is stored that a process has left unfinished", "entry", unstored.Sequence, "kind", unstored.Kind)

	return b.archive.InsertEntry(ctx, &unstored.signed)
}

// isWhole reports whether the rows of an entry's batch, if it has one, are what was sealed.
func (b *Books) isWhole(ctx context.Context, e *Entry) (bool, error) {
	if e.Batch == uuid.Nil {
		return true, nil
	}

	days, err := b.archive.DigestBatch(ctx, e.Batch, e.Digest.Rows)
	if err != nil || archive.Sum(days) != e.Digest {
		return false, err
	}

	differing, err := b.archive.DaysDiffering(ctx, e.Batch)

	return len(differing) == 0, err
}

// moveHeadForward moves a head that is behind the log: Redis was restored from an older state, or
// another process has just decided something. A head that is no entry stays until it is disputed.
func (b *Books) moveHeadForward(ctx context.Context, l *Log, chain *journal.Chain) error {
	headIsForeign := l.head != "" && chain.Ahead == len(chain.Entries)
	if chain.Ahead == 0 || headIsForeign {
		return nil
	}

	last := &l.Entries[len(l.Entries)-1]
	next := last.signed.Head()

	current, err := b.ledger.Books.Head(ctx)
	if err != nil {
		return err
	}

	hasMoved := current != l.head
	if hasMoved { // by another process: an entry that is appended to this reading is refused (ErrChanged)
		return nil
	}

	err = b.ledger.Books.MoveHead(ctx, l.head, next, time.Time{})
	if errors.Is(err, ledger.ErrConflict) {
		return nil
	}

	if err != nil {
		return err
	}

	b.log.Warn("the head of the books' log in Redis was behind, and was moved forward", "entries", chain.Ahead, "entry", last.Sequence)
	l.head = next

	return nil
}

// append signs m as the next entry of l, moves the head to it, and stores it: it is decided once the
// head is moved. It fills in m's Format, Sequence, Previous and At, and adds the entry to l, which must
// not be used again after an error.
//
// ErrChanged (somebody else was earlier), operations.ErrLate (it took too long), and errNotSigned:
// nothing was decided. An error together with an entry: it was decided, and the next Read stores it.
// Any other error: it is not known whether it was decided, and Read shows it.
func (b *Books) append(ctx context.Context, l *Log, m *Manifest) (*Entry, error) {
	decided := b.ledger.Now() // before At, so that ErrLate bounds At's age
	m.Format = format
	m.Sequence = len(l.Entries) + 1
	m.Previous = l.LastSeal()
	m.At = b.now().In(delivery.Istanbul).Truncate(time.Millisecond)
	if len(l.Entries) > 0 {
		m.At = later(m.At, l.Entries[len(l.Entries)-1].At) // another server's clock was ahead
	}

	before := l.head
	e, err := b.sign(l, m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotSigned, err)
	}

	head := e.signed.Head()
	err = b.ledger.Books.MoveHead(ctx, before, head, decided)
	switch {
	case errors.Is(err, ledger.ErrConflict):
		return nil, ErrChanged
	case errors.Is(err, operations.ErrLate):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("it is not known whether it was decided, `reporting month status` shows it: %w", err)
	}

	l.head = head
	b.step("decided")

	err = b.archive.InsertEntry(ctx, &e.signed)
	b.step("stored")

	return &e, err
}

// errNotSigned reports that an entry could not be made, so nothing was decided.
var errNotSigned = errors.New("the entry of the books cannot be made")

// sign signs m and adds it to l.
func (b *Books) sign(l *Log, m *Manifest) (Entry, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return Entry{}, err
	}
	signed, err := b.keys.Sign(string(text))
	if err != nil {
		return Entry{}, err
	}
	e, err := parse(signed)
	if err != nil {
		return Entry{}, err
	}

	return e, l.add(e)
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
