// Package stack starts the whole system as child processes in the order in which they
// need each other (Redis, gateway, worker and, when asked for, ClickHouse and
// reporting), waits until each is ready, seeds a demo account and fleet, and stops
// everything in reverse. `make run`, `make demo`, the system tests and the load tests
// use it. The children listen on loopback, die with this process, and nothing else on
// the machine is ever signalled.
package stack
