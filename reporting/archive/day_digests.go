package archive

import (
	"context"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"
)

// orderDigest is the SHA-256 of what an order says, without names, which are as they were when the row
// was exported. Each value stands behind its length, so that no two rows look alike.
const orderDigest = `SHA256(arrayStringConcat(arrayMap(x -> concat(toString(length(x)), ':', x), [
	toString(account_id), toString(business_day), toString(order_id), toString(version), external_order_id, toString(external_store_id),
	toString(fleet_id), toString(status), toString(failure_reason), toString(cancel_reason), toString(toUnixTimestamp64Milli(created_at)),
	ifNull(toString(toUnixTimestamp64Milli(picked_up_at)), ''), ifNull(toString(toUnixTimestamp64Milli(delivered_at)), ''),
	ifNull(toString(toUnixTimestamp64Milli(ended_at)), ''), toString(payment_type),
	ifNull(toString(toInt64(order_amount * 100)), ''), ifNull(toString(toInt64(collection_amount * 100)), ''), toString(toUInt8(without_courier))])))`

// DayDigests returns a digest of each local day's orders, from the day from to the day to, both
// included. The keys are midnights in delivery.Istanbul; a day without orders has no key. A digest is
// the number of orders and the sum of their SHA-256, in four numbers of 64 bits, so that nothing has to
// be sorted.
func (a *Archive) DayDigests(ctx context.Context, from, to time.Time) (map[time.Time]string, error) {
	const sum = `hex(sum(reinterpretAsUInt64(substring(digest, `
	const query = `SELECT business_day, concat(toString(count()), ':', ` + sum + `1, 8)))), ` + sum + `9, 8)))), ` + sum + `17, 8)))), ` + sum + `25, 8)))))
FROM (SELECT business_day, ` + orderDigest + ` AS digest FROM orders FINAL WHERE business_day BETWEEN {from:Date} AND {to:Date})
GROUP BY business_day ORDER BY business_day` + closingSettings

	digests := map[time.Time]string{}
	err := a.Each(ctx, query, func(rows driver.Rows) error {
		var day time.Time
		var digest string
		if err := rows.Scan(&day, &digest); err != nil {
			return err
		}
		digests[readPlace(uuid.Nil, day, uuid.Nil).Day] = digest
		return nil
	}, clickhouse.Named("from", dateOf(from)), clickhouse.Named("to", dateOf(to)))
	return digests, err
}
