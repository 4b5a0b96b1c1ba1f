package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// usage is what the processes have used so far, in seconds of CPU.
type usage struct {
	reporting, engine, redis float64
	own                      float64 // this process
	busy                     float64 // the whole machine
	at                       time.Time
}

// takeUsage reads the processes' times, which come in steps of 10 ms.
func takeUsage(reporting, engine, redis int) (u usage, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return u, err
	}
	for _, p := range []struct {
		pid  int
		into *float64
	}{{reporting, &u.reporting}, {engine, &u.engine}, {redis, &u.redis}, {os.Getpid(), &u.own}} {
		proc, err := fs.Proc(p.pid)
		if err != nil {
			return u, err
		}
		stat, err := proc.Stat()
		if err != nil {
			return u, err
		}
		*p.into = stat.CPUTime()
	}
	stat, err := fs.Stat()
	if err != nil {
		return u, err
	}
	t := stat.CPUTotal
	u.busy, u.at = t.User+t.Nice+t.System+t.IRQ+t.SoftIRQ+t.Steal, time.Now()
	return u, nil
}

// spent is what was used between two looks, and for how many seconds.
type spent struct{ reporting, engine, redis, own, busy, seconds float64 }

func (u *usage) since(before *usage) spent {
	return spent{reporting: u.reporting - before.reporting, engine: u.engine - before.engine, redis: u.redis - before.redis,
		own: u.own - before.own, busy: u.busy - before.busy, seconds: u.at.Sub(before.at).Seconds()}
}

// others is how many processors programs kept busy that have nothing to do with
// the measurement.
func (s *spent) others() float64 {
	return max(0, s.busy-s.reporting-s.engine-s.redis-s.own) / s.seconds
}

// memory is a process's resident memory, in bytes.
type memory struct{ now, peak uint64 }

func memoryOf(pid int) (m memory, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m, err
	}
	proc, err := fs.Proc(pid)
	if err != nil {
		return m, err
	}
	status, err := proc.NewStatus()
	if err != nil {
		return m, err
	}
	if status.VmHWM == 0 {
		return m, fmt.Errorf("process %d tells no memory", pid)
	}
	return memory{now: status.VmRSS, peak: status.VmHWM}, nil
}

// watchMemory looks at a process until it is told to stop, and then answers the
// peak that it saw. A process that ends by itself is seen up to its last
// hundredth of a second.
func watchMemory(ctx context.Context, pid int) (stop func() uint64) {
	ctx, cancel := context.WithCancel(ctx)
	var peak uint64
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if m, err := memoryOf(pid); err == nil {
				peak = max(peak, m.peak)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() uint64 {
		cancel()
		watching.Wait()
		return peak
	}
}
