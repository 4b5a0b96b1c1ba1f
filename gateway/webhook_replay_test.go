package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// replay calls the vendor's own endpoint.
func (w *world) replay(account party, body string) answer {
	w.Helper()
	return w.send(request{method: "POST", url: w.vendor + "/api/vendor/v1/webhook/replay", token: account.token, body: body})
}

func since(at time.Time) string { return `{"since":"` + delivery.FormatTime(at) + `"}` }

// replayed calls the admin API and returns how many events were queued.
func (w *world) replayed(account party, body string) any {
	w.Helper()
	return w.admin("POST", webhookPath(account)+"/replay", body).data["replayed"]
}

func TestReplay_VendorGetsItsOwnEventsSinceATime(t *testing.T) {
	s := newScene(t, "")
	other := s.freshAccount()
	s.receiver(s.account)
	s.receiver(other)
	s.queueing()
	s.cancel(s.created("POS-1"), "")
	s.attempts(3, accepted)          // with the activation of each account's store
	time.Sleep(5 * time.Millisecond) // the streams count in milliseconds
	mark := time.Now()
	time.Sleep(5 * time.Millisecond)
	for i := range 3 {
		s.cancel(s.created(fmt.Sprint("POS-", 2+i)), "")
	}
	s.testEvents(other, 1)
	first := s.attempts(4, accepted)

	for form, body := range map[string]string{
		"+03:00":            since(mark),
		"Z":                 `{"since":"` + mark.UTC().Format("2006-01-02T15:04:05.000Z") + `"}`,
		"none, so local":    `{"since":"` + mark.In(delivery.Istanbul).Format("2006-01-02T15:04:05.000") + `"}`,
		"and unknown field": `{"since":"` + delivery.FormatTime(mark) + `","eventIds":["evt_1"]}`,
	} {
		if a := s.replay(s.account, body); a.status != 200 || a.body != `{"success":true,"data":{"replayed":3}}` || !a.quota() {
			t.Fatalf("%s: %d %s", form, a.status, a.body)
		}
		again := s.attempts(3, accepted)
		if got, want := eventsOf(again, s.account), eventsOf(first, s.account); !slices.Equal(got, want) {
			t.Errorf("%s: replayed %v, want %v", form, got, want)
		}
		for _, d := range again {
			if !d.Replay || d.Attempt != 1 || time.Until(d.Deadline) < 23*time.Hour {
				t.Errorf("%s: %+v", form, d)
			}
		}
	}
	lines := s.admin("GET", webhookPath(s.account)+"/deliveries", "").data["deliveries"].([]any)
	if line := lines[0].(map[string]any); line["replay"] != true || line["status"] != "delivered" {
		t.Errorf("the log does not tell of the replay: %v", line)
	}
	if a := s.admin("GET", webhookPath(other)+"/deliveries", ""); len(a.data["deliveries"].([]any)) != 2 {
		t.Errorf("the other account got something: %s", a.body)
	}
}

func TestReplay_OfNothing(t *testing.T) {
	w := newWorld(t)
	account := w.named("Idle")
	if a := w.replay(account, since(time.Now().Add(-time.Hour))); a.status != 200 || a.data["replayed"] != 0.0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, body := range []string{since(time.Now()), `{"status":"undelivered"}`, `{"status":"notSent"}`} {
		if n := w.replayed(account, body); n != 0.0 {
			t.Errorf("%s: %v", body, n)
		}
	}
}

// A little older than a day is a slow clock, not a mistake.
func TestReplay_ClocksMayDifferByAMinute(t *testing.T) {
	w := newWorld(t)
	account := w.named("Skewed")
	for offset, status := range map[time.Duration]int{
		-24*time.Hour - 50*time.Second: 200, 50 * time.Second: 200,
		-24*time.Hour - 70*time.Second: 422, 70 * time.Second: 422,
	} {
		body := since(time.Now().Add(offset))
		a := w.replay(account, body)
		if a.status != status || status == 422 && !strings.HasPrefix(a.message, "since must not ") {
			t.Errorf("vendor, %s: %d %s", offset, a.status, a.body)
		}
		if a := w.tryAdmin("POST", webhookPath(account)+"/replay", body); a.status != status {
			t.Errorf("admin, %s: %d %s", offset, a.status, a.body)
		}
	}
}

//rule:limits-and-idempotency/the-webhook-endpoints-count-in
func TestReplay_CountsInTheStoresBucket(t *testing.T) {
	w := newWorld(t)
	account := w.newAccount(`{"stores":{"sustained":{"count":4,"seconds":3600},"burst":{"count":4,"seconds":3600}}}`)
	w.receiver(account)
	for i, body := range []string{since(time.Now()), `{"since":"tomorrow"}`, `{`, `{}`} {
		a := w.replay(account, body)
		if a.status == 429 || headerInt(a, "X-RateLimit-Limit") != 4 || headerInt(a, "X-RateLimit-Remaining") != 3-i {
			t.Errorf("%s: %d %s %v", body, a.status, a.body, a.header)
		}
	}
	a := w.replay(account, since(time.Now()))
	if a.status != 429 || a.code != "RATE_LIMITED" || headerInt(a, "Retry-After") < 1 || headerInt(a, "X-RateLimit-Remaining") != 0 {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	if a := w.putStore(account, "s1", storeBody(kadikoy, "")); a.status != 429 {
		t.Errorf("PUT /stores: %d %s", a.status, a.body)
	}
	if n := w.replayed(account, since(time.Now())); n != 0.0 {
		t.Errorf("an operator's replay: %v", n)
	}
}

func TestReplay_SuspendedAccount(t *testing.T) {
	w := newWorld(t)
	w.queueing()
	account := w.named("Suspended")
	w.testEvents(account, 1)
	w.attempts(1, accepted)
	w.admin("PATCH", "/accounts/"+account.id, `{"suspended":true}`)
	for _, body := range []string{since(time.Now()), `{}`} {
		if a := w.replay(account, body); a.status != 403 || a.code != "ACCOUNT_SUSPENDED" || !a.quota() {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if n := w.replayed(account, since(time.Now().Add(-time.Hour))); n != 1.0 {
		t.Errorf("operators may still replay: %v", n)
	}
}

// However many are asked for at once, one runs at a time, nothing is queued for
// those that are refused, and the next one after them is let in.
func TestReplay_OneAtATime(t *testing.T) {
	s := newScene(t, `{"stores":{"sustained":{"count":100000,"seconds":60},"burst":{"count":100000,"seconds":60}}}`)
	s.receiver(s.account)
	s.queueing()
	s.cancel(s.created("POS-1"), "")
	const each = 2 // with the activation of the store
	s.attempts(each, accepted)
	day := since(time.Now().Add(-time.Hour))

	var queued, refused atomic.Int64
	var group sync.WaitGroup
	end := time.Now().Add(10 * time.Second)
	for client := range 8 {
		group.Go(func() {
			for refused.Load() == 0 && time.Now().Before(end) {
				a, err := s.tryReplay(client%2 == 0, day)
				switch {
				case err != nil:
					t.Error(err)
				case a.status == 200:
					queued.Add(int64(a.data["replayed"].(float64)))
				case a.status == 429 && a.code == "RATE_LIMITED" && strings.Contains(a.message, "another replay"):
					refused.Add(1)
					if wait := headerInt(a, "Retry-After"); wait < 1 || wait > 60 || a.data["retryAfterSeconds"] != float64(wait) {
						t.Errorf("%s %v", a.body, a.header)
					}
				default:
					t.Errorf("%d %s", a.status, a.body)
				}
			}
		})
	}
	group.Wait()
	if refused.Load() == 0 {
		t.Fatal("no two replays met in ten seconds")
	}
	if a := s.replay(s.account, day); a.status != 200 {
		t.Fatalf("after the others: %d %s", a.status, a.body)
	}
	s.awaitWaiting(s.account, int(queued.Load())+each)
}

func (s *scene) tryReplay(vendor bool, body string) (answer, error) {
	if vendor {
		return s.try(request{method: "POST", url: s.vendor + "/api/vendor/v1/webhook/replay", token: s.account.token, body: body})
	}
	return s.try(request{method: "POST", url: s.private + "/api/admin/v1" + webhookPath(s.account) + "/replay", token: adminKey, body: body})
}

//rule:admin-api/post-accounts-id-webhook-replay
func TestAdminReplay_ByEventIDs(t *testing.T) {
	w := newWorld(t)
	w.queueing()
	account, other := w.named("One"), w.named("Other")
	w.testEvents(account, 3)
	w.testEvents(other, 1)
	made := w.attempts(4, accepted)
	ids, foreign := eventsOf(made, account), eventsOf(made, other)[0]
	path := webhookPath(account) + "/replay"

	if n := w.replayed(account, fmt.Sprintf(`{"eventIds":[%q,%q,%q]}`, ids[2], ids[0], ids[2])); n != 2.0 {
		t.Errorf("replayed %v; an event that is named twice goes once", n)
	}
	if got, want := eventsOf(w.attempts(2, accepted), account), []string{ids[2], ids[0]}; !slices.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
	for name, id := range map[string]string{"unknown": "evt_none", "another account's": foreign, "no id": "x"} {
		a := w.tryAdmin("POST", path, fmt.Sprintf(`{"eventIds":[%q,%q]}`, ids[0], id))
		if a.status != 404 || a.code != "EVENT_NOT_FOUND" || !strings.Contains(a.message, id) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	w.awaitWaiting(account, 0) // nothing of a refused list is queued
	w.awaitWaiting(other, 0)
}

func TestAdminReplay_ByOutcome(t *testing.T) {
	w := newWorld(t)
	w.queueing()
	account, other := w.newParty("vendor", "/accounts", "accountId", `{"name":"One"}`), w.named("Other")
	id := accountID(t, account)
	for range 2 { // while no receiver is registered
		notice := ledger.Notice{Account: id, Type: delivery.StoreActivated, OccurredAt: time.Now(), Data: []byte(`{}`)}
		if err := w.ledger().Publish(t.Context(), notice); err != nil {
			t.Fatal(err)
		}
	}
	w.await("events are recorded as not sent", func() bool {
		return len(w.admin("GET", webhookPath(account)+"/deliveries?status=notSent", "").data["deliveries"].([]any)) == 2
	})
	w.receiver(account)
	w.testEvents(account, 4)
	w.testEvents(other, 1)
	delivered := 0
	undelivered := eventsOf(w.attempts(5, func(d *ledger.Delivery) ledger.Outcome {
		if d.Account == id && delivered == 0 {
			delivered++
			return accepted(d)
		}
		return givenUp(d)
	}), account)[1:]
	time.Sleep(5 * time.Millisecond)
	after := delivery.FormatTime(time.Now())

	if n := w.replayed(account, `{"status":"undelivered","since":"`+after+`"}`); n != 0.0 {
		t.Errorf("since then: %v", n)
	}
	if n := w.replayed(account, `{"status":"undelivered"}`); n != 3.0 {
		t.Errorf("undelivered: %v", n)
	}
	if got := eventsOf(w.attempts(3, accepted), account); !slices.Equal(got, undelivered) {
		t.Errorf("sent %v, want %v", got, undelivered)
	}
	if n := w.replayed(account, `{"status":"notSent","since":"`+ago(time.Hour)+`"}`); n != 2.0 {
		t.Errorf("notSent: %v", n)
	}
	for _, d := range w.attempts(2, accepted) {
		if d.Type != delivery.StoreActivated || !d.Replay {
			t.Errorf("%+v", d)
		}
	}
	// Delivered by now, so that was not their final outcome.
	for _, status := range []string{"undelivered", "notSent"} {
		if n := w.replayed(account, `{"status":"`+status+`"}`); n != 0.0 {
			t.Errorf("%s once more: %v", status, n)
		}
	}
	if n := w.replayed(other, `{"status":"undelivered"}`); n != 1.0 {
		t.Errorf("the other account's: %v", n)
	}
}

func TestAdminReplay_Refusals(t *testing.T) {
	w := newWorld(t)
	account := w.named("One")
	path := webhookPath(account) + "/replay"
	hour, many := ago(time.Hour), `"evt_1"`+strings.Repeat(`,"evt_1"`, maxReplayed)
	for body, field := range map[string]string{
		`{}`:                                    "eventIds",
		`{"eventIds":null,"since":null}`:        "eventIds",
		`{"eventIds":[]}`:                       "eventIds",
		`{"eventIds":"evt_1"}`:                  "eventIds",
		`{"eventIds":{}}`:                       "eventIds",
		`{"eventIds":[1]}`:                      "eventIds[0]",
		`{"eventIds":["evt_1",""]}`:             "eventIds[1]",
		`{"eventIds":["evt_1",null]}`:           "eventIds[1]",
		`{"eventIds":[` + many + `]}`:           "eventIds",
		`{"since":1}`:                           "since",
		`{"since":""}`:                          "since",
		`{"since":"yesterday"}`:                 "since",
		`{"since":"2026-02-30T12:00:00Z"}`:      "since",
		`{"since":"` + ago(25*time.Hour) + `"}`: "since",
		`{"since":"` + ago(-time.Hour) + `"}`:   "since",
		`{"status":1}`:                          "status",
		`{"status":""}`:                         "status",
		`{"status":"delivered"}`:                "status",
		`{"status":"Undelivered"}`:              "status",
		`{"status":["undelivered"]}`:            "status",
		`{"status":"undelivered","since":1}`:    "since",
		`{"status":"undelivered","since":"` + ago(25*time.Hour) + `"}`: "since",
		`{"status":"lost","since":"` + hour + `"}`:                     "status",
		`{"eventIds":["evt_1"],"since":"` + hour + `"}`:                "eventIds",
		`{"eventIds":["evt_1"],"status":"undelivered"}`:                "eventIds",
	} {
		if a := w.tryAdmin("POST", path, body); a.status != 422 || a.firstField() != field || a.message == "" {
			t.Errorf("%.80s: %d %.300s", body, a.status, a.body)
		}
	}
	for body, code := range map[string]string{`{`: "MALFORMED_REQUEST", `[]`: "MALFORMED_REQUEST", `{"since":"a","since":"b"}`: "MALFORMED_REQUEST"} {
		if a := w.tryAdmin("POST", path, body); a.status != 400 || a.code != code {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	bare := w.newAccount("")
	for _, body := range []string{`{"since":"` + hour + `"}`, `{"status":"undelivered"}`} {
		if a := w.tryAdmin("POST", webhookPath(bare)+"/replay", body); a.status != 404 || a.code != "WEBHOOK_NOT_CONFIGURED" {
			t.Errorf("no receiver, %s: %d %s", body, a.status, a.body)
		}
	}
	for name, token := range map[string]string{"none": "", "a vendor's": account.token} {
		a := w.send(request{method: "POST", url: w.private + "/api/admin/v1" + path, token: token, body: `{"status":"undelivered"}`})
		if a.status != 401 || a.code != "TOKEN_INVALID" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}
