//go:build long

package failpoint

import (
	"fmt"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

type redis struct{ *stack.Redis }

func startRedis(t *testing.T) redis {
	t.Helper()
	return redis{testserver.DedicatedRedis(t, stack.RedisOptions{})}
}

func (r redis) must(t *testing.T, args ...string) string {
	t.Helper()
	reply, err := r.Command(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func (r redis) restart(t *testing.T) {
	t.Helper()
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What stood before the tear is there, whatever the length of what is torn.
func TestTearTail_LosesNothingThatWasAnswered(t *testing.T) {
	t.Parallel()

	r := startRedis(t)
	for n := range 5 {
		r.must(t, "INCR", "n")
		r.Kill()
		if err := TearTail(r.Dir, n*17); err != nil {
			t.Fatal(err)
		}

		r.restart(t)
		if got := r.must(t, "GET", "n"); got != fmt.Sprint(n+1) {
			t.Fatalf("after tear %d there are %s of %d", n, got, n+1)
		}
		if got := r.must(t, "EXISTS", "faults:torn"); got != "0" {
			t.Fatal("half of a transaction was taken")
		}
	}
}

func TestCutSince_TakesOnlyWhatCameAfter(t *testing.T) {
	t.Parallel()

	r := startRedis(t)
	r.must(t, "SET", "before", "1")
	end, err := EndOf(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if cut, of, err := end.CutSince(r.Dir, func(n int64) int64 { return n }); cut != 0 || of != 0 || err != nil {
		t.Errorf("of nothing: %d, %d, %v", cut, of, err)
	}

	r.must(t, "SET", "after", "1")
	r.Kill()
	if cut, of, err := end.CutSince(r.Dir, func(n int64) int64 { return n/2 + 1 }); cut != of/2+1 || of == 0 || err != nil {
		t.Fatalf("%d, %d, %v", cut, of, err)
	}

	r.restart(t)
	if got := r.must(t, "EXISTS", "before") + r.must(t, "EXISTS", "after"); got != "10" {
		t.Errorf("before and after: %s", got)
	}
}
