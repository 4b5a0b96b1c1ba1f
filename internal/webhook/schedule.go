package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The schedule of deliveries (decisions, "Webhooks").
const (
	// MaxAttempts is how often an event is sent at most, the first included.
	MaxAttempts = 14
	// Window is how long after it occurred an event may be sent (spec,
	// "Delivery rules" 2).
	Window = 24 * time.Hour
	// The last attempt begins between lastEarliest and lastLatest before the
	// deadline: late enough to use the window, early enough to end within it,
	// and spread so that a day's backlog does not arrive at one moment.
	lastEarliest = 5 * time.Minute
	lastLatest   = time.Minute
	// Each gap is multiplied by jitterLeast to jitterLeast+jitterSpan.
	jitterLeast = 0.8
	jitterSpan  = 0.4
)

// gaps are the pauses before attempts 2 to 13; attempt 14 is the last one,
// placed by the deadline.
var gaps = [MaxAttempts - 2]time.Duration{
	10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour,
}

// Next is when to send an event again after its attempt number attempt (1 for
// the first) has failed at now; ok is false when no attempt is left, and the
// event is undelivered.
//
// Attempts 2 to 13 follow after the gaps of the schedule, each 80 % to 120 % of
// its nominal length as random, in [0, 1), has it. The receiver's Retry-After,
// zero when it sent none, can only make a gap longer. Attempt 14 comes 5 to 1
// minutes before the deadline of occurredAt + 24 h.
//
// A time later than 1 minute before the deadline is brought forward to the place of the
// last attempt. When the attempt that failed was in that place, none is left.
func Next(attempt int, occurredAt, now time.Time, retryAfter time.Duration, random float64) (at time.Time, ok bool) {
	deadline := occurredAt.Add(Window)
	if attempt < MaxAttempts-1 {
		gap := time.Duration(float64(gaps[max(attempt, 1)-1]) * (jitterLeast + jitterSpan*random))
		at = now.Add(max(gap, retryAfter))
		if !at.After(deadline.Add(-lastLatest)) {
			return at, true
		}
	}

	if attempt >= MaxAttempts || !now.Before(deadline.Add(-lastEarliest)) {
		return time.Time{}, false
	}

	spread := time.Duration(random * float64(lastEarliest-lastLatest))

	return deadline.Add(-lastEarliest + spread), true
}

// ParseRetryAfter reads a Retry-After header (RFC 9110, section 10.2.3). It is 0 when the
// header is absent, past or invalid, and never more than 24 hours.
func ParseRetryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, Window)
	} else if strings.Trim(header, "0123456789") == "" && header != "" {
		return Window // a number too large to hold
	}

	date, err := http.ParseTime(header)
	if err != nil {
		return 0
	}

	return min(max(date.Sub(now), 0), Window)
}
