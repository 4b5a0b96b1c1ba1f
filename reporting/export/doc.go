// Package export carries the ledger's history to ClickHouse: orders, their
// events, deliveries reported too late, and what became of webhooks.
//
//	Redis streams e, v --group export--> turn: read orders, insert, acknowledge --> ClickHouse
//
// It owns when what is read, stored and acknowledged: an entry is acknowledged
// after its rows are stored, so a crash at any point repeats work and loses
// none; the tables make a repetition harmless (package archive). While
// ClickHouse is away, at most one read's entries are held, and the rest waits in
// the streams.
//
// It refuses to change anything: rows are what the ledger says at the time of
// the export, and an order's row always is that of its latest version.
//
// Any number of replicas may run it; the consumer group shares the entries.
package export
