package world

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/reporting/archive"
)

// rows are what ClickHouse would keep: of an order the row with the highest version, of the others each once.
type rows struct {
	mu       sync.Mutex
	random   *rand.Rand
	orders   map[delivery.OrderID]archive.Order
	events   map[string]archive.Event
	outcomes map[string]archive.Outcome
}

func (r *rows) init() {
	r.orders = make(map[delivery.OrderID]archive.Order)
	r.events = make(map[string]archive.Event)
	r.outcomes = make(map[string]archive.Outcome)
}

var errNotStored = errors.New("simulation: clickhouse is away")

// store stands for ClickHouse, which is away at times, also after it has stored the rows.
func (w *world) store(ctx context.Context, b *archive.Batch) error {
	r := &w.rows
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.random == nil {
		r.random = w.chance("clickhouse")
	}

	isAway := w.faults != faults{} && percent(r.random, 5)
	if isAway && percent(r.random, 50) {
		return errNotStored
	}

	for _, o := range b.Orders {
		if before, known := r.orders[o.ID]; !known || before.Version <= o.Version {
			r.orders[o.ID] = o
		}
	}

	for _, e := range b.Events {
		r.events[fmt.Sprintf("%s/%d", e.Order, e.Version)] = e
	}

	for _, o := range b.Outcomes {
		r.outcomes[fmt.Sprintf("%d/%s/%d", o.Partition, o.Entry, o.Line)] = o
	}

	if isAway {
		return errNotStored
	}

	return nil
}

// archived are the rows in the form that validate compares.
func (r *rows) archived() (a validate.Archive) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.orders {
		a.Orders = append(a.Orders, []string{
			o.ID.String(), o.Account.String(), o.ExternalOrderID, o.Status.String(), fmt.Sprint(o.Version), millis(o.CreatedAt),
			string(o.Failure), string(o.Cancel), o.ExternalStoreID, o.Fleet.String(), o.PaymentType.String(),
			amount(o.OrderAmount), amount(o.Collection), millis(o.OrderedAt), millis(o.ReadyAt), millis(o.UpdatedAt),
			millis(o.AssignedAt), millis(o.PickedUpAt), millis(o.DeliveredAt), millis(o.EndedAt),
		})
	}

	events := make([]archive.Event, 0, len(r.events))
	for _, e := range r.events {
		events = append(events, e)
	}

	slices.SortFunc(events, func(a, b archive.Event) int {
		return int(delivery.Sequence(a.Version)) - int(delivery.Sequence(b.Version))
	})
	for _, e := range events {
		a.Steps = append(a.Steps, []string{
			e.Order.String(),
			e.Account.String(),
			fmt.Sprint(delivery.Sequence(e.Version)),
			fmt.Sprint(e.Version),
			e.Status.String(),
			millis(e.At),
			string(e.Failure),
		})
	}

	for _, o := range r.outcomes {
		a.Attempts = append(a.Attempts, validate.Attempt{
			Account:  o.Account.String(),
			EventID:  o.EventID,
			State:    o.State,
			Attempt:  o.Attempt,
			Error:    o.Error,
			At:       o.At,
			Recorded: timeOfEntry(o.Entry),
			Probe:    o.Probe,
			Replay:   o.Replay,
		})
	}

	slices.SortFunc(a.Orders, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	slices.SortFunc(a.Attempts, func(a, b validate.Attempt) int { return a.At.Compare(b.At) })

	return a
}

func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprint(t.UnixMilli())
}

func amount(m delivery.Money) string {
	if !m.Set {
		return ""
	}
	return fmt.Sprint(m.Minor)
}

// timeOfEntry is when Redis has got an entry of a stream.
func timeOfEntry(id string) time.Time {
	text, _, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
