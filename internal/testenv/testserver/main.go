package testserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// Main runs the tests of a package, stops the servers that this process had to
// start, and ends the process.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for a TestMain that does more; it returns the exit code.
func Run(m *testing.M) int {
	fixSeed()
	code := m.Run()
	if err := stopOwn(); err != nil {
		fmt.Fprintln(os.Stderr, "the servers of the tests:", err)
		code = max(code, 1)
	}
	return code
}

// stopOwn also says what the programs' users were denied. A partial run of tests
// is held to the shipped rights like a whole one.
func stopOwn() (err error) {
	if server := own.server; server != nil {
		err = Denied(context.Background(), server)
		server.Stop()
	}
	if engine := ownClickHouse.engine; engine != nil && ownClickHouse.dir != "" {
		err = errors.Join(err, engine.Close())
	}
	for _, dir := range []string{own.dir, ownClickHouse.dir, ownPrograms.dir} {
		if dir != "" {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// Parallel lets n tests of this binary run at once unless -parallel says otherwise.
// It is for tests that mostly wait: by itself go test runs one for each core.
func Parallel(n int) {
	_ = flag.Set("test.parallel", strconv.Itoa(n)) // the flag is there, and n a number
}

// Environment is what a run hands to its test binaries: the servers' addresses and
// the folder of the programs.
func Environment(redisURL, clickHouseURL, programs string) []string {
	return []string{redisVariable + "=" + redisURL, clickHouseVariable + "=" + clickHouseURL, programsVariable + "=" + programs}
}
