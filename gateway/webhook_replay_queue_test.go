package main

import (
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Times as clients write them.
func ago(d time.Duration) string { return delivery.FormatTime(time.Now().Add(-d)) }

func replaying(body string) func(*scene) answer {
	return calling("POST", "/api/vendor/v1/webhook/replay", body)
}

// webhookPath is where the admin API has an account's receiver.
func webhookPath(p party) string { return "/accounts/" + p.id + "/webhook" }

// receiver registers a receiver for the account.
func (w *world) receiver(account party) {
	w.Helper()
	w.admin("PUT", webhookPath(account), `{"url":"https://hooks.vendor.example/"}`)
}

// named is a further account of that name, with a receiver.
func (w *world) named(name string) party {
	w.Helper()
	account := w.newParty("vendor", "/accounts", "accountId", fmt.Sprintf(`{"name":%q}`, name))
	w.receiver(account)
	return account
}

// testEvents queues events for the account, and waits until they stand in its
// queue.
func (w *world) testEvents(account party, n int) {
	w.Helper()
	for range n {
		if a := w.send(request{method: "POST", url: w.vendor + "/api/vendor/v1/webhook/test", token: account.token}); a.status != 200 {
			w.Fatalf("%d %s", a.status, a.body)
		}
	}
	w.awaitWaiting(account, n)
}

func (w *world) awaitWaiting(account party, n int) {
	w.Helper()
	w.await(fmt.Sprintf("%d events wait", n), func() bool {
		return w.admin("GET", webhookPath(account), "").data["waitingEvents"] == float64(n)
	})
}

// queueing moves events from the streams to the queues of their receivers, until
// the test ends.
func (w *world) queueing() {
	w.Helper()
	l := w.ledger()
	w.Cleanup(w.feed(ledger.RoleWebhook, func(partition int, batch []ledger.Entry) error {
		_, err := l.QueueEvents(w.Context(), partition, batch, ledger.Grant{Lease: time.Minute})
		return err
	}))
}

// Failures in a row that open a breaker here.
const breakerAfter = 3

// attempts plays the worker's part: it takes n events of any account, as they
// come, and records what judge makes of each.
func (w *world) attempts(n int, judge func(*ledger.Delivery) ledger.Outcome) (made []*ledger.Delivery) {
	w.Helper()
	l := w.ledger()
	w.await(fmt.Sprintf("%d attempts", n), func() bool {
		for partition := range l.Partitions() {
			g := ledger.Grant{Limit: n - len(made), Share: 100, InFlight: 100, Lease: time.Minute}
			if g.Limit == 0 {
				break
			}
			ds, _, err := l.Lease(w.Context(), partition, g)
			if err != nil {
				w.Fatal(err)
			}
			results := make([]ledger.Result, len(ds))
			for i, d := range ds {
				results[i] = ledger.Result{Delivery: d, Outcome: judge(d)}
				results[i].Outcome.At = time.Now()
			}
			if len(ds) == 0 {
				continue
			}
			g.Limit = 0
			recorded, err := l.RecordAttempts(w.Context(), results, g, breakerAfter)
			if err != nil || slices.Contains(recorded.OK, false) {
				w.Fatalf("%v: %v", recorded.OK, err)
			}
			made = append(made, ds...)
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

// firstField is the first field of a VALIDATION_FAILED.
func (a answer) firstField() string {
	fields, ok := a.data["fields"].([]any)
	if !ok || len(fields) == 0 {
		return ""
	}
	return fields[0].(map[string]any)["field"].(string)
}
