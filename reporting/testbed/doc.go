// Package testbed starts the embedded ClickHouse for tests: the real engine
// (package engine) in a child process, which is the test's own binary, started
// again.
//
// It owns the child's life: it begins on a free loopback port with a folder of
// its own, can be killed and started again on the same two, and ends with the
// test or, should the test's process be killed, by itself. It refuses to know
// what is stored.
package testbed
