//go:build !linux

package harness

import "time"

func nap(d time.Duration) { time.Sleep(d) }
