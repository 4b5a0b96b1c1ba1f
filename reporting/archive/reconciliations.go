package archive

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"vendorapi/internal/delivery"
)

// Reconciliation is a row of reconciliations: a comparison of Redis with
// ClickHouse that came to its end.
type Reconciliation struct {
	Account     delivery.AccountID // zero: all
	At          time.Time          // in milliseconds
	From, To    time.Time          // local days, both included
	Orders      int                // that Redis held
	Differences int                // orders that differ and were not repaired
	Totals      int                // sums of reports that do not balance
}

// NoteReconciliation stores it. The same one stored again changes nothing.
func (a *Archive) NoteReconciliation(ctx context.Context, r *Reconciliation) error {
	return a.exec(ctx, `INSERT INTO reconciliations (account_id, at, from_day, to_day, orders, differences, totals)
SELECT {account:UUID}, fromUnixTimestamp64Milli({at:Int64}), {from:Date}, {to:Date}, {orders:UInt64}, {differences:UInt64}, {totals:UInt64}`,
		clickhouse.Named("account", r.Account.String()), clickhouse.Named("at", r.At.UnixMilli()),
		clickhouse.Named("from", dateOf(r.From)), clickhouse.Named("to", dateOf(r.To)),
		clickhouse.Named("orders", r.Orders), clickhouse.Named("differences", r.Differences), clickhouse.Named("totals", r.Totals))
}

// LastReconciliation is the latest one of all accounts; nil: there was none.
func (a *Archive) LastReconciliation(ctx context.Context) (*Reconciliation, error) {
	rows, err := a.Select(ctx, `SELECT toUnixTimestamp64Milli(at), from_day, to_day, orders, differences, totals FROM reconciliations
WHERE account_id = toUUID('00000000-0000-0000-0000-000000000000') ORDER BY at DESC LIMIT 1`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err tells what went wrong
	var last *Reconciliation
	for rows.Next() {
		var at int64
		var orders, differences, totals uint64
		last = new(Reconciliation)
		if err := rows.Scan(&at, &last.From, &last.To, &orders, &differences, &totals); err != nil {
			return nil, a.fault(ctx, "reading reconciliations", err)
		}
		last.At, last.Orders, last.Differences, last.Totals = time.UnixMilli(at), int(orders), int(differences), int(totals)
	}
	return last, rows.Err()
}
