//go:build long

package closing

import (
	"runtime"
	"testing"
	"time"

	"vendorapi/internal/testenv"
	"vendorapi/reporting/journal"
)

// peakHeap returns the most that Go's heap held while work ran, in bytes.
func peakHeap(work func()) uint64 {
	done := make(chan struct{})
	peak := make(chan uint64)
	go func() {
		most := uint64(0)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			select {
			case <-done:
				peak <- most
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()

	work()
	close(done)

	return <-peak
}

// A million rows, and rows of 100 MB, are counted and set aside in little memory.
func TestDispute_OfAMillionRowsNeedsLittleMemory(t *testing.T) {
	e := newEnvWithReports(t)
	e.holdAMonth()
	const many, large = 1_000_000, 10
	e.garbage(many, 50)
	for range large {
		e.garbage(1, 100_000_000)
	}

	e.garbage(200, journal.MaxText-10) // as long as an entry can be

	var l *Log
	began := time.Now()
	peak := peakHeap(func() { l = e.log() })
	t.Logf("read in %s, the heap had at most %d MB", time.Since(began).Round(time.Millisecond), peak>>20)
	if l.Foreign.Count != many+large+200 {
		t.Errorf("%d foreign rows", l.Foreign.Count)
	}
	if peak > 200<<20 {
		t.Errorf("the heap had %d MB", peak>>20)
	}

	began = time.Now()
	testenv.Must(t, decide(t.Context(), e.books, KindDispute, Month{}, "ayse", "nobody here"))
	testenv.Must(t, decide(t.Context(), e.books, KindSetAside, Month{}, "ece", ""))
	t.Logf("disputed and set aside in %s", time.Since(began).Round(time.Millisecond))
	if rows := e.Ask("count() FROM " + e.Database + ".journal"); rows != "3\n" {
		t.Errorf("%s rows are left", rows)
	}
}
