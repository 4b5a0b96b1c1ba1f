// Package dispatch sends events to vendors' endpoints, signed, until a 2xx answer or the end of 24
// h (spec, "Delivery rules"; decisions, "Webhooks").
//
// The owner of a partition (package owner) has its Webhooks, and calls them turn by turn:
//
//	owner ──> Webhooks     what has come, what a step must write, what is sent (webhooks.go)
//	             scheduler which event goes when; no goroutine, clock or Redis of its own
//	                tail      the stream's entries after the webhook position
//	                endpoint  one account's: queue (what waits in memory), schedule (what is known of
//	                          what waits in Redis), pace (in flight, rate, breaker)
//	             read      what no turn waits for: endpoints, parts of schedules (reading.go)
//	             attempt   one send, by package sender
//
// Delivery is at least once: the partition's token says up to which event all have ended or stand in
// their endpoints' schedules. An event leaves its schedule when its end is written. If the process
// dies, the next owner sends what is behind that position, and what is scheduled, under the same
// event ids. docs/webhook-states.md follows an event from its decision to its end.
package dispatch

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/config"
	"vendorapi/internal/ledger"
	"vendorapi/internal/tracing"
	"vendorapi/worker/dispatch/sender"
)

// Settings are the keys below "webhook" of configs/worker.yaml, where each is explained.
type Settings struct {
	Concurrency     int           `yaml:"concurrency"`
	PerEndpoint     int           `yaml:"per_endpoint"`
	BreakerFailures int           `yaml:"breaker_failures"`
	Timeout         time.Duration `yaml:"timeout"`
	LocalReceivers  string        `yaml:"local_receivers"`
	OwnPorts        string        `yaml:"own_ports"`
	Memory          int64         `yaml:"memory"`
}

// megabyte is the unit of Settings.Memory, in bytes.
const megabyte = 1 << 20

// Validate names the keys whose value is out of range.
func (s *Settings) Validate() error {
	_, err := parsePorts(s.OwnPorts)
	return errors.Join(
		config.Demand(s.Concurrency >= 1 && s.Concurrency <= 65_536, "webhook.concurrency: want 1 to 65536"),
		config.Demand(s.PerEndpoint >= 1 && s.PerEndpoint <= 1024, "webhook.per_endpoint: want 1 to 1024"),
		config.Demand(s.BreakerFailures >= 1 && s.BreakerFailures <= 10_000, "webhook.breaker_failures: want 1 to 10000"),
		config.Demand(s.Timeout >= 100*time.Millisecond && s.Timeout <= time.Minute, "webhook.timeout: want 100ms to 1m"),
		config.Demand(s.Memory >= 1 && s.Memory <= 65_536, "webhook.memory: want 1 to 65536 MB"),
		config.Demand(s.LocalReceivers == "auto" || s.LocalReceivers == "never", `webhook.local_receivers: want "auto" or "never"`),
		config.Demand(err == nil, fmt.Sprintf("webhook.own_ports: %v", err)))
}

// parsePorts reads a list with commas between the ports.
func parsePorts(list string) (ports []uint16, err error) {
	for text := range strings.SplitSeq(list, ",") {
		if text == "" {
			continue
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Errorf("%q is no port", text)
		}
		ports = append(ports, uint16(port))
	}

	return ports, nil
}

// Role sends the webhooks of one process.
type Role struct {
	tracer   *tracing.Tracer // nil: tracing is off
	ledger   *ledger.Ledger
	settings Settings
	sandbox  bool
	reorder  time.Duration
	// redisTime is Redis's clock, but in tests.
	redisTime func() time.Time
	log       *slog.Logger
	metrics   *metrics
	sender    *sender.Sender

	// inFlight counts the sends that have not ended, failing those of them to receivers that fail. Who takes places holds
	// placing, from counting the free ones on: owners run side by side.
	inFlight, failing atomic.Int64
	placing           sync.Mutex
	// memory is the budget for events that wait.
	memory *memory
	// reads and searches run beside the owners' turns.
	reads, searches limiter

	// work hands sends to lanes that are free.
	work chan func()
}

// Options are what the role gets besides its settings.
type Options struct {
	Sandbox bool
	// CourierStep is the sandbox courier's pace; SIM:REORDER holds events back for longer.
	CourierStep time.Duration
	// Tracer records attempts and puts a traceparent into each request; nil: off.
	Tracer *tracing.Tracer
}

// New prepares the role.
func New(l *ledger.Ledger, s Settings, o Options, log *slog.Logger, reg prometheus.Registerer) *Role {
	r := &Role{
		ledger:   l,
		settings: s,
		sandbox:  o.Sandbox,
		tracer:   o.Tracer,
		reorder:  o.CourierStep*3/2 + time.Second,
		log:      log.With("role", "webhook"),
		memory:   &memory{budget: s.Memory * megabyte},
		reads:    make(limiter, readsAtOnce),
		searches: make(limiter, searchesAtOnce),
		work:     make(chan func()),
	}

	r.redisTime = func() time.Time { return l.Now() }
	own, _ := parsePorts(s.OwnPorts) // Validate has checked it
	r.sender = sender.New(sender.Options{
		Concurrency:    s.Concurrency,
		Timeout:        s.Timeout,
		LocalReceivers: o.Sandbox && s.LocalReceivers == "auto",
		OwnPorts:       own,
	})

	r.metrics = newMetrics(reg, s.Concurrency, func() float64 { return float64(r.inFlight.Load()) },
		func() float64 { return float64(r.sender.OpenConnections()) })

	return r
}

// Close ends idle connections.
func (r *Role) Close() { r.sender.CloseIdleConnections() }

// failingShare: receivers that fail may take one place of so many.
const failingShare = 2

// freePlaces returns how many more sends may be in flight.
func (r *Role) freePlaces() places {
	inFlight, failing := int(r.inFlight.Load()), int(r.failing.Load())
	return places{
		free:       r.settings.Concurrency - inFlight,
		forFailing: max(r.settings.Concurrency/failingShare, 1) - failing,
	}
}

// takePlace takes a place for a send of an event.
func (r *Role) takePlace(ev *event) {
	r.inFlight.Add(1)
	if ev.isOfFailing {
		r.failing.Add(1)
	}
}

// givePlaceBack ends what takePlace has begun.
func (r *Role) givePlaceBack(ev *event) {
	r.inFlight.Add(-1)
	if ev.isOfFailing {
		r.failing.Add(-1)
	}
}

const (
	// readsAtOnce is how many reads run at once that no turn waits for, searchesAtOnce how many through all accounts
	// of a partition, which take longer.
	readsAtOnce    = 8
	searchesAtOnce = 2
)

// A limiter runs functions in goroutines of their own, as many at once as it has room for.
type limiter chan struct{}

// Go runs f, when there is room.
func (l limiter) Go(f func()) {
	go func() {
		l <- struct{}{}
		defer func() { <-l }()
		f()
	}()
}

const laneIdle = 5 * time.Second

// start runs a send in a lane.
func (r *Role) start(send func()) {
	select {
	case r.work <- send:
	default:
		go r.lane(send)
	}
}

// lane runs sends until it has had none for laneIdle. It is used again because growing a new
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
