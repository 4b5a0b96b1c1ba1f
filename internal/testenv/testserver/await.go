package testserver

import (
	"testing"
	"time"
)

// Timeout is how long Await waits. It is no expectation of how fast something is:
// a busy machine must not fail a test.
const Timeout = 2 * time.Minute

// Await polls until the condition holds and fails the test after Timeout.
func Await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Timeout); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s still not: %s", Timeout, what)
		}
	}
}
