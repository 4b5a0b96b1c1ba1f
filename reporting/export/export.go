// Package export carries the ledger's history to ClickHouse: orders, their
// events, deliveries reported too late, and what became of webhooks.
//
// An entry of the streams is acknowledged after its rows are stored, so a crash repeats
// work and loses none; a repetition is harmless (package archive). While ClickHouse is
// unavailable, one read's entries are held and the rest waits in the streams. Replicas
// share the entries by the consumer group.
package export

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
	"vendorapi/internal/tracing"
	"vendorapi/reporting/archive"
)

// Settings are the keys below "export" of configs/reporting.yaml, which explains them.
type Settings struct {
	Batch      int           `yaml:"batch"`
	Interval   time.Duration `yaml:"interval"`
	ClaimAfter time.Duration `yaml:"claim_after"`
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

	// Tracer, which is optional, records in an order's trace when its events were stored.
	Tracer *tracing.Tracer
}

func (e *Exporter) trace(entries []ledger.Entry, began time.Time) {
	if e.Tracer == nil {
		return
	}
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
	group.Go(func() error { return e.feed(ctx) })
	group.Go(func() error { return e.watchLag(ctx) })
	return group.Wait()
}

func (e *Exporter) feed(ctx context.Context) error {
	err := e.ledger.Streams.Run(ctx, ledger.Feed{
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
	if err != nil {
		return fmt.Errorf("export feed: %w", err)
	}
	return errors.New("export feed ended by itself")
}

// entriesAtOnce and piecesAtOnce bound what is in memory: the orders of so many
// entries, twice. While one piece waits for ClickHouse the next one is composed.
const (
	entriesAtOnce = 10_000
	piecesAtOnce  = 2
)

// turn exports what one read has brought, in pieces, each acknowledged by itself. Of an
// order in two pieces the later version counts, whichever is stored last.
func (e *Exporter) turn(ctx context.Context, entries []ledger.Entry) error {
	var pieces errgroup.Group
	pieces.SetLimit(piecesAtOnce)
	for piece := range slices.Chunk(entries, entriesAtOnce) {
		pieces.Go(func() error { return e.exportPiece(ctx, piece) })
	}
	return pieces.Wait()
}

func (e *Exporter) exportPiece(ctx context.Context, piece []ledger.Entry) error {
	began := time.Now()
	if err := e.export(ctx, piece); err != nil {
		e.metrics.turns.WithLabelValues(resultFailed).Inc()
		return err
	}
	e.metrics.turns.WithLabelValues(resultStored).Inc()
	e.metrics.lastStored.SetToCurrentTime()
	e.metrics.entries.Add(float64(len(piece)))
	e.trace(piece, began)
	e.metrics.seconds.Observe(time.Since(began).Seconds())
	return nil
}

// export stores and acknowledges some entries. A crash in between stores them
// again.
func (e *Exporter) export(ctx context.Context, entries []ledger.Entry) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			e.metrics.panics.Inc()
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
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
	e.metrics.stored(&batch.Batch)
	exported := slices.DeleteFunc(slices.Clone(entries), func(x ledger.Entry) bool {
		return slices.ContainsFunc(x.Events, func(event ledger.Event) bool { return batch.unreadable[event.Order] != nil })
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
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := service.NewMetrics(reg, nil)
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
		lastStored: with.Gauge("reporting_export_last_stored_timestamp_seconds",
			"When this process last stored a batch in ClickHouse, as a Unix time; 0: not since its start."),
	}
}

func (m *metrics) stored(b *archive.Batch) {
	for i, rows := range []int{len(b.Orders), len(b.Events), len(b.Late), len(b.Outcomes)} {
		m.rows.WithLabelValues(archive.Tables()[i]).Add(float64(rows))
	}
}

const lagInterval = 5 * time.Second

// watchLag refreshes the lag until ctx ends. While Redis is unavailable the figures
// keep their last values.
func (e *Exporter) watchLag(ctx context.Context) error {
	ticker := time.NewTicker(lagInterval)
	defer ticker.Stop()
	for {
		lag, err := e.ledger.Streams.Lag(ctx, ledger.RoleExport)
		if err == nil {
			e.metrics.lagEntries.Set(float64(lag.Entries))
			age := 0.0
			if !lag.Oldest.IsZero() {
				age = max(time.Since(lag.Oldest).Seconds(), 0)
			}
			e.metrics.lagSeconds.Set(age)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
