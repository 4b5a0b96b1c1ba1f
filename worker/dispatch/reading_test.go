package dispatch

import (
	"errors"
	"slices"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// wrongType is Redis's answer about a key of another type.
type wrongType struct{}

func (wrongType) Error() string {
	return "WRONGTYPE Operation against a key holding the wrong kind of value"
}
func (wrongType) RedisError() {}

// What is damaged must not hold up what is read with it.
func TestAnswers_OfWhatIsNotDamaged(t *testing.T) {
	reads := 0
	a := answers[int, string]{of: []int{1, 2, 3}}

	a.read(func(items []int) ([]string, error) {
		reads++
		if slices.Contains(items, 2) {
			return nil, wrongType{}
		}
		return []string{"value"}, nil
	})

	if a.errs[0] != nil || a.errs[1] == nil || a.errs[2] != nil || a.err == nil {
		t.Errorf("errors %v and %v", a.errs, a.err)
	}

	if a.values[0] != "value" || a.values[2] != "value" || reads != 4 {
		t.Errorf("values %q after %d reads", a.values, reads)
	}
}

// While Redis is unavailable nothing is read one by one.
func TestAnswers_AskOnceWhileRedisIsUnavailable(t *testing.T) {
	reads := 0
	unavailable := errors.New("connection refused")
	a := answers[int, string]{of: []int{1, 2, 3}}

	a.read(func([]int) ([]string, error) {
		reads++
		return nil, unavailable
	})

	if reads != 1 || !errors.Is(a.errs[2], unavailable) || len(a.values) != 3 {
		t.Errorf("%d reads, errors %v, %d values", reads, a.errs, len(a.values))
	}
}

func TestUnread_ForgetsWhatATurnHasRead(t *testing.T) {
	now := time.Now()
	u := newUnread(now)
	account, other := delivery.AccountID{1}, delivery.AccountID{2}
	u.add(account)
	u.add(account)
	u.add(other)

	taken := u.take(now)
	if len(taken) != 2 || !u.expected[account] {
		t.Fatalf("%d endpoints are read, want each once", len(taken))
	}

	u.done(account) // a turn has read it in the meantime
	u.add(other)    // it has changed since the read began
	isIgnored := !u.expected[account] && !u.expected[other]
	if !isIgnored {
		t.Error("what the read brings is taken, though it is older")
	}
	if again := u.take(now); !slices.Equal(again, []delivery.AccountID{other}) {
		t.Errorf("%d endpoints are read again, want the one that has changed", len(again))
	}
}

func TestUnread_PausesWhatCannotBeRead(t *testing.T) {
	now := time.Now()
	u := newUnread(now)
	account := delivery.AccountID{1}
	u.add(account)
	u.take(now)

	u.pause(account, now.Add(unreadPause))

	at, hasSome := u.next(now)
	if !hasSome || !at.Equal(now.Add(unreadPause)) || len(u.take(now)) != 0 {
		t.Errorf("it is read again after %s", at.Sub(now))
	}
	if again := u.take(now.Add(unreadPause)); len(again) != 1 {
		t.Error("it is never read again")
	}
}
