package testserver

import (
	"flag"
	"math/rand/v2"
	"testing"
)

// fixSeed gives the property tests (rapid) of this binary the same cases in every
// run of the gate; -rapid.seed on the command line still wins, and the long run
// draws others each time.
func fixSeed() {
	if f := flag.Lookup("rapid.seed"); f != nil && !Long {
		_ = f.Value.Set("1") // a number, so it cannot fail
	}
}

// Seed is 1 in the gate and a random number in the long run, where it is logged.
func Seed(t testing.TB) uint64 {
	t.Helper()
	if !Long {
		return 1
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return seed
}
