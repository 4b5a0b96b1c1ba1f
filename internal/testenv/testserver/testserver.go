// Package testserver gives tests a redis-server and a ClickHouse.
//
// `make test` starts one of each for the whole run (package run beside this one)
// and hands their addresses to the test binaries by environment variables. In a
// single `go test` each binary starts what it needs and Main stops it. Either way a
// test gets a database of its own: NewRedis, and NewDatabase or NewMigratedDatabase of
// SharedClickHouse.
// Tests whose subject is a server's death, rights, clock or settings start one of
// their own: DedicatedRedis, DedicatedClickHouse.
package testserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/stack"
)

// What a run hands to its test binaries: the operator's URL of its Redis, the URL of its
// ClickHouse, the folder of its programs, and that of its pool of databases.
const (
	redisVariable      = "TESTSERVER_REDIS_URL"
	clickHouseVariable = "TESTSERVER_CLICKHOUSE_URL"
	programsVariable   = "TESTSERVER_PROGRAMS"
	databasesVariable  = "TESTSERVER_DATABASES"
)

// SeedVariable holds the seed of the gate's property tests, a positive number. A single `go test`
// without it takes 1.
const SeedVariable = "TESTSERVER_SEED"

// Start builds the programs, starts both servers, makes the pool of databases, and returns what a run hands to its test
// binaries. Stop ends them.
func Start() (env []string, err error) {
	for _, s := range []struct {
		variable string
		start    func() (string, error)
	}{
		{programsVariable, builtPrograms},
		{redisVariable, sharedRedis},
		{clickHouseVariable, sharedClickHouse},
		{databasesVariable, databasePool},
	} {
		value, failure := s.start()
		env, err = append(env, s.variable+"="+value), errors.Join(err, failure)
	}

	return env, err
}

// own is what this process started because nobody handed it one: a folder, and what is
// to be stopped before the folder goes.
var own = struct {
	dir   func() (string, error)
	mu    sync.Mutex
	stops []func() error
}{dir: sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "testserver-") })}

// shared is what a variable names, else what start makes in a folder of its own, once,
// with how it is stopped.
func shared(variable string, start func(dir string) (value string, stop func() error, err error)) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		if given := os.Getenv(variable); given != "" {
			return given, nil
		}

		dir, err := own.dir()
		if err != nil {
			return "", err
		}

		value, stop, err := start(filepath.Join(dir, variable))
		if err == nil {
			own.mu.Lock()
			defer own.mu.Unlock()
			own.stops = append(own.stops, stop)
		}

		return value, err
	})
}

// Main runs the tests of a package, stops the servers that this process started, and
// ends the process: func TestMain(m *testing.M) { testserver.Main(m) }
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for a TestMain that does more; it returns the exit code. In the gate the
// property tests (rapid) have the cases of the run's seed; -rapid.seed on the command
// line wins, and the long run draws others each time.
func Run(m *testing.M) int {
	if f := flag.Lookup("rapid.seed"); f != nil && !Long {
		_ = f.Value.Set(strconv.FormatUint(gateSeed(), 10)) // a number, so it cannot fail
	}

	code := m.Run()
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the servers of the tests:", err)
		code = max(code, 1)
	}
	return code
}

// Stop ends what this process has started. The error says, too, what Redis has denied to programs.
func Stop() (err error) {
	for _, stop := range own.stops {
		err = errors.Join(err, stop())
	}

	if len(own.stops) > 0 {
		dir, _ := own.dir() // something was started in it
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// Parallel lets n tests of this binary run at once unless -parallel says otherwise.
// It is for tests that mostly wait: by itself go test runs one for each core.
func Parallel(n int) {
	_ = flag.Set("test.parallel", strconv.Itoa(n)) // the flag is there, and n a number
}

// Seed is the run's in the gate and a random number in the long run. It is logged.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if !Long {
		seed = gateSeed()
	}
	t.Logf("seed %d", seed)
	return seed
}

// gateSeed returns the seed that the run hands to its test binaries, or 1.
func gateSeed() uint64 {
	seed, err := strconv.ParseUint(os.Getenv(SeedVariable), 10, 64)
	if err != nil || seed == 0 {
		return 1 // rapid takes 0 for "draw one"
	}
	return seed
}

// Timeout is how long Await waits. It is no expectation of how fast something is:
// a busy machine must not fail a test.
const Timeout = 2 * time.Minute

// Await polls until the condition holds and fails the test after Timeout. It asks less and less often, up to every
// 50 ms: many conditions ask Redis or ClickHouse, which have other tests to serve.
func Await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	const longestPause = 50 * time.Millisecond

	deadline := time.Now().Add(Timeout)
	pause := time.Millisecond
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("after %s still not: %s", Timeout, what)
		}
		time.Sleep(pause)
		pause = min(pause*3/2, longestPause)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var builtPrograms = shared(programsVariable, func(dir string) (string, func() error, error) {
	return dir, func() error { return nil }, stack.Build(context.Background(), dir)
})

// Programs is the folder with all programs of a system, which are built once for a
// run, or once by this process when nobody has.
func Programs(t testing.TB) string {
	t.Helper()
	dir, err := builtPrograms()
	must(t, err)
	return dir
}
