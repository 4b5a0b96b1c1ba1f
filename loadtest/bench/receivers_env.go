// This file is what suite receivers stands on: the programs with two workers, limited as in docker-compose.yml, and
// what is measured of the workers.

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

const (
	// healthyRate is how many orders of healthy vendors are created in a second.
	healthyRate = 200
	// memoryLimit is what docker-compose.yml gives each worker; from GOMEMLIMIT on it collects harder.
	memoryLimit = "GOMEMLIMIT=450MiB"
	mebibyte    = 1 << 20
)

// A receiversEnv is a system with healthy vendors, two workers and a book beside them.
type receiversEnv struct {
	*system
	book    *book
	bench   *bench
	workers [2]*stack.Program

	// The memory of the workers, in bytes: the most that one had in any of its lives, and at the last looks at both.
	watches  [2]func() []harness.Watched // of those that run
	peak     uint64
	resident [2]uint64
}

// withTwoWorkers starts the system with two workers, waits until they share the partitions, and stops all after use.
func (b *bench) withTwoWorkers(ctx context.Context, name string, use func(context.Context, *receiversEnv)) {
	options := stack.Options{Env: append([]string{memoryLimit, "LOG_LEVEL=error"}, sealKeyEnv...)}
	b.withVendors(ctx, name, options, func(ctx context.Context, s *system) {
		// Rewriting a file of this size takes a processor for a minute, at a moment that is chance.
		got(s.Redis.Command(ctx, "CONFIG", "SET", "auto-aof-rewrite-percentage", "0"))

		e := &receiversEnv{system: s, bench: b, book: openBook(ctx, s.Stack)}
		defer func() { _ = e.book.Close() }() // the ledger is dropped
		e.workers[0] = s.Worker
		e.workers[1] = got(s.AddWorker(ctx, "second"))
		for i := range e.workers {
			e.watch(ctx, i)
		}

		defer func() {
			for i, w := range e.workers {
				e.note(i)
				w.Kill()
			}
		}()

		e.awaitSpread(ctx)
		use(ctx, e)
	})
}

const (
	// ballastBytes is about what an event that waits takes in Redis, beside the key of a piece of ballast.
	ballastBytes = 330
	// ballastAtOnce is how many pieces a command writes or drops.
	ballastAtOnce = 2_000
)

// addBallast puts as much into Redis as so many waiting events take. A large Redis is slower by itself, because the
// kernel has more pages to look after: what dead receivers cost beyond that is found by a comparison with ballast.
func (e *receiversEnv) addBallast(ctx context.Context, events int) {
	piece := strings.Repeat("x", ballastBytes)
	for keys := range slices.Chunk(ballastKeys(events), ballastAtOnce) {
		command := []string{"MSET"}
		for _, key := range keys {
			command = append(command, key, piece)
		}
		got(e.Redis.Command(ctx, command...))
	}
}

// dropBallast removes what addBallast has put there.
func (e *receiversEnv) dropBallast(ctx context.Context, events int) {
	for keys := range slices.Chunk(ballastKeys(events), ballastAtOnce) {
		got(e.Redis.Command(ctx, append([]string{"UNLINK"}, keys...)...))
	}
}

func ballastKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "ballast:" + strconv.Itoa(i)
	}
	return keys
}

// watch looks at the memory of a worker that runs, until it is stopped.
func (e *receiversEnv) watch(ctx context.Context, worker int) {
	const every = 100 * time.Millisecond
	e.watches[worker] = harness.Watch(ctx, every, harness.Process{Name: "worker", PID: e.workers[worker].PID()})
}

// note takes what a watch of a worker has seen, which ends.
func (e *receiversEnv) note(worker int) {
	if e.watches[worker] == nil {
		return
	}

	for _, seen := range e.watches[worker]() {
		e.peak = max(e.peak, seen.Peak)
		e.resident[worker] = seen.Now
	}

	e.watches[worker] = nil
}

// takePeak returns the most resident memory that a worker has had since the last call, in MiB. No worker runs.
func (e *receiversEnv) takePeak() float64 {
	peak := e.peak
	e.peak = 0
	return float64(peak) / mebibyte
}

// memorySoFar returns the most resident memory that a worker that runs has had, in MiB.
func (e *receiversEnv) memorySoFar(ctx context.Context) float64 {
	for i := range e.workers {
		e.note(i)
		e.watch(ctx, i)
	}
	return float64(e.peak) / mebibyte
}

// start starts a worker and returns when it is ready.
func (e *receiversEnv) start(ctx context.Context, worker int) error {
	err := e.workers[worker].Start(ctx)
	if err == nil {
		e.watch(ctx, worker)
	}
	return err
}

// startBoth starts both workers at once.
func (e *receiversEnv) startBoth(ctx context.Context) {
	var group errgroup.Group
	for i := range e.workers {
		group.Go(func() error { return e.start(ctx, i) })
	}
	must(group.Wait())
}

// stop ends a worker in order (SIGTERM), kill as a crash would (SIGKILL).
func (e *receiversEnv) stop(worker int) { e.endBy(worker, (*stack.Program).Stop) }
func (e *receiversEnv) kill(worker int) { e.endBy(worker, (*stack.Program).Kill) }

func (e *receiversEnv) endBy(worker int, end func(*stack.Program)) {
	must(e.workers[worker].Check())
	end(e.workers[worker])
	e.note(worker)
}

// processes are what is measured; the vendors and all receivers run in this one.
func (e *receiversEnv) processes() []harness.Process {
	all := []harness.Process{{Name: "gateway", PID: e.Gateway.PID()}, {Name: "redis", PID: e.Redis.PID()}, harness.Self("generator")}
	for _, w := range e.workers {
		all = append(all, harness.Process{Name: "workers", PID: w.PID()})
	}
	return all
}

// tokens returns the token of each partition, by its number.
func (e *receiversEnv) tokens(ctx context.Context) ([]partitions.Token, error) {
	stored, err := e.book.Ownership.Tokens(ctx)
	if err != nil {
		return nil, err
	}

	tokens := make([]partitions.Token, partitionCount)
	for p := range tokens {
		tokens[p], err = stored[p].Token()
		if err != nil {
			return nil, err
		}
	}

	return tokens, nil
}

// epochs returns how often partitions have changed hands so far.
func (e *receiversEnv) epochs(ctx context.Context) (sum uint64) {
	for _, token := range got(e.tokens(ctx)) {
		sum += token.Epoch
	}
	return sum
}

// awaitOwners waits until the partitions are shared evenly by so many workers.
func (e *receiversEnv) awaitOwners(ctx context.Context, workers int) {
	const longest = time.Minute
	began := time.Now()
	err := harness.Await(ctx, fmt.Sprintf("the partitions have %d owners", workers), longest, 50*time.Millisecond, func() (bool, error) {
		tokens, err := e.tokens(ctx)
		owned := make(map[string]int)
		for _, token := range tokens {
			owned[token.Owner]++
		}

		delete(owned, "") // of no worker
		isEven := len(owned) == workers
		for _, n := range owned {
			isEven = isEven && n == partitionCount/workers
		}

		return isEven, err
	})

	if errors.Is(err, harness.ErrTimeout) {
		e.bench.progress("%v after %.0f s: it goes on", err, time.Since(began).Seconds())
		return
	}

	must(err)
}

// awaitSpread waits until both workers own half of the partitions.
func (e *receiversEnv) awaitSpread(ctx context.Context) { e.awaitOwners(ctx, len(e.workers)) }
