package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// usualPercent is how much may be allocated between two collections, in percent of what is live. Little is live
	// beside the stacks of the sends, which the collector scans each time.
	usualPercent = 400
	// mostHeadroom is how many bytes that may be at most: with thousands of dead receivers more is live, and memory must
	// not grow by five times as much.
	mostHeadroom = 64 << 20
	// leastPercent keeps the collector from running all the time.
	leastPercent = 50
)

// tuneCollector sets how often memory is collected, and corrects it after each collection. GOGC turns that off.
func tuneCollector() {
	if os.Getenv("GOGC") != "" {
		return
	}

	percent := usualPercent
	debug.SetGCPercent(percent)
	afterCollection(func() {
		next := collectorPercent(liveBytes())
		if next != percent { // setting it stops the program for a moment
			percent = next
			debug.SetGCPercent(percent)
		}
	})
}

// collectorPercent returns the percentage for so many bytes that are live.
func collectorPercent(live uint64) int {
	percent := int(100 * mostHeadroom / max(live, 1))
	return min(max(percent, leastPercent), usualPercent)
}

// afterCollection lets f run after each collection: it makes garbage that the next one finds, and then makes some again.
func afterCollection(f func()) {
	garbage := &struct{ next *byte }{}
	runtime.AddCleanup(garbage, func(f func()) {
		f()
		afterCollection(f)
	}, f)
}

// liveBytes returns what the last collection left.
func liveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
