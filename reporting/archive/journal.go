package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
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

const (
	// rowOfJournal is Entry.Digest of a row.
	rowOfJournal = "lower(hex(SHA256(concat(SHA256(text), SHA256(toString(key_id)), SHA256(signature)))))"

	// shortValue is longer than the name of any key, and than any signature.
	shortValue = 100

	// journalRowsAtOnce bounds what is in memory of rows with texts of journal.MaxText each: 128 MB.
	journalRowsAtOnce = 256
)

// JournalRows reads all rows of the journal. It needs little memory, whatever somebody else has written
// into the table: of a row that is longer than an entry can be only the beginnings are read.
func (a *Archive) JournalRows(ctx context.Context) (*journal.Rows, error) {
	query := fmt.Sprintf(`SELECT %s, if(length(text) <= %d, text, substring(text, 1, %d)),
	substring(toString(key_id), 1, %d), substring(signature, 1, %[4]d), length(text) + length(key_id) + length(signature), _block_number
FROM journal SETTINGS max_block_size = %[5]d, max_threads = 1`,
		rowOfJournal, journal.MaxText, journal.BeginningSize, shortValue, journalRowsAtOnce)

	all := a.books.NewRows()
	err := a.Each(ctx, query, func(rows driver.Rows) error {
		var row journal.Row
		if err := rows.Scan(&row.Digest, &row.Text, &row.KeyID, &row.Signature, &row.Size, &row.Block); err != nil {
			return err
		}
		all.Add(row)
		return nil
	})

	return all, err
}

// SumForeign counts the rows of the journal that are not those of a log, whose digests are given, and
// returns the SHA-256 of their digests in order, in hexadecimal. A row that is there twice counts twice.
// Without any such row the sum is empty.
func (a *Archive) SumForeign(ctx context.Context, log []string) (count int, sum string, err error) {
	isOfLog := setOf(log)
	all := sha256.New()
	err = a.Each(ctx, "SELECT "+rowOfJournal+" AS digest FROM journal ORDER BY digest SETTINGS max_threads = 1, max_bytes_before_external_sort = 268435456",
		func(rows driver.Rows) error {
			var digest string
			if err := rows.Scan(&digest); err != nil {
				return err
			}

			if !isOfLog[digest] {
				count++
				all.Write([]byte(digest))
			}
			return nil
		})

	if count > 0 {
		sum = hex.EncodeToString(all.Sum(nil))
	}

	return count, sum, err
}

// ForeignRowsError reports that there are rows among those of the journal that do not belong to it.
type ForeignRowsError struct{ Rows journal.ForeignRows }

// Error says how many rows there are, and what is wrong with the first.
func (e *ForeignRowsError) Error() string {
	return fmt.Sprintf("the log of the books (`reporting month status` shows it): %s", e.Rows.String())
}

// errBooksNotWhole is what people see of a *journal.MissingError and a *ForeignRowsError.
var errBooksNotWhole = delivery.Refuse(delivery.CodeServiceUnavailable, "booked figures cannot be shown: the log of the books has rows that do not belong to it, or lacks entries. "+
	"The page Months and `reporting month status` name them. basis=known still works")

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

// Journal returns the log of the books as ClickHouse has it, which must not be changed, checked: up to the head, if UseHead was
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

	last := a.verified.Load()
	isUnchanged, err := a.isUnchanged(ctx, last, head)
	if err != nil {
		return nil, err
	}

	if isUnchanged {
		return last.entries, nil
	}

	rows, err := a.JournalRows(ctx)
	if err != nil {
		return nil, err
	}

	chain, err := rows.Follow(head)
	_, isMissing := errors.AsType[*journal.MissingError](err)
	if isMissing {
		return nil, fmt.Errorf("%w (%w)", errBooksNotWhole, err)
	}
	if err != nil {
		return nil, fmt.Errorf("the log of the books: %w", err)
	}

	if !chain.Foreign.AreNone() {
		return nil, fmt.Errorf("%w (%w)", errBooksNotWhole, &ForeignRowsError{chain.Foreign})
	}
	if chain.Unstored {
		return nil, fmt.Errorf("%w: an entry of the books' log is being stored", delivery.ErrUnavailable)
	}

	a.verified.Store(&verifiedLog{head: digestOf(head), rows: setOf(chain.Rows), entries: chain.Entries})

	return chain.Entries, nil
}

// verifiedLog is a log that was verified, with the head and the rows that it was found from. While both
// are the same, it need not be verified again: 500 entries take 50 ms.
type verifiedLog struct {
	head    string          // the digest of the head; empty: there was none
	rows    map[string]bool // the digests of all rows of the table
	entries []journal.Entry
}

func digestOf(head *journal.Entry) string {
	if head == nil {
		return ""
	}
	return head.Digest()
}

func setOf(all []string) map[string]bool {
	set := map[string]bool{}
	for _, one := range all {
		set[one] = true
	}
	return set
}

// isUnchanged reports whether the table has just the rows, and Redis the head, of a log that was verified.
func (a *Archive) isUnchanged(ctx context.Context, last *verifiedLog, head *journal.Entry) (bool, error) {
	if last == nil || last.head != digestOf(head) {
		return false, nil
	}

	found, isOther := 0, false
	query := fmt.Sprintf("SELECT DISTINCT %s FROM journal LIMIT %d", rowOfJournal, len(last.rows)+1)
	err := a.Each(ctx, query, func(rows driver.Rows) error {
		var digest string
		err := rows.Scan(&digest)
		found++
		isOther = isOther || !last.rows[digest]
		return err
	})

	return !isOther && found == len(last.rows), err
}

// InsertEntry stores an entry of the journal. Stored twice, it counts once.
func (a *Archive) InsertEntry(ctx context.Context, e *journal.Entry) error {
	columns, err := journalTable.values(reflect.ValueOf([]journalRow{{Text: e.Text, KeyID: e.KeyID, Signature: e.Signature}}))
	if err != nil {
		return err
	}
	return a.insertRows(ctx, journalTable, columns, false)
}

// RemoveRows removes the rows of the journal that are not those of a log and were brought by the INSERT
// with the number upTo, or by one before it (journal.Row.Block). What was inserted later stays.
//
// It is one statement, which has the digests of the log's rows: its size does not depend on what it
// removes.
func (a *Archive) RemoveRows(ctx context.Context, log []string, upTo uint64) error {
	if len(log) == 0 {
		return errors.New("clickhouse: rows are removed from the journal only beside entries that stay")
	}

	statement := fmt.Sprintf("DELETE FROM %s %s WHERE _block_number <= %d AND %s NOT IN ('%s')",
		a.physical(journalTable), a.onCluster(), upTo, rowOfJournal, strings.Join(log, "', '"))
	settings := clickhouse.Settings{"lightweight_deletes_sync": 2, "max_query_size": len(statement) + maxQuerySize, "max_ast_elements": maxElements}
	return a.exec(clickhouse.Context(ctx, clickhouse.WithSettings(settings)), statement)
}
