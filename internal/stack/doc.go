// Package stack starts the whole system as child processes in the order in
// which they need each other (Redis, gateway, worker and, when asked for,
// ClickHouse and reporting), waits until each is ready, seeds a demo account and
// fleet, and stops everything in reverse. One piece of code stands behind
// `make run`, `make demo`, the system tests, benchmarks and faults.
//
// It owns the children: they listen on loopback, die with this process, and
// nothing else on the machine is ever signalled. It owns the data directory
// while it runs (a lock file says so).
//
// It refuses knowledge of what the programs do inside: it speaks to them over
// HTTP as anyone would, and to Redis only to ask whether it answers, so that
// go-redis stays in package ledger.
package stack
