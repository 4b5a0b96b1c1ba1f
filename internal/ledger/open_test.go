package ledger

import (
	"errors"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
)

// At whichever step of a start Redis cannot serve, the program may wait for it:
// here it refuses one command after the other.
func TestOpen_UnavailableAtAnyStepIsSaidToPass(t *testing.T) {
	t.Parallel()
	own, _ := ownServer(t)
	for _, command := range []string{"info", "hsetnx", "hmget", "zadd"} {
		get(own.Command(t.Context(), "ACL", "SETUSER", "starting", "reset", "on", "nopass", "~*", "+@all", "-"+command))(t)
		l, err := Open(t.Context(), Config{URL: "redis://starting:any@" + own.Addr, Environment: "sandbox"})
		check(t, errors.Is(err, delivery.ErrUnavailable), "without %s: %v, want ErrUnavailable", command, err)
		if err == nil {
			_ = l.Close()
		}
	}
}

func TestFailures_TellTheSameOnce(t *testing.T) {
	t.Parallel()
	var none failures
	none.add(nil)
	equal(t, none.err(), nil, "nothing went wrong")
	var f failures
	for range 3 {
		f.add(failure(errors.New("EOF")))
	}
	f.add(errors.New("another"))
	err := f.err()
	check(t, errors.Is(err, delivery.ErrUnavailable) && strings.Count(err.Error(), "EOF") == 1 && strings.Contains(err.Error(), "(3 times)") && strings.Contains(err.Error(), "another"),
		"%v", err)
}
