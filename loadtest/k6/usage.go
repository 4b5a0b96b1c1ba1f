package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// usage is what one program used during a script.
type usage struct {
	Name         string
	CPU          time.Duration
	Begin, End   uint64 // resident memory at the script's begin and end, in bytes
	cpuAtBegin   float64
	measuredOnce bool
}

// watch looks at the programs until stop is called, every half second because a
// program that ends takes its figures with it. Systems without /proc show none.
type watch struct {
	mu       sync.Mutex
	programs []*usage
	pids     []int
}

// watching begins with what is running already.
func watching(ctx context.Context, h *house, k6 int) (stop func() []usage) {
	w := &watch{}
	for _, p := range []struct {
		name string
		pid  int
	}{
		{"gateway", h.Gateway.PID()}, {"worker", h.Worker.PID()}, {"redis-server", h.Redis.PID()},
		{"k6", k6}, {"driver and receivers", os.Getpid()},
	} {
		w.programs, w.pids = append(w.programs, &usage{Name: p.name}), append(w.pids, p.pid)
	}
	w.look()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				w.look()
			}
		}
	}()
	return func() []usage {
		cancel()
		<-done
		w.look()
		return w.result()
	}
}

func (w *watch) look() {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, u := range w.programs {
		p, err := fs.Proc(w.pids[i])
		if err != nil {
			continue // it has ended: what was seen last stays
		}
		stat, err := p.Stat()
		if err != nil || stat.State == "Z" {
			continue
		}
		memory := uint64(max(0, stat.ResidentMemory()))
		if !u.measuredOnce {
			u.cpuAtBegin, u.Begin, u.measuredOnce = stat.CPUTime(), memory, true
		}
		u.CPU = time.Duration((stat.CPUTime() - u.cpuAtBegin) * float64(time.Second))
		u.End = memory
	}
}

func (w *watch) result() (all []usage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, u := range w.programs {
		if u.measuredOnce {
			all = append(all, *u)
		}
	}
	return all
}
