package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/journal"
)

// journalRow is a row of the table journal. Everything else that the table shows is calculated
// from the text when it is read, so that nothing can contradict it.
type journalRow struct {
	Text      string `ch:"text String"`
	KeyID     string `ch:"key_id String"`
	Signature string `ch:"signature String"`
}

// JournalRows lists all rows of the journal as they are, in no order, unchecked.
func (a *Archive) JournalRows(ctx context.Context) (all []journal.Entry, err error) {
	err = a.Each(ctx, "SELECT DISTINCT text, key_id, signature FROM journal", func(rows driver.Rows) error {
		var e journal.Entry
		if err := rows.Scan(&e.Text, &e.KeyID, &e.Signature); err != nil {
			return err
		}
		all = append(all, e)
		return nil
	})
	return all, err
}

// ForeignRowsError reports that there are rows among those of the journal that do not belong to it.
type ForeignRowsError struct{ Rows []journal.Foreign }

// Error says how many rows there are, and what is wrong with the first.
func (e *ForeignRowsError) Error() string {
	return fmt.Sprintf("the log of the books has %d rows that do not belong to it (`reporting month status` shows them); the first: %s", len(e.Rows), e.Rows[0].Why)
}

// UseHead lets Journal compare what ClickHouse has with the head of the log, which read returns as it
// stands in Redis. It is called before anything is asked of the archive.
func (a *Archive) UseHead(read func(context.Context) (string, error)) {
	a.head = &headReader{read: read}
}

// headReader reads the head of the log. Reports go on while Redis is away, with the head that was read
// last: entries can be missed only if they were decided since.
type headReader struct {
	read func(context.Context) (string, error)
	last atomic.Pointer[string]
}

func (h *headReader) get(ctx context.Context) (*journal.Entry, error) {
	text, err := h.read(ctx)
	if err == nil {
		h.last.Store(&text)
		return journal.ParseHead(text), nil
	}

	last := h.last.Load()
	switch {
	case !errors.Is(err, delivery.ErrUnavailable):
		return nil, err
	case last == nil:
		return nil, nil // no head is known
	}
	return journal.ParseHead(*last), nil
}

// Journal returns the log of the books as ClickHouse has it, checked: up to the head, if UseHead was
// called, so that entries that were removed from the end are noticed. The errors are journal.ErrNoKeys,
// a *journal.MissingError and a *ForeignRowsError, beside those of reading; delivery.ErrUnavailable also
// while an entry is being stored.
func (a *Archive) Journal(ctx context.Context) ([]journal.Entry, error) {
	var head *journal.Entry
	if a.head != nil {
		var err error
		head, err = a.head.get(ctx)
		if err != nil {
			return nil, err
		}
	}
	rows, err := a.JournalRows(ctx)
	if err != nil {
		return nil, err
	}

	chain, err := a.books.Follow(rows, head)
	if err != nil {
		return nil, fmt.Errorf("the log of the books: %w", err)
	}
	if len(chain.Foreign) > 0 {
		return nil, &ForeignRowsError{chain.Foreign}
	}
	if chain.Unstored {
		return nil, fmt.Errorf("%w: an entry of the books' log is being stored", delivery.ErrUnavailable)
	}
	return chain.Entries, nil
}

// InsertEntry stores an entry of the journal. Stored twice, it counts once.
func (a *Archive) InsertEntry(ctx context.Context, e *journal.Entry) error {
	columns, err := journalTable.values(reflect.ValueOf([]journalRow{{Text: e.Text, KeyID: e.KeyID, Signature: e.Signature}}))
	if err != nil {
		return err
	}
	return a.insertRows(ctx, journalTable, columns, false)
}

// RemoveEntry removes a row of the journal.
func (a *Archive) RemoveEntry(ctx context.Context, e *journal.Entry) error {
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"lightweight_deletes_sync": 2}))
	// By its digests: a parameter may stand in an address, which has a limit, and the text be long.
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	statement := fmt.Sprintf("DELETE FROM %s %s WHERE lower(hex(SHA256(text))) = '%s' AND lower(hex(SHA256(toString(key_id)))) = '%s' AND lower(hex(SHA256(signature))) = '%s'",
		a.physical(journalTable), a.onCluster(), digest(e.Text), digest(e.KeyID), digest(e.Signature))
	return a.exec(ctx, statement)
}
