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
	"vendorapi/internal/tracing"
	"vendorapi/reporting/archive"
)

// Settings are the keys below "export" of the configuration.
type Settings struct {
	// Batch is how many entries of one stream are read at once, 1 to 10000.
	Batch int `yaml:"batch"`
	// Interval is how long entries collect before they are exported, 100ms to
	// 1m; a full read does not wait. ClickHouse likes few large inserts.
	Interval time.Duration `yaml:"interval"`
	// ClaimAfter is how long a silent consumer keeps its entries before another
	// takes them over; at least a second.
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

// trace records one span for every order of a piece that was stored.
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
		return fmt.Errorf("storing %d rows in ClickHouse: %w", batch.Rows(), transient(err))
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

// transient marks every failure of an insert as one that passes: no entry is given up for
// what ClickHouse refuses. Only a row that does not fit is dead-lettered.
func transient(err error) error {
	if errors.Is(err, delivery.ErrUnavailable) || errors.Is(err, archive.ErrRow) {
		return err
	}
	return fmt.Errorf("%w: %w", delivery.ErrUnavailable, err)
}
