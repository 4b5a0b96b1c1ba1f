// Package reconcile proves that ClickHouse says what Redis says: order by order,
// event by event, and in the sums that the reports show.
//
// It owns what is compared and what counts as a difference. An order that Redis
// holds must have its row and its events, value by value; a row without an order
// must be that of one which Redis has retired. What the exporter has not reached
// yet is no difference: whatever looks different is looked at again once
// everything that was there at the first look has been exported. Then the sums
// of each day are calculated from what Redis holds, and compared with the
// control totals, which must tie.
//
// A repair removes the rows that are wrong and exports the orders anew.
//
// It refuses to touch what has left Redis: of that, ClickHouse is the record,
// which is judged by itself. It does not compare what Redis keeps for a day or not
// at all: late deliveries, outcomes of webhooks, and the name and tax number that
// a store had when an order was exported.
package reconcile
