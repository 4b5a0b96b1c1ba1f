package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// The parts of the worker that tests of the gateway need, played with the ledger.

// feed consumes a role's entries until the test ends.
func (e *env) feed(role ledger.Role, handle func(partition int, batch []ledger.Entry) error) {
	e.Helper()
	e.feeding.Go(func() {
		_ = e.ledger.Streams.Run(e.feeds, ledger.Feed{
			Role: role, Consumer: "test", Log: func(string, ...any) {},
			Handle: func(_ context.Context, batch []ledger.Entry) error { return handle(batch[0].Partition, batch) },
		})
	})
}

// playStatusWorker indexes new orders and decides updates until the test ends.
func (e *env) playStatusWorker() {
	e.Helper()
	e.feed(ledger.RoleStatus, func(partition int, batch []ledger.Entry) error {
		var events []ledger.Entry
		for _, entry := range batch {
			if entry.Update == nil {
				events = append(events, entry)
				continue
			}
			order, err := e.ledger.Orders.Get(e.feeds, entry.Update.Order)
			if err != nil {
				return err
			}
			decision := delivery.Decide(order, *entry.Update, time.Now())
			commit := ledger.Commit{Order: order, Changes: decision.Changes, Settles: []ledger.Entry{entry}}
			if decision.Action == delivery.Swap {
				commit.Swap = &entry.Update.Courier
			}
			if _, err := e.ledger.Lifecycle.Commit(e.feeds, []ledger.Commit{commit}); err != nil {
				return err
			}
		}
		if len(events) == 0 {
			return nil
		}
		return e.ledger.Lifecycle.IndexJobs(e.feeds, partition, events)
	})
}

// queueEvents moves events from the streams to the queues of their receivers until
// the test ends.
func (e *env) queueEvents() {
	e.Helper()
	e.feed(ledger.RoleWebhook, func(partition int, batch []ledger.Entry) error {
		_, err := e.ledger.Queue.Add(e.feeds, partition, batch, ledger.Grant{Lease: time.Minute})
		return err
	})
}

// events registers receivers for the accounts and takes all events of the streams:
// at least n. A test can ask once.
func (e *env) events(n int, accounts ...party) (all []*ledger.Delivery) {
	e.Helper()
	for _, account := range accounts {
		if _, _, err := e.ledger.Webhooks.SetURL(e.Context(), account.accountID(), "https://vendor.example/"); err != nil {
			e.Fatal(err)
		}
	}
	var mu sync.Mutex
	e.feed(ledger.RoleWebhook, func(partition int, batch []ledger.Entry) error {
		leased, err := e.ledger.Queue.Add(e.feeds, partition, batch, ledger.Grant{Limit: 100, Share: 100, InFlight: 100, Lease: time.Minute})
		mu.Lock()
		defer mu.Unlock()
		all = append(all, leased.Deliveries...)
		return err
	})
	e.await(fmt.Sprintf("%d events or more", n), func() bool {
		s, err := e.ledger.Monitor.Stats(e.Context())
		if err != nil {
			e.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return len(all) >= n && s.Unread[ledger.RoleWebhook] == 0 && s.Pending[ledger.RoleWebhook] == 0
	})
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(all)
}

// wantEvents expects exactly these kinds of events in the streams.
func (e *env) wantEvents(wanted map[party][]delivery.EventType) {
	e.Helper()
	n, got := 0, map[string][]delivery.EventType{}
	for _, kinds := range wanted {
		n += len(kinds)
	}
	for _, d := range e.events(n, slices.Collect(maps.Keys(wanted))...) {
		got[d.Account.String()] = append(got[d.Account.String()], d.Type)
	}
	for account, kinds := range wanted {
		slices.Sort(kinds)
		slices.Sort(got[account.id])
		if !slices.Equal(kinds, got[account.id]) {
			e.Errorf("events of %s: %v, want %v", account.id, got[account.id], kinds)
		}
	}
}

// webhookPath is where the admin API has an account's receiver.
func webhookPath(p party) string { return "/accounts/" + p.id + "/webhook" }

// receiver registers a receiver for the account.
func (e *env) receiver(account party) {
	e.Helper()
	e.admin("PUT", webhookPath(account), `{"url":"https://hooks.vendor.example/"}`)
}

// named is a further account of that name, with a receiver.
func (e *env) named(name string) party {
	e.Helper()
	account := e.newParty("vendor", "/accounts", "accountId", fmt.Sprintf(`{"name":%q}`, name))
	e.receiver(account)
	return account
}

// testEvents queues events for the account, and waits until they are in its queue.
func (e *env) testEvents(account party, n int) {
	e.Helper()
	for range n {
		want(e, e.as(e, account).call("POST", "/webhook/test", ""), 200, "")
	}
	e.awaitWaiting(account, n)
}

func (e *env) awaitWaiting(account party, n int) {
	e.Helper()
	e.await(fmt.Sprintf("%d events wait", n), func() bool {
		return e.admin("GET", webhookPath(account), "").data["waitingEvents"] == float64(n)
	})
}

// breakerAfter is how many failures in a row open a breaker here.
const breakerAfter = 3

// attempts takes n events of any account, as they come, and records what outcome
// makes of each.
func (e *env) attempts(n int, outcome func(*ledger.Delivery) ledger.Outcome) (made []*ledger.Delivery) {
	e.Helper()
	now := time.Now
	if e.clock != nil {
		now = e.clock.now
	}
	e.await(fmt.Sprintf("%d attempts", n), func() bool {
		for partition := range e.ledger.Partitions() {
			g := ledger.Grant{Limit: n - len(made), Share: 100, InFlight: 100, Lease: time.Minute}
			if g.Limit == 0 {
				break
			}
			leased, _, err := e.ledger.Queue.Lease(e.Context(), partition, g)
			if err != nil {
				e.Fatal(err)
			}
			results := make([]ledger.Result, len(leased))
			for i, d := range leased {
				results[i] = ledger.Result{Delivery: d, Outcome: outcome(d)}
				results[i].Outcome.At = now()
			}
			if len(leased) == 0 {
				continue
			}
			g.Limit = 0
			recorded, err := e.ledger.Queue.Record(e.Context(), results, g, breakerAfter)
			if err != nil || slices.Contains(recorded.OK, false) {
				e.Fatalf("%v: %v", recorded.OK, err)
			}
			made = append(made, leased...)
		}
		if e.clock != nil && len(made) < n {
			e.clock.pass(e, 100*time.Millisecond) // what the pace of a recovery holds back is due soon
		}
		return len(made) == n
	})
	return made
}

// What a receiver may do with an event.
func accepted(*ledger.Delivery) ledger.Outcome { return ledger.Outcome{OK: true, Status: 200} }

func failed(*ledger.Delivery) ledger.Outcome {
	return ledger.Outcome{Status: 500, Error: "status: 500", Answer: []byte("out of order"), Retry: time.Now().Add(time.Hour)}
}

func givenUp(*ledger.Delivery) ledger.Outcome {
	return ledger.Outcome{Status: 500, Error: "status: 500"}
}

func wentAway(*ledger.Delivery) ledger.Outcome {
	return ledger.Outcome{Status: 410, Error: "status: 410", Gone: true, Retry: time.Now().Add(time.Hour)}
}

// eventsOf are the ids of the account's events among those attempted, in order.
func eventsOf(made []*ledger.Delivery, account party) (ids []string) {
	for _, d := range made {
		if d.Account.String() == account.id {
			ids = append(ids, d.EventID)
		}
	}
	return ids
}
