// Package archive is finance's copy of the ledger in ClickHouse: one row per
// order and version, one per status reached, one per webhook attempt.
//
// It owns the schema (schema/NNNN_*.sql) and its migrations, the way rows go in
// so that a batch that is stored twice, late, or out of order changes nothing,
// and the reading and deleting that reconciliation needs. The same files serve
// a single server, the embedded engine and a cluster.
//
// It refuses to know where rows come from, what the reports are, and to judge
// who may read. It never trusts a clock: what makes a row the latest is the
// order's own version.
package archive
