//go:build long

package failpoint

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// server is a redis-server under a shim.
func server(t *testing.T) (*Shim, *stack.Redis) {
	t.Helper()
	s, err := NewShim(t.Context(), t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s, testserver.DedicatedRedis(t, stack.RedisOptions{Env: s.Env()})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func serverTime(t *testing.T, r *stack.Redis) time.Time {
	t.Helper()
	text, err := r.Command(t.Context(), "TIME")
	must(t, err)
	seconds, err := strconv.ParseInt(strings.Fields(text)[0], 10, 64)
	must(t, err)

	return time.Unix(seconds, 0)
}

func TestShiftClock_MovesTheClockOfARunningProgram(t *testing.T) {
	s, r := server(t)
	for _, shift := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		s.ShiftClock(shift)
		before := time.Now().Add(-2 * time.Second) // the server's time is rounded, and kept for a moment
		at := serverTime(t, r).Add(-shift)
		if after := time.Now(); at.Before(before) || at.After(after) {
			t.Errorf("shifted by %v the clock shows %v, want it between %v and %v", shift, at, before, after)
		}
	}
}

func TestDelaySync_HoldsAnswersBack(t *testing.T) {
	s, r := server(t)
	const delay = 300 * time.Millisecond
	s.DelaySync(delay)
	began := time.Now()
	_, err := r.Command(t.Context(), "SET", "key", "value")
	must(t, err)
	if took := time.Since(began); took < delay {
		t.Errorf("a write took %v although its fsync takes %v", took, delay)
	}

	s.DelaySync(0)
}

func TestLeaveRoom_EndsRedisAndKeepsWhatItAcknowledged(t *testing.T) {
	s, r := server(t)
	must(t, s.LeaveRoom(2000, "appendonlydir"))
	acknowledged := 0
	for range 1000 {
		if _, err := r.Command(t.Context(), "RPUSH", "list", strings.Repeat("x", 100)); err != nil {
			break
		}
		acknowledged++
	}

	if acknowledged == 0 || acknowledged > 20 {
		t.Fatalf("%d writes of more than 100 bytes were acknowledged with room for 2000", acknowledged)
	}

	s.FreeRoom()
	// It has ended or is about to.
	r.Kill()
	must(t, r.Start(t.Context()))
	text, err := r.Command(t.Context(), "LLEN", "list")
	must(t, err)
	if kept, _ := strconv.Atoi(text); kept < acknowledged {
		t.Errorf("%d of %d acknowledged writes are there", kept, acknowledged)
	}
}

func TestLeaveRoom_RefusesALongPath(t *testing.T) {
	s, err := NewShim(t.Context(), filepath.Join(t.TempDir(), "new"))
	must(t, err)
	if err := s.LeaveRoom(1, strings.Repeat("x", 256)); err == nil {
		t.Error("256 bytes were taken for a path")
	}
	must(t, s.Close())
}
