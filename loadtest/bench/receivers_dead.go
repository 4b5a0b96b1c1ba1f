// This file makes dead receivers: accounts whose receivers do not take webhooks, and what waits for them after a day
// of that.

package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
)

// Receivers are those of accounts that are healthy until they are dead. They share two addresses, and each has a path of
// its own: a worker keeps the connections of each URL apart, so that is the same to it as many machines.
type receivers struct {
	vendors []*vendor
	dead    atomic.Bool // until then every receiver answers 204
	stop    func()      // of the server
}

// How a receiver is dead. Of each partition's accounts half are silent, a quarter refuses connections and a quarter
// answers 500.
const (
	silentPath = "/silent/"
	failsPath  = "/fails/"
)

// addReceivers registers accounts, spread evenly over the partitions, whose receivers answer; with refusing, those of one
// in four do not listen, and one in four will answer 500 instead of being silent.
func (b *book) addReceivers(ctx context.Context, n int, refusing bool) *receivers {
	r := &receivers{vendors: make([]*vendor, n)}
	listener := got(net.Listen("tcp", "127.0.0.1:0"))
	r.stop = serveHTTP(listener, r.serve)
	listens := "http://" + listener.Addr().String()
	refuses := "http://" + stack.FreeAddr()

	group, working := errgroup.WithContext(ctx)
	group.SetLimit(64)
	for i := range r.vendors {
		url := listens + silentPath
		if refusing {
			// Accounts in a row are of all partitions.
			url = []string{listens + silentPath, refuses + "/", listens + silentPath, listens + failsPath}[i/partitionCount%4]
		}

		url += strconv.Itoa(i)

		v := &vendor{account: accountIn(i % partitionCount)}
		r.vendors[i] = v
		group.Go(func() error {
			return caught(func() {
				b.addAccount(working, v.account, time.Now())
				_, _, err := b.Webhooks.SetURL(working, v.account, url)
				must(err)
			})
		})
	}

	must(group.Wait())

	return r
}

// serve takes a webhook as the receiver of its path does.
func (r *receivers) serve(c *fasthttp.RequestCtx) {
	path := string(c.Path())
	switch {
	case !r.dead.Load():
		c.SetStatusCode(fasthttp.StatusNoContent)
	case strings.HasPrefix(path, failsPath):
		c.SetStatusCode(fasthttp.StatusInternalServerError)
	default:
		// The connection stays open, without an answer, until the other side closes it.
		c.HijackSetNoResponse(true)
		c.Hijack(func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	}
}

const (
	// oldest and youngest are how long ago the events happened that wait: no event's 24 hours end in the run.
	oldest, youngest = 20 * time.Hour, time.Hour
	// deadFor is for how long the receivers have been dead.
	deadFor = 21 * time.Hour
	// probeEvery is how long the worker waits between two probes of a receiver that is dead for long.
	probeEvery = 30 * time.Second
)

// letWait makes so many events for each of the accounts, and leaves them in Redis as after a day of dead receivers: the
// orders have ended; all of their events stand in the schedules, have been tried, and nine of ten are overdue, because
// a dead receiver gets two attempts a minute; the streams are worked off; every breaker is open, and the next probes
// are spread over half a minute. No worker runs. The attempt logs, which only people read, stay empty.
func (b *book) letWait(ctx context.Context, r *receivers, events int) {
	last := make(map[int]string) // entry of each partition's events
	// Accounts in a row are of different partitions, so each round trip writes one step for each partition.
	for some := range slices.Chunk(r.vendors, partitionCount) {
		age := youngest + rand.N(oldest-youngest)
		orders := b.createOrders(ctx, some, len(some)*events/eventsPerOrder, time.Now().Add(-age))
		for partition, entry := range b.deliverInVain(ctx, orders, time.Now().Add(-age)) {
			last[partition] = entry
		}
	}

	tokens := got(b.Ownership.Tokens(ctx))
	var steps []*partitions.Step
	for partition, entry := range last {
		step := b.Ownership.Step(partition, got(tokens[partition].Token()))
		step.Token.Events, step.Token.Webhooks = entry, entry
		step.Positions(partitions.Counts{Events: -1, Updates: -1, Webhooks: -1}) // how many entries that is is not known
		for i := partition; i < len(r.vendors); i += partitionCount {
			step.Endpoint(r.vendors[i].account, longDead())
		}
		steps = append(steps, step)
	}

	must(errors.Join(b.Ownership.Advance(ctx, steps)...))
	r.dead.Store(true)
}

// longDead is what is stored of an endpoint whose receiver is dead for deadFor.
func longDead() *partitions.EndpointChange {
	now, since := time.Now(), time.Now().Add(-deadFor).UnixMilli()
	probes := uint16(deadFor / probeEvery)
	return &partitions.EndpointChange{
		State:      partitions.EndpointFailing,
		StateSince: since,
		Breaker: &partitions.Breaker{
			Open:     true,
			Since:    since,
			Hold:     now.Add(rand.N(probeEvery)).UnixMilli(),
			Failures: probes + 5,
			Probes:   probes,
		},
	}
}

// deliverInVain takes orders to Delivered, at most one account's of each partition, and their events to the schedules
// of their accounts. It returns the entries of the partitions' events that it has written.
func (b *book) deliverInVain(ctx context.Context, orders []*order, at time.Time) map[int]string {
	delivered := delivery.Update{
		Kind:     delivery.KindStatus,
		Status:   delivery.Delivered,
		At:       at,
		Location: delivery.Location{Point: place, At: at},
		Courier:  courier,
	}

	tokens := got(b.Ownership.Tokens(ctx))
	steps := make(map[int]*partitions.Step)
	for _, o := range orders {
		p := o.state.ID.Partition()
		if steps[p] == nil {
			steps[p] = b.Ownership.Step(p, got(tokens[p].Token()))
		}
		o.advance(steps[p], delivered)
	}

	var all []*partitions.Step
	for _, step := range steps {
		waiting := make([]partitions.Scheduled, len(step.Published))
		for i, d := range step.Published {
			waiting[i] = tried(d, i)
		}
		step.Schedule(step.Published[0].Account, false, waiting)
		all = append(all, step)
	}

	must(errors.Join(b.Ownership.Advance(ctx, all)...))

	written := make(map[int]string)
	for p, step := range steps {
		written[p] = step.Batch
	}

	return written
}

// tried is event n of a schedule, which has been sent in vain one to six times.
func tried(d *partitions.Delivery, n int) partitions.Scheduled {
	due := d.OccurredAt.Add(rand.N(time.Since(d.OccurredAt)))
	isOverdue := n%10 != 0
	if !isOverdue {
		due = time.Now().Add(rand.N(4 * time.Hour))
	}
	return partitions.Scheduled{Key: d.Key, Due: due.UnixMilli(), Attempts: 1 + n%6}
}
