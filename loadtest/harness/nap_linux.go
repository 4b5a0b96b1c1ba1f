package harness

import (
	"time"

	"golang.org/x/sys/unix"
)

// nap sleeps in the kernel, which is some 50 microseconds late. A timer of the runtime is up to a millisecond late,
// because the poller that it waits in counts in milliseconds, and that would be the larger part of what is measured.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &t, nil) // woken early: the caller looks at the clock again
}
