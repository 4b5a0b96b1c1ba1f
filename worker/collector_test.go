package main

import (
	"runtime"
	"testing"
	"time"
)

func TestCollectorPercent_BoundsTheHeadroom(t *testing.T) {
	for live, want := range map[uint64]int{
		0:                  usualPercent,
		1 << 20:            usualPercent,
		mostHeadroom / 4:   usualPercent,
		mostHeadroom / 2:   200,
		mostHeadroom:       100,
		2 * mostHeadroom:   leastPercent,
		200 * mostHeadroom: leastPercent,
	} {
		if percent := collectorPercent(live); percent != want {
			t.Errorf("%d bytes live: %d %%, want %d", live, percent, want)
		}
	}
}

func TestAfterCollection_RunsAfterEach(t *testing.T) {
	ran := make(chan struct{}, 1)
	afterCollection(func() {
		select {
		case ran <- struct{}{}:
		default: // the test is over
		}
	})

	for range 3 {
		collected(t, ran)
	}

	if liveBytes() == 0 {
		t.Error("nothing is live")
	}
}

// collected collects until it was noticed.
func collected(t *testing.T, noticed <-chan struct{}) {
	t.Helper()
	for {
		runtime.GC()
		select {
		case <-noticed:
			return
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("a collection was not noticed")
		}
	}
}
