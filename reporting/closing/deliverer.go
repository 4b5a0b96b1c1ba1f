package closing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/deliver"
)

// lookInterval is the Deliverer.interval of every deliverer.
const lookInterval = time.Minute

// DelivererSettings say where sets of files are delivered to.
type DelivererSettings struct {
	// Targets may be empty: closings and corrections are then announced without files, which are there
	// for download.
	Targets []*deliver.Target

	// Daily is the local time, such as 07:00, from which on yesterday's reports are due at each target;
	// empty: they never are.
	Daily string

	// Announce notifies finance's own system of a delivery. It may be called again with the same report:
	// the report's ID is announced once.
	Announce func(context.Context, *delivery.AvailableReport) error

	Registry prometheus.Registerer
}

// A Deliverer takes closings, corrections and each day's reports to the targets, and announces what was
// delivered. Of each target and set ClickHouse has a row (archive.DeliverySet), in one of three states:
//
//	due ────────► delivered ────────► announced
//	  a targetQueue        the announcer
//
// A set is due before anything of it is sent, and delivered once all of its files are at the target.
// Announcements are made from that row alone, so whatever has changed since, or fails at a target, does
// not concern them. Each step can be repeated: a file that is at a target is compared, not sent again,
// and an announcement has an ID by which the gateway recognises it. So a process may die after any step,
// its writes may have unknown outcomes, and any number of processes may deliver at once; what they do
// twice is at most the work.
//
// Every target has a queue of its own, and within a queue no set waits for one that fails.
type Deliverer struct {
	books     *Books
	queues    []*targetQueue
	announcer *announcer

	// interval is how often each target, and the queue of announcements, is looked at. It is lookInterval outside tests.
	interval time.Duration
}

// NewDeliverer prepares the queues. It connects to nothing.
func NewDeliverer(b *Books, s DelivererSettings) *Deliverer {
	d := &Deliverer{books: b, interval: lookInterval}
	metrics := service.NewMetrics(s.Registry, nil)
	pending := metrics.NewGaugeVec(prometheus.GaugeOpts{Name: "reporting_deliveries_pending",
		Help: "Sets of files that a target does not have yet, at the last look."}, []string{"target"})
	oldest := metrics.NewGaugeVec(prometheus.GaugeOpts{Name: "reporting_deliveries_oldest_pending_timestamp_seconds",
		Help: "Since when the oldest of them is due; 0: none is pending."}, []string{"target"})
	results := metrics.NewCounterVec(prometheus.CounterOpts{Name: "reporting_deliveries_total",
		Help: "Attempts to deliver a set of files by target and result (delivered, failed)."}, []string{"target", "result"})

	targets := s.Targets
	if len(targets) == 0 {
		targets = []*deliver.Target{nil}
	}

	for _, target := range targets {
		q := &targetQueue{books: b, target: target, daily: parseDaily(s.Daily), attempts: newAttempts()}
		if target != nil {
			q.name = target.Name
		}

		q.pending = pending.WithLabelValues(q.name)
		q.oldest = oldest.WithLabelValues(q.name)
		q.delivered = results.WithLabelValues(q.name, "delivered")
		q.failed = results.WithLabelValues(q.name, "failed")
		d.queues = append(d.queues, q)
	}

	d.announcer = &announcer{
		books:    b,
		announce: s.Announce,
		attempts: newAttempts(),
		pending: metrics.Gauge("reporting_announcements_pending",
			"Delivered sets of which finance's own system was not notified yet, at the last look."),
		oldest: metrics.Gauge("reporting_announcements_oldest_pending_timestamp_seconds",
			"When the oldest of them was delivered; 0: none is pending."),
	}

	return d
}

// Run delivers and announces until ctx ends. A slow or hanging target delays no other one, and no
// announcement.
func (d *Deliverer) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, q := range d.queues {
		log := d.books.log.With("target", q.name)
		running.Go(func() {
			service.Repeat(ctx, log, d.interval, "deliveries cannot be looked at", "deliveries are looked at again", q.once)
		})
	}

	running.Go(func() {
		service.Repeat(ctx, d.books.log, d.interval, "announcements cannot be looked at", "announcements are looked at again", d.announcer.once)
	})
	running.Wait()
}

// once looks at every target, and then at what is to be announced. The failure of a set is logged and
// recorded with it; it is no error.
func (d *Deliverer) once(ctx context.Context) error {
	errs := make([]error, len(d.queues))
	var running sync.WaitGroup
	for i, q := range d.queues {
		running.Go(func() { errs[i] = q.once(ctx) })
	}

	running.Wait()

	return errors.Join(errors.Join(errs...), d.announcer.once(ctx))
}

// showPending sets both gauges; since has the time from which each pending set has been due.
func showPending(pending, oldest prometheus.Gauge, since []time.Time) {
	pending.Set(float64(len(since)))
	if len(since) == 0 {
		oldest.Set(0)
		return
	}

	first := slices.MinFunc(since, time.Time.Compare)
	oldest.Set(float64(first.UnixMilli()) / 1000)
}

// changeSet stores what change makes of a set's row, unless change returns false. The row is read just
// before, so that what another process has recorded in the meantime is seen.
func (b *Books) changeSet(ctx context.Context, target, name string, change func(*archive.DeliverySet) bool) error {
	row, err := b.archive.DeliverySet(ctx, target, name)
	if err != nil {
		return err
	}

	if row == nil {
		return fmt.Errorf("%w: delivery_sets has no row for %s at the target %q", delivery.ErrUnavailable, name, target)
	}
	if !change(row) {
		return nil
	}

	row.Version++
	row.ChangedAt = b.now()

	return b.archive.RecordDeliverySets(ctx, []archive.DeliverySet{*row})
}
