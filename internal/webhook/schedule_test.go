package webhook

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var occurred = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

//rule:delivery-rules/2 limits/other-constants/webhook-retry-window webhooks/14-attempts-the-first-at
func TestNext_FollowsTheSchedule(t *testing.T) {
	nominal := []time.Duration{
		10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
		20 * time.Minute, 40 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour,
	}

	now := occurred
	for i, want := range nominal {
		at, ok := Next(i+1, occurred, now, 0, 0.5)
		check(t, ok && at.Sub(now).Round(time.Millisecond) == want, "after attempt %d: %v, %v, want %v", i+1, at.Sub(now), ok, want)
		now = at
	}

	at, ok := Next(13, occurred, now, 0, 0.5)
	if want := occurred.Add(24*time.Hour - 3*time.Minute); !ok || !at.Equal(want) {
		t.Errorf("after attempt 13: %v, %v, want %v", at, ok, want)
	}
	if at, ok := Next(14, occurred, at, 0, 0.5); ok {
		t.Errorf("after attempt 14: %v", at)
	}
}

//rule:webhooks/timeout-10-s-only-2xx webhooks/14-attempts-the-first-at
func TestNext_AtTheEdges(t *testing.T) {
	deadline := occurred.Add(24 * time.Hour)
	for name, c := range map[string]struct {
		attempt    int
		now        time.Time
		retryAfter time.Duration
		random     float64
		want       time.Time // zero: no attempt is left
	}{
		"shortest gap":                        {1, occurred, 0, 0, occurred.Add(8 * time.Second)},
		"Retry-After longer than the gap":     {1, occurred, time.Minute, 0, occurred.Add(time.Minute)},
		"Retry-After shorter than the gap":    {4, occurred, time.Second, 0, occurred.Add(96 * time.Second)},
		"Retry-After beyond the deadline":     {2, occurred.Add(time.Hour), 24 * time.Hour, 0, deadline.Add(-5 * time.Minute)},
		"Retry-After into the last minute":    {2, deadline.Add(-time.Hour), time.Hour, 0.25, deadline.Add(-4 * time.Minute)},
		"Retry-After to one minute before":    {2, deadline.Add(-time.Hour), 59 * time.Minute, 0.25, deadline.Add(-time.Minute)},
		"a late start":                        {12, deadline.Add(-time.Hour), 0, 0.5, deadline.Add(-3 * time.Minute)},
		"a short gap within the last minutes": {1, deadline.Add(-4 * time.Minute), 0, 0.5, deadline.Add(-4*time.Minute + 10*time.Second)},
		"the last attempt has failed early":   {5, deadline.Add(-3 * time.Minute), 0, 0.5, time.Time{}},
		"attempt 13 in the last minutes":      {13, deadline.Add(-5 * time.Minute), 0, 0.999, time.Time{}},
		"in the last minute":                  {1, deadline.Add(-time.Minute), 0, 0, time.Time{}},
		"after the deadline":                  {1, deadline.Add(time.Second), 0, 0, time.Time{}},
		"all attempts used":                   {14, occurred.Add(time.Hour), 0, 0, time.Time{}},
		"more than all attempts used":         {99, occurred.Add(time.Hour), 0, 0, time.Time{}},
	} {
		at, ok := Next(c.attempt, occurred, c.now, c.retryAfter, c.random)
		at = at.Round(time.Millisecond)
		if ok == c.want.IsZero() || !at.Equal(c.want) {
			t.Errorf("%s: got %v, %v, want %v", name, at, ok, c.want)
		}
	}
}

// A whole life of an event whose receiver never accepts it.
//
//rule:delivery-rules/2 limits/other-constants/webhook-retry-window webhooks/14-attempts-the-first-at
func TestNext_OverALifeThatNobodyAccepts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		deadline := occurred.Add(Window)
		delay := rapid.Int64Range(0, int64(30*time.Hour)).Draw(t, "first attempt after")
		silent := rapid.Bool().Draw(t, "no Retry-After at all")
		now := occurred.Add(time.Duration(delay))
		attempts := 1
		for {
			random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
			retryAfter := time.Duration(0)
			if !silent {
				retryAfter = time.Duration(rapid.Int64Range(0, int64(Window)).Draw(t, "retry after"))
			}

			at, ok := Next(attempts, occurred, now, retryAfter, random)
			if !ok {
				break
			}

			checkNext(t, attempts, now, at, retryAfter)
			attempts++
			now = at.Add(time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "answer after")))
		}

		require(t, attempts <= MaxAttempts, "%d attempts", attempts)
		before := deadline.Sub(now)
		require(t, time.Duration(delay) >= Window-lastEarliest || before <= lastEarliest, "given up %v before the deadline after %d attempts", before, attempts)
		require(t, delay != 0 || !silent || attempts == MaxAttempts, "an event sent at once got %d attempts", attempts)
	})
}

// checkNext holds one step of the schedule to the decisions ("Webhooks").
func checkNext(t *rapid.T, attempt int, now, at time.Time, retryAfter time.Duration) {
	deadline := occurred.Add(Window)
	last := !at.Before(deadline.Add(-5*time.Minute)) && !at.After(deadline.Add(-time.Minute))
	require(t, at.After(now) && !at.After(deadline.Add(-time.Minute)), "attempt %d at %v, now %v, deadline %v", attempt+1, at, now, deadline)
	if attempt == MaxAttempts-1 {
		require(t, last, "attempt 14 comes %v before the deadline", deadline.Sub(at))
		return
	}

	gap := at.Sub(now)
	require(t, gap >= retryAfter || last, "attempt %d comes before Retry-After", attempt+1)
	nominal := gaps[attempt-1]
	least, most := nominal*8/10, max(nominal*12/10, retryAfter)
	require(t, last || gap >= least-time.Microsecond && gap <= most, "gap %v after attempt %d is not within %v and %v", gap, attempt, least, most)
}

func TestParseRetryAfter_ReadsSecondsAndDates(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"":                                   0,
		"0":                                  0,
		"120":                                2 * time.Minute,
		" 7 ":                                7 * time.Second,
		"86400":                              24 * time.Hour,
		"86401":                              24 * time.Hour,
		"99999999999999999999":               24 * time.Hour,
		"-1":                                 0,
		"+1":                                 0,
		"1.5":                                0,
		"1_0":                                0,
		"soon":                               0,
		"Sat, 21 Nov 2026 12:01:30 GMT":      90 * time.Second,
		"Saturday, 21-Nov-26 12:01:30 GMT":   90 * time.Second,
		"Sat Nov 21 12:01:30 2026":           90 * time.Second,
		"Sat, 21 Nov 2026 11:59:00 GMT":      0,
		"Sat, 21 Nov 2099 11:59:00 GMT":      24 * time.Hour,
		"2026-11-21T12:01:30Z":               0,
		"Sat, 21 Nov 2026 12:01:30 GMT, 120": 0,
	} {
		got := ParseRetryAfter(header, now)
		check(t, got == want, "%q: got %v, want %v", header, got, want)
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	f.Add("120")
	f.Add("Sat, 21 Nov 2026 12:01:30 GMT")
	f.Add("99999999999999999999")
	f.Fuzz(func(t *testing.T, header string) {
		got := ParseRetryAfter(header, occurred)
		check(t, got >= 0 && got <= Window, "%q: %v", header, got)
	})
}
