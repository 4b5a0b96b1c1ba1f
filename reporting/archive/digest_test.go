package archive

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// No column of a row can be changed without another digest of the row. What changes of an order's facts is a correction,
// and only names, and what is not known of every order, are no facts. Sums are compared in every column.
func TestDigests_CoverEveryColumn(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	database := one[string](t, a, "SELECT currentDatabase()")
	columnsOf := func(table string) (names []string) {
		query := "SELECT name FROM system.columns WHERE database = '" + database + "' AND table = '" + table + "' AND name != 'batch' ORDER BY position"
		noError(t, a.Each(t.Context(), query, func(rows driver.Rows) error {
			var name string
			err := rows.Scan(&name)
			names = append(names, name)
			return err
		}))
		return names
	}

	noError(t, a.exec(t.Context(), `INSERT INTO closed_orders (sign, external_order_id, ordered_at, picked_up_at, delivered_at, ended_at, order_amount, collection_amount, reported_at)
SELECT 1, 'x', at, at, at, at, 1, 1, at FROM (SELECT toDateTime64('2026-11-21 12:00:00', 3) AS at)`))
	var both, facts []string // columns whose change shows
	for _, column := range columnsOf("closed_orders") {
		other := one[string](t, a, `SELECT multiIf(type = 'UUID', 'generateUUIDv4()', type LIKE '%String%', 'concat(toString(COLUMN), ''x'')', type = 'Bool', 'NOT COLUMN',
	type LIKE '%DateTime%', 'assumeNotNull(COLUMN) + toIntervalMillisecond(1)', type LIKE '%Decimal%', 'assumeNotNull(COLUMN) + toDecimal64(''0.01'', 2)', 'COLUMN + 1')
FROM system.columns WHERE database = '`+database+`' AND table = 'closed_orders' AND name = '`+column+`'`)
		changed := "(SELECT * REPLACE (" + strings.ReplaceAll(other, "COLUMN", column) + " AS " + column + ") FROM closed_orders)"
		if one[bool](t, a, "SELECT toBool((SELECT "+rowDigest+" FROM closed_orders) != (SELECT "+rowDigest+" FROM "+changed+"))") {
			both = append(both, column)
		}

		if one[bool](t, a, "SELECT toBool((SELECT "+factsDigest+" FROM closed_orders) != (SELECT "+factsDigest+" FROM "+changed+"))") {
			facts = append(facts, column)
		}
	}

	if want := columnsOf("closed_orders"); !slices.Equal(both, want) {
		t.Errorf("digested are %q, want %q", both, want)
	}
	if want := strings.Fields("version external_order_id external_store_id fleet_id status failure_reason cancel_reason created_at " +
		"picked_up_at delivered_at ended_at payment_type order_amount collection_amount without_courier"); !slices.Equal(facts, want) {
		t.Errorf("facts are %q, want %q", facts, want)
	}

	if want := strings.Join(columnsOf("closed_days"), ", "); dayColumns != want {
		t.Errorf("sums that are compared are %q, want %q", dayColumns, want)
	}
}

// The digest of rows does not depend on their order, and on nothing else than the rows.
func TestDigestOf_IsThatOfASetOfRows(t *testing.T) {
	t.Parallel()

	var rows []RowDigest
	for i := range 1000 {
		rows = append(rows, sha256.Sum256(fmt.Append(nil, i)))
	}

	whole := DigestOf(rows)
	if whole.Rows != 1000 || whole.SHA256 == "" {
		t.Fatalf("%+v", whole)
	}

	reversed := make([]RowDigest, len(rows))
	for i, r := range rows {
		reversed[len(rows)-1-i] = r
	}

	if got := DigestOf(reversed); got != whole {
		t.Errorf("in another order it is %+v, was %+v", got, whole)
	}

	other := sha256.Sum256([]byte("another row"))
	for name, changed := range map[string][]RowDigest{
		"one less":  rows[1:],
		"one twice": append([]RowDigest{rows[0]}, rows...),
		"one other": append([]RowDigest{other}, rows[1:]...),
	} {
		if got := DigestOf(changed); got == whole {
			t.Errorf("%s: the digest is the same", name)
		}
	}

	if got := DigestOf(nil); got != (Digest{}) {
		t.Errorf("of no rows it is %+v", got)
	}
}

// Go and ClickHouse digest the same rows alike, also those whose own digests end with zeros.
func TestDigestOf_IsWhatClickHouseComputes(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	const rows = 2_000 // one in 256 ends with a zero
	noError(t, a.exec(t.Context(), fmt.Sprintf("INSERT INTO closed_orders (sign, external_order_id) SELECT 1, toString(number) FROM numbers(%d)", rows)))

	var digests []RowDigest
	endWithZero := 0
	noError(t, a.Each(t.Context(), "SELECT "+rowDigest+" FROM closed_orders", func(r driver.Rows) error {
		var text string
		err := r.Scan(&text)
		digest := RowDigest([]byte(text))
		if digest[sha256.Size-1] == 0 {
			endWithZero++
		}

		digests = append(digests, digest)
		return err
	}))

	if len(digests) != rows || endWithZero == 0 {
		t.Fatalf("%d rows, of which %d have a digest that ends with a zero", len(digests), endWithZero)
	}

	days, err := a.digestDays(t.Context(), "SELECT * FROM closed_orders")
	noError(t, err)

	if want := DigestOf(digests); len(days) != 1 || days[0].Orders != want {
		t.Errorf("ClickHouse says %+v, want %+v", days, want)
	}
}
