//go:build long

package inject

import (
	"fmt"
	"strings"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

func startRedis(t *testing.T) Redis {
	t.Helper()
	return Redis{testserver.DedicatedRedis(t, stack.RedisOptions{})}
}

func (r Redis) must(t *testing.T, args ...string) string {
	t.Helper()
	reply, err := r.do(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func (r Redis) restart(t *testing.T) {
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

func TestRedis_OperatorsHarm(t *testing.T) {
	t.Parallel()
	r := startRedis(t)
	r.must(t, "FUNCTION", "LOAD", "#!lua name=f\nredis.register_function('f', function() return 1 end)")
	r.must(t, "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
	if streams, err := r.Streams(t.Context()); err != nil || len(streams) != 1 || streams[0] != "s" {
		t.Errorf("%q, %v", streams, err)
	}
	for _, want := range []bool{true, false} {
		if gone, err := r.DestroyGroup(t.Context(), "s", "g"); err != nil || gone != want {
			t.Errorf("%t, %v", gone, err)
		}
	}
	if err := r.FlushScripts(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := r.do(t.Context(), "FCALL", "f", "0"); err == nil {
		t.Error("the function is still there")
	}
	if err := r.Fill(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := r.do(t.Context(), "SET", "k", strings.Repeat("v", 1<<20)); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("written to a full server: %v", err)
	}
	if err := r.Unfill(t.Context()); err != nil {
		t.Error(err)
	}
	r.must(t, "SET", "k", "v")
}
