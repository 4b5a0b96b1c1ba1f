package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
)

// The parts of the worker that tests of the gateway need, played with the ledger.

// owner takes all partitions for the test.
func (e *env) owner() *testenv.Owner {
	e.Helper()
	if e.worker == nil {
		var err error
		e.worker, err = testenv.NewOwner(e.feeds, e.ledger)
		if err != nil {
			e.Fatal(err)
		}
	}
	return e.worker
}

// playWorker lists new orders and decides updates until the test ends.
func (e *env) playWorker() {
	e.Helper()
	owner := e.owner()
	e.feeding.Go(func() {
		for e.feeds.Err() == nil {
			if _, err := owner.Decide(e.feeds, time.Second); err != nil && e.feeds.Err() == nil {
				e.Errorf("the owner ended: %v", err)
				return
			}
		}
	})
}

// take decides and schedules all that has come in.
func (e *env) take() {
	e.Helper()
	if _, err := e.owner().Send(e.Context(), 0, accepted); err != nil {
		e.Fatal(err)
	}
}

// events registers receivers for the accounts, and sends all that happened: n events.
func (e *env) events(n int, accounts ...party) (all []*partitions.Delivery) {
	e.Helper()
	for _, account := range accounts {
		if _, _, err := e.ledger.Webhooks.SetURL(e.Context(), account.accountID(), "https://vendor.example/"); err != nil {
			e.Fatal(err)
		}
	}

	for _, s := range e.attempts(n, accepted) {
		all = append(all, s.Delivery)
	}

	return all
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

// testEvents publishes events for the account, and schedules them.
func (e *env) testEvents(account party, n int) {
	e.Helper()
	for range n {
		want(e, e.as(e, account).call("POST", "/webhook/test", ""), 200, "")
	}
	e.take()
	e.health(account, "waitingEvents", n)
}

// opens opens the breaker of the account's receiver, as failures in a row do, and returns until when it holds.
func (e *env) opens(account party) (hold time.Time) {
	e.Helper()
	now := time.Now()
	hold = now.Add(time.Minute).Truncate(time.Millisecond)
	p, _ := e.stands(account)
	testenv.Must(e, testenv.Step(e.Context(), e.ledger, p, func(step *partitions.Step) {
		step.Endpoint(account.accountID(), &partitions.EndpointChange{
			Breaker: &partitions.Breaker{Open: true, Failures: 3, Since: now.UnixMilli(), Hold: hold.UnixMilli()}})
	}))

	return hold
}

// stands is what is stored about the account's receiver, and in which partition.
func (e *env) stands(account party) (partition int, facts *partitions.Facts) {
	e.Helper()
	var endpoints []partitions.EndpointAt
	for p := range e.ledger.Partitions() {
		endpoints = append(endpoints, partitions.EndpointAt{Partition: p, Account: account.accountID()})
	}

	found, err := e.ledger.Ownership.EndpointFacts(e.Context(), endpoints)
	testenv.Must(e, err)
	for p, facts := range found {
		if facts.URL != "" {
			return p, facts
		}
	}

	e.Fatalf("%s has no receiver", account.id)

	return 0, nil
}

// attempts sends n events of any account, as they are due, of which outcome says what becomes.
func (e *env) attempts(n int, outcome func(*partitions.Scheduled) partitions.AttemptRecord) (made []*partitions.Scheduled) {
	e.Helper()
	e.take()
	for len(made) < n {
		sent, err := e.owner().Send(e.Context(), n-len(made), outcome)
		if err != nil {
			e.Fatal(err)
		}
		made = append(made, sent...)
		if len(sent) == 0 {
			e.Fatalf("%d of %d events are due", len(made), n)
		}
	}

	return made
}

// What a receiver may do with an event.
func accepted(*partitions.Scheduled) partitions.AttemptRecord {
	return partitions.AttemptRecord{State: partitions.StateDelivered, HTTPStatus: 200}
}

func failed(*partitions.Scheduled) partitions.AttemptRecord {
	return partitions.AttemptRecord{State: partitions.StateRetrying, HTTPStatus: 500, Error: "status: 500", Answer: "out of order", NextAt: time.Now().Add(time.Hour)}
}

func givenUp(*partitions.Scheduled) partitions.AttemptRecord {
	return partitions.AttemptRecord{State: partitions.StateUndelivered, HTTPStatus: 500, Error: "status: 500"}
}

func wentAway(*partitions.Scheduled) partitions.AttemptRecord {
	return partitions.AttemptRecord{State: partitions.StateRetrying, HTTPStatus: 410, Error: "status: 410", NextAt: time.Now().Add(time.Hour)}
}

// eventsOf are the ids of the account's events among those attempted, in order.
func eventsOf(made []*partitions.Scheduled, account party) (ids []string) {
	for _, s := range made {
		if s.Delivery.Account.String() == account.id {
			ids = append(ids, s.Delivery.EventID)
		}
	}
	return ids
}
