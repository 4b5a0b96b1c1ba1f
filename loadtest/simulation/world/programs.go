package world

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
	"vendorapi/worker/dispatch"
	"vendorapi/worker/owner"
	"vendorapi/worker/status"
)

// A Gateway is the gateway's program without listeners.
type Gateway interface {
	Run(ctx context.Context) error
	Ready() bool
	Do(private bool, method, path, bearer, body string, header map[string]string) (status int, answered http.Header, answer []byte)
}

// Seams are what only a build of the simulation has: see testdata/standins.
type Seams struct {
	Module  string // the module's folder
	Gateway func(work context.Context, file string, log *slog.Logger, change func(*ledger.Config)) (Gateway, error)
	// Receive sets what stands for the vendors' receivers, Store what stands for ClickHouse.
	Receive func(func(ctx context.Context, url string, header http.Header, body []byte) Reception)
	Store   func(func(ctx context.Context, b *archive.Batch) error)
}

// partitions are few, so that one batch has several of them.
const partitions = 2

// A program is one life of a gateway, a worker or an exporter.
type program struct {
	*actor
	kind   string
	cancel context.CancelFunc
	ended  chan struct{} // closed at its end
	died   chan struct{} // closed when it was killed
	gate   Gateway       // of a gateway
}

// kill ends a program's life in the middle of whatever it does. Its goroutines go on until they ask Redis something,
// and get an error.
func (p *program) kill() {
	p.mu.Lock()
	wasDead := p.dead
	p.dead = true
	p.mu.Unlock()
	if wasDead {
		return
	}

	close(p.died)
	p.cancel()
}

// A slot is a place where a program runs, one life after the other.
type slot struct {
	kind, name string
	skew       time.Duration // how far its clock is ahead
	lives      int
	mu         sync.Mutex
	program    *program // nil: none runs
}

func (s *slot) running() *program {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.program
}

// host keeps a slot's program running until ctx ends: after its death it starts again, a little later. stop lets it
// end in order.
func (w *world) host(ctx context.Context, s *slot) {
	random := w.chance("host of " + s.name)
	for ctx.Err() == nil {
		p := w.start(ctx, s)
		s.mu.Lock()
		s.program = p
		s.mu.Unlock()
		select {
		case <-p.died:
		case <-p.ended:
		}

		s.mu.Lock()
		s.program = nil
		s.mu.Unlock()
		if ctx.Err() == nil {
			pause(ctx, time.Duration(random.Int64N(int64(time.Minute))))
		}

		w.dying.Go(func() { <-p.ended })
	}
}

// start begins a life.
func (w *world) start(ctx context.Context, s *slot) *program {
	s.lives++
	running, cancel := context.WithCancel(ctx)
	p := &program{
		actor:  &actor{name: fmt.Sprintf("%s.%d", s.name, s.lives), sim: w.simulator},
		kind:   s.kind,
		cancel: cancel,
		ended:  make(chan struct{}),
		died:   make(chan struct{}),
	}

	log := w.story.logger(p.name)
	change := func(c *ledger.Config) {
		c.URL, c.Partitions, c.Hooks = "redis://simulation:6379", partitions, []redisHook{w.hook(p.actor)}
		if s.skew != 0 {
			c.Now = func() time.Time { return time.Now().Add(s.skew) }
		}
	}

	run := w.worker
	switch s.kind {
	case "gateway":
		// Requests outlive an orderly end, and not a death.
		work, abandon := context.WithCancel(context.WithoutCancel(ctx))
		gate, err := w.seams.Gateway(work, filepath.Join(w.seams.Module, "configs", "gateway.yaml"), log, change)
		if err != nil {
			panic(err)
		}

		p.gate = gate
		go func() {
			defer abandon()
			select {
			case <-p.died:
			case <-p.ended:
			}
		}()

		run = func(ctx context.Context, _ *program, _ *slog.Logger, _ func(*ledger.Config)) error {
			return gate.Run(ctx)
		}
	case "exporter":
		run = w.exporter
	}

	go func() {
		defer close(p.ended)
		err := run(running, p, log, change)
		if err != nil && running.Err() == nil && !p.isDead() {
			w.breach("crashed", p.name, "it ended by itself: %v", err)
		}

		if !p.isDead() {
			w.story.note("    %s ends", p.name)
		}
	}()

	return p
}

func (w *world) open(ctx context.Context, log *slog.Logger, change func(*ledger.Config)) (*ledger.Ledger, error) {
	connection := ledger.Config{Environment: delivery.Sandbox, Log: log, Secrets: webhookKeys()}
	change(&connection)
	return service.Retry(ctx, log, "Redis", func() (*ledger.Ledger, error) {
		l, err := ledger.Open(ctx, connection)
		if err == nil {
			_, err = l.ServerTime(ctx)
		}
		return l, err
	})
}

func webhookKeys() ledger.SecretKeys {
	key := make([]byte, config.KeySize)
	for i := range key {
		key[i] = 'w'
	}
	return ledger.SecretKeys{Current: "w1", Keys: map[string][]byte{"w1": key}}
}

// worker is the worker's program, as its main wires it, without the sandbox's courier and the gauges.
func (w *world) worker(ctx context.Context, p *program, log *slog.Logger, change func(*ledger.Config)) error {
	l, err := w.open(ctx, log, change)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // there are no connections

	registry := prometheus.NewRegistry()
	decider := status.New(l, w.status, nil, log, registry)
	sender := dispatch.New(l, w.webhook, dispatch.Options{Sandbox: true, CourierStep: 5 * time.Second}, log, registry)

	return owner.New(l, decider, sender, w.status, p.name, log, registry).Run(ctx)
}

// exporter is the part of reporting that reads the streams.
func (w *world) exporter(ctx context.Context, p *program, log *slog.Logger, change func(*ledger.Config)) error {
	l, err := w.open(ctx, log, change)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // there are no connections
	settings := export.Settings{Batch: 100, Interval: 5 * time.Minute, ClaimAfter: time.Hour}
	return export.New(l, new(archive.Archive), settings, p.name, log, prometheus.NewRegistry()).Run(ctx)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
