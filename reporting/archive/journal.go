package archive

import (
	"context"
	"fmt"
	"reflect"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

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

// Journal returns the log of the books as ClickHouse has it, checked. The errors are
// journal.ErrNoKeys and a *ForeignRowsError, beside those of reading. Whether it is all of the log
// only the head in Redis can say (package closing).
func (a *Archive) Journal(ctx context.Context) ([]journal.Entry, error) {
	rows, err := a.JournalRows(ctx)
	if err != nil {
		return nil, err
	}
	chain, err := a.books.Follow(rows, nil)
	if err != nil {
		return nil, err
	}
	if len(chain.Foreign) > 0 {
		return nil, &ForeignRowsError{chain.Foreign}
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
	statement := fmt.Sprintf("DELETE FROM %s %s WHERE text = {text:String} AND key_id = {key:String} AND signature = {signature:String}",
		a.physical(journalTable), a.onCluster())
	return a.exec(ctx, statement, clickhouse.Named("text", e.Text), clickhouse.Named("key", e.KeyID), clickhouse.Named("signature", e.Signature))
}
