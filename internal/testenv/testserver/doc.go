// Package testserver gives tests a redis-server and a ClickHouse.
//
// `make test` starts one of each for the whole run (package run beside this one)
// and hands their addresses to the test binaries by environment variables. In a
// single `go test` each binary starts what it needs by itself and Main stops it.
// Either way a test gets a database of its own:
//
//	func TestMain(m *testing.M) { testserver.Main(m) }
//
//	r := testserver.NewRedis(t) // an empty database of the shared server
//	c := testserver.SharedClickHouse(t)
//	name := c.NewDatabase(t) // likewise, not created yet
//
// Tests whose subject is a server's death, rights, clock, configuration or
// functions start one of their own: DedicatedRedis, DedicatedClickHouse.
package testserver
