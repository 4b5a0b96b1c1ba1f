// Package systemtest holds the tests of the whole: the programs as they are
// shipped, as processes, against a Redis of their own, through HTTP only.
//
// The gate has one scenario of a whole system and what nobody may do in it. In the
// long tier the programs are killed, upgraded, restored, driven by a browser and
// pushed to their limits.
package systemtest

import (
	"flag"
	"os"
	"testing"

	"vendorapi/internal/testenv/testserver"
)

// Most tests wait for processes most of the time, so more of them run at once than
// there are processors.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(testserver.Run(m))
}

var await = testserver.Await

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
