// Package export carries the ledger's history to ClickHouse: orders, their
// events, deliveries reported too late, what became of webhooks, and who did what.
//
// An entry of the streams is acknowledged after its rows are stored, so a crash repeats
// work and loses none; a repetition is harmless (package archive). While ClickHouse is
// unavailable, one read's entries are held and the rest waits in the streams. Replicas
// share the entries by the consumer group.
package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
	"vendorapi/reporting/archive"
)

// Settings are the keys below "export" of configs/reporting.yaml, which explains them.
type Settings struct {
	Batch      int           `yaml:"batch"`
	Interval   time.Duration `yaml:"interval"`
	ClaimAfter time.Duration `yaml:"claim_after"`
	AuditDays  int           `yaml:"audit_days"`
}

// Validate names the first key whose value is out of range.
func (s *Settings) Validate() error {
	switch {
	case s.Batch < 1 || s.Batch > 10_000:
		return errors.New("export.batch: want 1 to 10000")
	case s.Interval < 100*time.Millisecond || s.Interval > time.Minute:
		return errors.New("export.interval: want 100ms to 1m")
	case s.ClaimAfter < time.Second:
		return errors.New("export.claim_after: want at least 1s")
	case s.AuditDays < 0 || s.AuditDays > 36_500:
		return errors.New("export.audit_days: want 0 to 36500")
	}

	return nil
}

// Exporter exports as one consumer of the group.
type Exporter struct {
	ledger   *ledger.Ledger
	archive  *archive.Archive
	settings Settings
	consumer string
	log      *slog.Logger
	metrics  *metrics
	lagRead  time.Time // when the lag was last read, of some partitions at least; only measureLag uses it

	// Tracer, which may be nil, records in an order's trace when its events were stored.
	Tracer *tracing.Tracer
}

func (e *Exporter) trace(entries []partitions.Entry, began time.Time) {
	ended := time.Now()
	for _, id := range ordersOf(entries) {
		e.Tracer.Record(&tracing.Span{Name: "export order", Kind: tracing.Consumer, Order: id, Began: began, Ended: ended,
			Attributes: []tracing.Attribute{tracing.Text("vendorapi.order", id.String()), tracing.Text("db.system.name", "clickhouse")}})
	}
}

// New prepares an exporter. consumer names this process within the group:
// unique among the replicas, the same after a restart.
func New(l *ledger.Ledger, a *archive.Archive, s Settings, consumer string, log *slog.Logger, reg prometheus.Registerer) *Exporter {
	return &Exporter{ledger: l, archive: a, settings: s, consumer: consumer,
		log: log.With("role", "export"), metrics: newMetrics(reg)}
}

// Run exports until ctx ends; Redis or ClickHouse may be unavailable for a while. The
// tables must exist.
func (e *Exporter) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		service.Repeat(ctx, e.log, lagInterval, "the exporter's lag cannot be read", "", e.measureLag)
		return nil
	})

	group.Go(func() error {
		err := e.ledger.Streams.Run(ctx, partitions.Feed{
			Role:       ledger.RoleExport,
			Consumer:   e.consumer,
			Handle:     e.turn,
			Every:      e.settings.Interval,
			Log:        e.log.Warn,
			Batch:      e.settings.Batch,
			ClaimAfter: e.settings.ClaimAfter,
		})
		if ctx.Err() != nil {
			return nil
		}

		return errors.Join(errors.New("export feed ended by itself"), err)
	})

	return group.Wait()
}

// entriesAtOnce and piecesAtOnce bound what is in memory: the orders of so many
// entries, twice. While one piece waits for ClickHouse the next one is composed.
const (
	entriesAtOnce = 10_000
	piecesAtOnce  = 2
)

// turn exports what one read has brought, in pieces, each acknowledged by itself. Of an
// order in two pieces the later version counts, whichever is stored last.
func (e *Exporter) turn(ctx context.Context, entries []partitions.Entry) error {
	var pieces errgroup.Group
	pieces.SetLimit(piecesAtOnce)
	for piece := range slices.Chunk(entries, entriesAtOnce) {
		pieces.Go(func() error {
			began := time.Now()
			if err := service.Protect(e.metrics.panics, func() error { return e.export(ctx, piece) }); err != nil {
				e.metrics.turns.WithLabelValues(resultFailed).Inc()
				return err
			}

			e.metrics.turns.WithLabelValues(resultStored).Inc()
			e.metrics.lastStored.SetToCurrentTime()
			e.metrics.entries.Add(float64(len(piece)))
			e.trace(piece, began)
			e.metrics.seconds.Observe(time.Since(began).Seconds())

			return nil
		})
	}

	return pieces.Wait()
}

// export stores and acknowledges some entries. A crash in between stores them
// again.
func (e *Exporter) export(ctx context.Context, entries []partitions.Entry) error {
	batch, err := compose(ctx, e.ledger, entries)
	if err != nil {
		return err
	}
	if err := e.reportMissing(ctx, batch); err != nil {
		return err
	}

	if err := e.archive.Insert(ctx, &batch.Batch); err != nil {
		// It passes: no entry is given up for what ClickHouse refuses. Only a row that does
		// not fit is dead-lettered.
		if !errors.Is(err, delivery.ErrUnavailable) && !errors.Is(err, archive.ErrRow) {
			err = fmt.Errorf("%w: %w", delivery.ErrUnavailable, err)
		}
		return fmt.Errorf("storing %d rows in ClickHouse: %w", batch.Rows(), err)
	}

	for i, rows := range []int{len(batch.Orders), len(batch.Events), len(batch.Late), len(batch.Outcomes), len(batch.Audit)} {
		e.metrics.rows.WithLabelValues(archive.Tables()[i]).Add(float64(rows))
	}

	exported := slices.DeleteFunc(slices.Clone(entries), func(x partitions.Entry) bool {
		return slices.ContainsFunc(x.Events, func(event partitions.Event) bool { return batch.unreadable[event.Order] != nil })
	})
	if err := e.ledger.Streams.Ack(ctx, ledger.RoleExport, exported...); err != nil {
		return err
	}

	// These stay unsettled; the feed hands them out again and dead-letters them in
	// the end.
	return errors.Join(slices.Collect(maps.Values(batch.unreadable))...)
}

// reportMissing logs what the rows lack. A retired order was exported before: its event
// comes again because the group was set back.
func (e *Exporter) reportMissing(ctx context.Context, batch *composed) error {
	retired, err := e.ledger.Orders.Retired(ctx, batch.missing)
	if err != nil {
		return err
	}

	for i, id := range batch.missing {
		if !retired[i] {
			e.metrics.missing.Inc()
			e.log.Warn("an order is not in Redis; its event cannot be exported", "order", id)
		}
	}

	for _, err := range batch.stores {
		e.log.Warn("a store cannot be read; its orders are exported without its name", "error", err)
	}

	return nil
}

const (
	resultStored = "stored"
	resultFailed = "failed"
)

type metrics struct {
	rows, turns                        *prometheus.CounterVec
	entries, missing, panics           prometheus.Counter
	seconds                            prometheus.Histogram
	lagEntries, lagSeconds, lastStored prometheus.Gauge
	lagRead                            prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := service.NewMetrics(reg, nil)
	reading := service.NewMetrics(reg, prometheus.Labels{"figures": "export_lag"}).Gauge("reporting_figures_timestamp_seconds",
		"When the lag was last read of every partition, as a Unix time. Since then it lacks those that do not answer.")
	reading.SetToCurrentTime() // its age counts from the start
	return &metrics{
		rows: with.Counters("reporting_export_rows_total",
			"Rows stored in ClickHouse, by table; a row that was stored twice counts twice.", "table", archive.Tables()...),
		turns: with.Counters("reporting_export_turns_total",
			"Batches of stream entries, by whether they could be stored; failed ones are repeated.", "result", resultStored, resultFailed),
		entries: with.Counter("reporting_export_entries_total", "Stream entries stored and acknowledged."),
		missing: with.Counter("reporting_export_missing_orders_total", "Events whose order was not in Redis any more; each needs a look."),
		panics:  with.Counter("reporting_export_panics_total", "Panics that were caught; each is a defect."),
		seconds: with.Histogram("reporting_export_turn_seconds", "From reading the orders of a batch to its acknowledgement.",
			.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30),
		lagEntries: with.Gauge("reporting_export_lag_entries",
			"Stream entries that are not in ClickHouse yet. The same in every replica."),
		lagSeconds: with.Gauge("reporting_export_lag_seconds",
			"Age of the oldest stream entry that is not in ClickHouse yet. The same in every replica."),
		lagRead: reading,
		lastStored: with.Gauge("reporting_export_last_stored_timestamp_seconds",
			"When this process last stored a batch in ClickHouse, as a Unix time; 0: not since its start."),
	}
}

const lagInterval = 5 * time.Second

// lagShown is for how long a lag is shown when it cannot be read again. A figure that is not true any
// more must not look as if all were well.
const lagShown = time.Minute

// measureLag refreshes the figures. In a cluster they are those of the partitions that answer, and the time
// of the last whole reading stays as it was while some do not. When nothing can be read for a while,
// there is no figure (NaN).
func (e *Exporter) measureLag(ctx context.Context) error {
	began := time.Now()
	lag, err := e.ledger.Streams.Lag(ctx, ledger.RoleExport)
	if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
		if began.Sub(e.lagRead) > lagShown {
			e.metrics.lagEntries.Set(math.NaN())
			e.metrics.lagSeconds.Set(math.NaN())
		}
		return err
	}

	age := 0.0
	if !lag.Oldest.IsZero() {
		age = max(time.Since(lag.Oldest).Seconds(), 0)
	}

	e.metrics.lagEntries.Set(float64(lag.Entries))
	e.metrics.lagSeconds.Set(age)
	e.lagRead = began
	if err == nil {
		e.metrics.lagRead.Set(float64(began.UnixMilli()) / 1000)
	}

	return err
}

// composed are the rows of some entries, and what stood in their way.
type composed struct {
	archive.Batch
	missing    []delivery.OrderID         // orders that Redis does not hold
	unreadable map[delivery.OrderID]error // whose records cannot be read
	stores     []error                    // stores whose records cannot be read; their names stay empty
}

// compose makes one row of every order, of its latest version, and one of each event.
func compose(ctx context.Context, l *ledger.Ledger, entries []partitions.Entry) (*composed, error) {
	ids := ordersOf(entries)
	orders, unreadable, err := l.Orders.GetReadable(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("reading %d orders: %w", len(ids), err)
	}

	batch := &composed{unreadable: unreadable}
	byID := make(map[delivery.OrderID]*delivery.Order, len(orders))
	for i, o := range orders {
		id := ids[i]
		switch {
		case o != nil:
			byID[id] = o
		case batch.unreadable[id] == nil:
			batch.missing = append(batch.missing, id)
		}
	}

	orders = slices.DeleteFunc(orders, func(o *delivery.Order) bool { return o == nil })
	batch.Orders, batch.stores, err = orderRows(ctx, l, orders)
	if err != nil {
		return nil, err
	}

	for i := range entries {
		e := &entries[i]
		if e.Audit != nil {
			batch.Audit = append(batch.Audit, *e.Audit)
		}

		if e.Outcomes != nil {
			batch.Outcomes = append(batch.Outcomes, outcomeRows(e)...)
			continue
		}

		for _, event := range e.Events {
			o := byID[event.Order]
			switch {
			case o == nil:
			case !event.LateAt.IsZero():
				batch.Late = append(batch.Late, archive.LateDelivery{Account: o.Account, CreatedAt: o.CreatedAt,
					Order: o.ID, ReportedAt: event.LateAt})
			default:
				if row, ok := archive.EventOf(o, event.Version); ok {
					batch.Events = append(batch.Events, row)
				}
			}
		}
	}

	return batch, nil
}

func ordersOf(entries []partitions.Entry) (ids []delivery.OrderID) {
	seen := make(map[delivery.OrderID]bool, len(entries))
	for i := range entries {
		for _, event := range entries[i].Events {
			if id := event.Order; !seen[id] && !id.IsZero() {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}

	return ids
}

// orderRows adds to each order its store's name and tax number as they are now. They stay
// empty without a readable record: the order's money belongs into the reports.
func orderRows(ctx context.Context, l *ledger.Ledger, orders []*delivery.Order) (rows []archive.Order, unreadable []error, err error) {
	unique := make(map[accounts.StoreName]bool)
	for _, o := range orders {
		unique[accounts.StoreName{Account: o.Account, ExternalID: o.ExternalStoreID}] = true
	}

	names := slices.Collect(maps.Keys(unique))
	stores, unreadable, err := l.Stores.GetAll(ctx, names)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %d stores: %w", len(names), err)
	}

	for _, o := range orders {
		rows = append(rows, archive.OrderOf(o, stores[accounts.StoreName{Account: o.Account, ExternalID: o.ExternalStoreID}]))
	}

	return rows, unreadable, nil
}

// outcomeRows names each line by its place in the stream, so that it is the same row
// however often it is exported. The two streams number their entries apart, so those of
// tries are marked.
func outcomeRows(e *partitions.Entry) []archive.Outcome {
	rows := make([]archive.Outcome, len(e.Outcomes))
	for i, r := range e.Outcomes {
		entry := e.ID
		if r.State == "retrying" {
			entry += "t"
		}

		rows[i] = archive.Outcome{
			Account: r.Account, At: r.At, EventID: r.EventID, Event: delivery.EventType(r.Event), State: r.State,
			Attempt: r.Attempt, HTTPStatus: r.HTTPStatus, Error: r.Error, Milliseconds: int(r.Millis),
			Replay: r.Replay, Probe: r.Probe, Partition: e.Partition, Entry: entry, Line: i + 1,
		}

		rows[i].Order, _ = delivery.ParseOrderID(r.OrderID)
	}

	return rows
}

// Rebuilt is what a rebuild has stored so far.
type Rebuilt struct {
	Orders, Events, Late, Outcomes int
}

// Rebuild stores again all that Redis still holds of orders created at or after from: the
// orders with their history, and from the streams, which reach back for a shorter time,
// late deliveries and outcomes of webhooks. It may run beside exporters and be repeated.
// progress is called after every batch. The error at the end names orders that cannot be
// read.
func Rebuild(ctx context.Context, l *ledger.Ledger, a *archive.Archive, from time.Time, progress func(Rebuilt)) (Rebuilt, error) {
	var done Rebuilt
	store := func(b *archive.Batch) error {
		if err := a.InsertAgain(ctx, b); err != nil {
			return fmt.Errorf("storing %d rows in ClickHouse: %w", b.Rows(), err)
		}
		done.Orders, done.Events = done.Orders+len(b.Orders), done.Events+len(b.Events)
		done.Late, done.Outcomes = done.Late+len(b.Late), done.Outcomes+len(b.Outcomes)
		progress(done)
		return nil
	}

	var waiting []*delivery.Order
	var failed error
	flush := func() error {
		var b *archive.Batch
		b, failed = History(ctx, l, waiting)
		if failed == nil {
			failed = store(b)
		}
		waiting = waiting[:0]
		return failed
	}

	unreadable := l.Orders.Each(ctx, func(orders []*delivery.Order) error {
		for _, o := range orders {
			if !o.CreatedAt.Before(from) {
				waiting = append(waiting, o)
			}
		}

		if len(waiting) < entriesAtOnce/2 {
			return nil
		}
		return flush()
	})
	if failed != nil || errors.Is(unreadable, delivery.ErrUnavailable) {
		return done, unreadable
	}
	if err := flush(); err != nil {
		return done, err
	}

	err := l.Streams.EachEntry(ctx, ledger.RoleExport, from, func(entries []partitions.Entry) error {
		for i := range entries {
			entries[i].Events = slices.DeleteFunc(entries[i].Events, func(event partitions.Event) bool { return event.LateAt.IsZero() })
		}

		b, err := compose(ctx, l, entries)
		if err != nil {
			return err
		}
		return store(&b.Batch)
	})

	return done, cmp.Or(err, unreadable)
}

// History is the rows of orders with all of their events.
func History(ctx context.Context, l *ledger.Ledger, orders []*delivery.Order) (*archive.Batch, error) {
	rows, _, err := orderRows(ctx, l, orders)
	if err != nil {
		return nil, err
	}

	b := &archive.Batch{Orders: rows}
	for _, o := range orders {
		b.Events = append(b.Events, archive.EventsOf(o)...)
	}
	return b, nil
}
