// Package dispatch sends events to vendors' endpoints, signed, until a 2xx answer or the end of 24
// h (spec, "Delivery rules"; design section 7).
//
// Delivery is at least once: an event is leased before it is sent and recorded after. If a process
// dies in between, the lease expires and the event is sent again under the same eventId. Replicas
// share the work through the leases.
package dispatch

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/ledger"
	"vendorapi/internal/tracing"
)

// Settings are the keys below "webhook" of configs/worker.yaml, where each is explained.
type Settings struct {
	Batch           int           `yaml:"batch"`
	ClaimAfter      time.Duration `yaml:"claim_after"`
	Concurrency     int           `yaml:"concurrency"`
	PerEndpoint     int           `yaml:"per_endpoint"`
	BreakerFailures int           `yaml:"breaker_failures"`
	Timeout         time.Duration `yaml:"timeout"`
	Lease           time.Duration `yaml:"lease"`
	LocalReceivers  string        `yaml:"local_receivers"`
	OwnPorts        string        `yaml:"own_ports"`
}

// Validate names the first key whose value is out of range.
func (s *Settings) Validate() error {
	switch {
	case s.Batch < 1 || s.Batch > 10_000:
		return errors.New("webhook.batch: want 1 to 10000")
	case s.ClaimAfter < time.Second:
		return errors.New("webhook.claim_after: want at least 1s")
	case s.Concurrency < 1 || s.Concurrency > 65_536:
		return errors.New("webhook.concurrency: want 1 to 65536")
	case s.PerEndpoint < 1 || s.PerEndpoint > 1024:
		return errors.New("webhook.per_endpoint: want 1 to 1024")
	case s.BreakerFailures < 1 || s.BreakerFailures > 10_000:
		return errors.New("webhook.breaker_failures: want 1 to 10000")
	case s.Timeout < 100*time.Millisecond || s.Timeout > time.Minute:
		return errors.New("webhook.timeout: want 100ms to 1m")
	case s.Lease < 2*s.Timeout:
		return errors.New("webhook.lease: want at least twice webhook.timeout, or slow answers are sent twice")
	case s.LocalReceivers != "auto" && s.LocalReceivers != "never":
		return errors.New(`webhook.local_receivers: want "auto" or "never"`)
	}
	if _, err := parsePorts(s.OwnPorts); err != nil {
		return fmt.Errorf("webhook.own_ports: %w", err)
	}
	return nil
}

// Role is the webhook role of one process.
type Role struct {
	tracer   *tracing.Tracer // nil: tracing is off
	ledger   *ledger.Ledger
	settings Settings
	consumer string
	sandbox  bool
	reorder  time.Duration
	now      func() time.Time
	log      *slog.Logger
	metrics  *metrics
	sender   *sender

	// slots bounds the sends in flight, from lease to record; a token in it is a slot in use.
	slots chan struct{}
	// wake[p] holds a token when something may have become due in partition p.
	wake []chan struct{}
	// work hands deliveries to lanes that are free.
	work chan func()
	// sends counts the attempts that have been leased and not recorded yet.
	sends     sync.WaitGroup
	recorders []*recorder // one for each partition
}

const laneIdle = 5 * time.Second

// Options are what the role gets besides its settings.
type Options struct {
	Consumer string // unique among the replicas, the same after a restart
	Sandbox  bool
	// CourierStep is the sandbox courier's pace; SIM:REORDER holds events back for longer.
	CourierStep time.Duration
	// Tracer records attempts and puts a traceparent into each request; nil: off.
	Tracer *tracing.Tracer
	// Roots are the certificate authorities to trust; nil: the system's.
	Roots *x509.CertPool
	// Now is the clock of schedules and deadlines; nil: the system's.
	Now func() time.Time
}

// New prepares the role.
func New(l *ledger.Ledger, s Settings, o Options, log *slog.Logger, reg prometheus.Registerer) *Role {
	r := &Role{
		ledger:   l,
		settings: s,
		consumer: o.Consumer,
		sandbox:  o.Sandbox,
		tracer:   o.Tracer,
		reorder:  o.CourierStep*3/2 + time.Second,
		now:      o.Now,
		log:      log.With("role", "webhook"),
		slots:    make(chan struct{}, s.Concurrency),
		work:     make(chan func()),
		wake:     make([]chan struct{}, l.Partitions()),
	}
	if r.now == nil {
		r.now = time.Now
	}
	own, _ := parsePorts(s.OwnPorts) // Validate has checked it
	r.sender = newSender(guard{local: o.Sandbox && s.LocalReceivers == "auto", own: own}, s, o.Roots)
	r.metrics = newMetrics(reg, cap(r.slots), func() float64 { return float64(len(r.slots)) },
		func() float64 { return float64(r.sender.transport.open.Load()) })
	for p := range r.wake {
		r.wake[p] = make(chan struct{}, 1)
		r.recorders = append(r.recorders, newRecorder(r, p))
	}
	return r
}

// Run works until ctx ends, then lets what is in flight finish and be recorded, for at most the
// timeout and recordTimeout. It returns nil then, and never because Redis is unavailable.
func (r *Role) Run(ctx context.Context) error {
	if !r.releaseLeases(ctx) {
		return nil
	}
	sending, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	group, leasing := errgroup.WithContext(ctx)
	var recording sync.WaitGroup
	for _, c := range r.recorders {
		recording.Go(func() { c.run(leasing, sending) })
	}
	group.Go(func() error { return r.feed(leasing, sending) })
	for p := range r.wake {
		group.Go(func() error { return r.dispatch(leasing, sending, p) })
	}
	err := group.Wait()
	deadline := time.AfterFunc(r.settings.Timeout, abort)
	defer deadline.Stop()
	r.sends.Wait()
	for _, c := range r.recorders {
		close(c.results)
	}
	recording.Wait()
	r.sender.transport.CloseIdleConnections()
	return err
}

// releaseLeases ends what a dead process of this name had leased; false when ctx ends first.
func (r *Role) releaseLeases(ctx context.Context) bool {
	for {
		n, err := r.ledger.Queue.ReleaseLeases(ctx, r.consumer)
		if n > 0 {
			r.log.Info("events that were being sent when this worker ended are sent again", "events", n)
		}
		if err == nil {
			return true
		}
		r.log.Warn("the leases of the last run are still held, trying again", "error", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(failurePause):
		}
	}
}

func (r *Role) feed(leasing, sending context.Context) error {
	err := r.ledger.Streams.Run(leasing, ledger.Feed{
		Role:     ledger.RoleWebhook,
		Consumer: r.consumer,
		Handle: func(_ context.Context, batch []ledger.Entry) error {
			return r.queue(leasing, sending, batch[0].Partition, batch)
		},
		Log:        r.log.Warn,
		Batch:      r.settings.Batch,
		ClaimAfter: r.settings.ClaimAfter,
	})
	if leasing.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("webhook feed: %w", err)
	}
	return errors.New("webhook feed ended by itself")
}

// queue moves a batch of events to their endpoints' queues and sends what slots and limits allow at
// once; the rest is dispatch's.
func (r *Role) queue(leasing, sending context.Context, partition int, batch []ledger.Entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(leasing), leaseTimeout)
	defer cancel()
	slots := 0
	if leasing.Err() == nil {
		slots = r.takeMoreSlots(len(batch))
	}
	until := r.now().Add(r.settings.Lease)
	var leased ledger.Leased
	err := r.protect(func() (failure error) {
		leased, failure = r.ledger.Queue.Add(ctx, partition, batch, r.grant(slots))
		return failure
	})
	r.start(sending, partition, leased.Deliveries, until)
	r.freeSlots(slots - len(leased.Deliveries))
	if leased.More || err != nil {
		r.wakeUp(partition)
	}
	if err != nil {
		r.metrics.entries.WithLabelValues(resultFailed).Add(float64(len(batch)))
		return fmt.Errorf("queue %d events: %w", len(batch), err)
	}
	r.metrics.entries.WithLabelValues(resultQueued).Add(float64(len(batch)))
	return nil
}

// start sends what was leased; each delivery holds one slot until it is recorded.
func (r *Role) start(sending context.Context, partition int, leased []*ledger.Delivery, until time.Time) {
	r.sends.Add(len(leased))
	for _, d := range leased {
		send := func() { r.deliver(sending, partition, d, until) }
		select {
		case r.work <- send:
		default:
			go r.lane(send)
		}
	}
}

// lane sends deliveries until it has had none for laneIdle. It is used again because growing a new
// stack for every send was 7 % of a busy worker.
func (r *Role) lane(send func()) {
	idle := time.NewTimer(laneIdle)
	defer idle.Stop()
	for {
		send()
		idle.Reset(laneIdle)
		select {
		case send = <-r.work:
		case <-idle.C:
			return
		}
	}
}

func (r *Role) wakeUp(partition int) {
	select {
	case r.wake[partition] <- struct{}{}:
	default: // it has not taken the last token yet and will look after that
	}
}

// protect turns a panic into an error: one defective record must not end the process.
func (r *Role) protect(work func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			r.metrics.panics.Inc()
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return work()
}
