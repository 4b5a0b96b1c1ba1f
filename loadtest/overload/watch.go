package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// watch samples how much memory programs have resident and what CPU they use.
type watch struct {
	pids map[string]func() int // by the program's name
	stop context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex
	traces map[string]*trace
}

// trace is one program's figures: bytes resident at the start, at most in the
// first half and in the second, and CPU seconds.
type trace struct {
	first, early, late uint64
	cpu, seconds       float64
}

// sampleEvery is the pause between two looks.
const sampleEvery = 200 * time.Millisecond

// begin looks every sampleEvery for about d, until end.
func (w *watch) begin(ctx context.Context, d time.Duration) {
	w.traces = map[string]*trace{}
	ctx, w.stop = context.WithCancel(ctx)
	began := time.Now()
	cpu := map[string]float64{}
	w.look(func(name string, s procfs.ProcStat) {
		cpu[name] = s.CPUTime()
		w.traces[name] = &trace{first: uint64(s.ResidentMemory())}
	})
	w.done.Go(func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			w.look(func(name string, s procfs.ProcStat) {
				t := w.traces[name]
				if t == nil {
					return
				}
				if rss := uint64(s.ResidentMemory()); time.Since(began) < d/2 {
					t.early = max(t.early, rss)
				} else {
					t.late = max(t.late, rss)
				}
				t.cpu, t.seconds = s.CPUTime()-cpu[name], time.Since(began).Seconds()
			})
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
}

func (w *watch) look(take func(name string, s procfs.ProcStat)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, pid := range w.pids {
		p, err := procfs.NewProc(pid())
		if err != nil {
			continue // it is gone; whoever cares finds out
		}
		if s, err := p.Stat(); err == nil {
			take(name, s)
		}
	}
}

// end stops looking and answers the figures by name.
func (w *watch) end() map[string]*trace {
	w.stop()
	w.done.Wait()
	return w.traces
}

func (t *trace) most() uint64 { return max(t.early, t.late) }

// grown is how much more was resident than at the start.
func (t *trace) grown() uint64 { return max(t.most(), t.first) - t.first }

func (t *trace) String() string {
	return fmt.Sprintf("%s before, at most %s in the first half, %s in the second", mebibytes(t.first), mebibytes(t.early), mebibytes(t.late))
}
