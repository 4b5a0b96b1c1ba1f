package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/testenv/testserver"
)

// ago is a time as clients write it.
func ago(d time.Duration) string { return delivery.FormatTime(time.Now().Add(-d)) }

func since(at time.Time) string { return `{"since":"` + delivery.FormatTime(at) + `"}` }

func replaying(body string) func(*env) answer {
	return calling("POST", "/api/vendor/v1/webhook/replay", body)
}

// replayed calls the admin API and expects that so many events are queued.
func (e *env) replayed(account party, body string, n int) {
	e.Helper()
	want(e, e.tryAdmin("POST", webhookPath(account)+"/replay", body), 200, "", "replayed", n)
}

// between is a time after all that was written before and before what is written
// next: the streams count in milliseconds of the server's clock, which is this
// machine's.
func (e *env) between() time.Time {
	e.Helper()
	begun := time.Now().UnixMilli()
	e.await("the next millisecond but one", func() bool { return time.Now().UnixMilli() > begun+1 })
	return time.UnixMilli(begun + 1)
}

func TestReplay_VendorGetsItsOwnEventsSinceATime(t *testing.T) {
	e := newStoreEnv(t, "")
	other := e.freshAccount()
	e.receiver(e.account)
	e.receiver(other)
	e.cancel(e.created("POS-1"), "")
	e.attempts(3, accepted) // with the activation of each account's store
	mark := e.between()
	for i := range 3 {
		e.cancel(e.created(fmt.Sprint("POS-", 2+i)), "")
	}

	e.testEvents(other, 1)
	first := e.attempts(4, accepted)

	for form, body := range map[string]string{
		"+03:00":            since(mark),
		"Z":                 `{"since":"` + mark.UTC().Format("2006-01-02T15:04:05.000Z") + `"}`,
		"none, so local":    `{"since":"` + mark.In(delivery.Istanbul).Format("2006-01-02T15:04:05.000") + `"}`,
		"and unknown field": `{"since":"` + delivery.FormatTime(mark) + `","eventIds":["evt_1"]}`,
	} {
		if a := e.call("POST", "/webhook/replay", body); a.status != 200 || a.body != `{"success":true,"data":{"replayed":3}}` || !a.quota() {
			t.Fatalf("%s: %d %s", form, a.status, a.body)
		}

		again := e.attempts(3, accepted)
		if got, wanted := eventsOf(again, e.account), eventsOf(first, e.account); !slices.Equal(got, wanted) {
			t.Errorf("%s: replayed %v, want %v", form, got, wanted)
		}

		for _, s := range again {
			if s.ReplayedAt == 0 || s.Attempts != 0 || time.Until(s.Delivery.Deadline()) < 23*time.Hour {
				t.Errorf("%s: %+v", form, s)
			}
		}
	}

	wantMembers(t, "the log", e.admin("GET", webhookPath(e.account)+"/deliveries", "").list("deliveries")[0], "replay", true, "status", "delivered")
	if lines := e.admin("GET", webhookPath(other)+"/deliveries", "").list("deliveries"); len(lines) != 2 {
		t.Errorf("the other account got something: %v", lines)
	}
}

func TestReplay_OfNothing(t *testing.T) {
	e := newEnv(t)
	e.account = e.named("Idle")
	want(t, e.call("POST", "/webhook/replay", since(time.Now().Add(-time.Hour))), 200, "", "replayed", 0)
	for _, body := range []string{since(time.Now()), `{"status":"undelivered"}`, `{"status":"notSent"}`} {
		e.replayed(e.account, body, 0)
	}
}

// A little older than a day is a slow clock, not a mistake. A request has half a
// minute to arrive here.
func TestReplay_ClocksMayDifferByAMinute(t *testing.T) {
	e := newEnv(t)
	e.account = e.named("Skewed")
	for offset, refused := range map[time.Duration]bool{
		-24*time.Hour - 30*time.Second: false, 50 * time.Second: false,
		-24*time.Hour - 70*time.Second: true, 90 * time.Second: true,
	} {
		body := since(time.Now().Add(offset))
		for _, a := range []answer{e.call("POST", "/webhook/replay", body), e.tryAdmin("POST", webhookPath(e.account)+"/replay", body)} {
			if (a.status == 422) != refused || !refused && a.status != 200 || refused && !strings.HasPrefix(a.message, "since must not ") {
				t.Errorf("%s: %d %s", offset, a.status, a.body)
			}
		}
	}
}

//rule:limits-and-idempotency/the-webhook-endpoints-count-in
func TestReplay_CountsInTheStoresBucket(t *testing.T) {
	e := newEnv(t)
	e.account = e.newAccount(`{"stores":{"sustained":{"count":4,"seconds":86400},"burst":{"count":4,"seconds":86400}}}`)
	e.receiver(e.account)
	for i, body := range []string{since(time.Now()), `{"since":"tomorrow"}`, `{`, `{}`} {
		a := e.call("POST", "/webhook/replay", body)
		if a.status == 429 || headerInt(a, "X-RateLimit-Limit") != 4 || headerInt(a, "X-RateLimit-Remaining") != 3-i {
			t.Errorf("%s: %d %s %v", body, a.status, a.body, a.header)
		}
	}

	a := want(t, e.call("POST", "/webhook/replay", since(time.Now())), 429, "RATE_LIMITED")
	if headerInt(a, "Retry-After") < 1 || headerInt(a, "X-RateLimit-Remaining") != 0 {
		t.Errorf("%v", a.header)
	}

	want(t, e.putStore(e.account, "s1", storeBody(kadikoy, "")), 429, "RATE_LIMITED")
	e.replayed(e.account, since(time.Now()), 0) // an operator's
}

// A replay counts by what it reads: each thousand events as one request.
func TestReplay_EachPageCountsAsARequest(t *testing.T) {
	e := newEnv(t)
	e.account = e.newAccount(`{"stores":{"sustained":{"count":2,"seconds":86400},"burst":{"count":2,"seconds":86400}}}`)
	e.receiver(e.account)
	for range 2001 {
		if _, err := e.ledger.Webhooks.QueueTest(e.Context(), e.account.accountID(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}

	a := want(t, e.call("POST", "/webhook/replay", since(time.Now().Add(-time.Hour))), 429, "RATE_LIMITED")
	if headerInt(a, "Retry-After") < 1 || headerInt(a, "X-RateLimit-Remaining") != 0 || !strings.Contains(a.message, "ask for the rest with that time as since") {
		t.Errorf("%s %v", a.body, a.header)
	}

	waiting := e.admin("GET", webhookPath(e.account), "").data["waitingEvents"]
	if waiting != 2000.0 {
		t.Errorf("%v events are queued, want those of two pages", waiting)
	}

	e.replayed(e.account, since(time.Now().Add(-time.Hour)), 2001) // an operator's
}

func TestReplay_SuspendedAccount(t *testing.T) {
	e := newEnv(t)
	e.account = e.named("Suspended")
	e.testEvents(e.account, 1)
	e.attempts(1, accepted)
	e.admin("PATCH", "/accounts/"+e.account.id, `{"suspended":true}`)
	for _, body := range []string{since(time.Now()), `{}`} {
		if a := want(t, e.call("POST", "/webhook/replay", body), 403, "ACCOUNT_SUSPENDED"); !a.quota() {
			t.Errorf("%v", a.header)
		}
	}

	e.replayed(e.account, since(time.Now().Add(-time.Hour)), 1) // operators may still
}

// While one replay of an account runs, another is refused and learns how long to
// wait. It runs here because its lock (the kind of key p) is held.
func TestReplay_OneAtATime(t *testing.T) {
	e := newEnv(t)
	e.account = e.named("Busy")
	id := e.account.accountID()
	e.redis.(*testserver.Redis).Do(t, "EVAL", `for _, k in ipairs(redis.call('KEYS', '*')) do
		if string.sub(k, -16) == ARGV[1] then redis.call('SET', string.match(k, '^%b{}') .. 'p' .. ARGV[1], 1) end
	end`, 0, string(id[:]))
	hour := since(time.Now().Add(-time.Hour))
	for _, a := range []answer{e.call("POST", "/webhook/replay", hour), e.tryAdmin("POST", webhookPath(e.account)+"/replay", hour)} {
		want(t, a, 429, "RATE_LIMITED")
		if wait := headerInt(a, "Retry-After"); wait < 1 || wait > 60 || a.data["retryAfterSeconds"] != float64(wait) || !strings.Contains(a.message, "another replay") {
			t.Errorf("%s %v", a.body, a.header)
		}
	}
}

// How events are chosen and queued is the ledger's to prove; here it gets what
// the request asks for.
//
//rule:admin-api/post-accounts-id-webhook-replay
func TestAdminReplay_ByEventIDsAndOutcome(t *testing.T) {
	e := newEnv(t)
	account, other := e.newParty("vendor", "/accounts", "accountId", `{"name":"One"}`), e.named("Other")
	notice := accounts.Notice{Account: account.accountID(), Type: delivery.StoreActivated, OccurredAt: time.Now(), Data: []byte(`{}`)}
	if err := e.ledger.Webhooks.Publish(t.Context(), notice); err != nil { // while no receiver is registered
		t.Fatal(err)
	}

	e.take()
	if n := len(e.admin("GET", webhookPath(account)+"/deliveries?status=notSent", "").list("deliveries")); n != 1 {
		t.Fatalf("%d events are recorded as not sent", n)
	}

	e.receiver(account)
	e.testEvents(account, 3)
	e.testEvents(other, 1)
	made := e.attempts(4, givenUp)
	ids, foreign := eventsOf(made, account), eventsOf(made, other)[0]

	for _, id := range []string{"evt_none", foreign, "x"} {
		a := want(t, e.tryAdmin("POST", webhookPath(account)+"/replay", fmt.Sprintf(`{"eventIds":[%q,%q]}`, ids[0], id)), 404, "EVENT_NOT_FOUND")
		if !strings.Contains(a.message, id) {
			t.Errorf("%s", a.body)
		}
	}

	e.replayed(account, fmt.Sprintf(`{"eventIds":[%q,%q,%q]}`, ids[2], ids[0], ids[2]), 2) // an event that is named twice goes once
	if got, wanted := eventsOf(e.attempts(2, accepted), account), []string{ids[2], ids[0]}; !slices.Equal(got, wanted) {
		t.Errorf("sent %v, want %v", got, wanted)
	}

	e.replayed(account, `{"status":"undelivered","since":"`+delivery.FormatTime(e.between())+`"}`, 0)
	e.replayed(account, `{"status":"undelivered"}`, 1) // the others were delivered since
	e.between()                                        // what is due in the same millisecond goes in any order
	e.replayed(account, `{"status":"notSent","since":"`+ago(time.Hour)+`"}`, 1)
	for i, s := range e.attempts(2, accepted) {
		if d := s.Delivery; s.ReplayedAt == 0 || i == 0 && d.EventID != ids[1] || i == 1 && d.Type != delivery.StoreActivated {
			t.Errorf("%+v", d)
		}
	}

	e.replayed(account, `{"status":"notSent"}`, 0)
	e.replayed(other, `{"status":"undelivered"}`, 1)
}

func TestAdminReplay_Refusals(t *testing.T) {
	e := newEnv(t)
	account, bare := e.named("One"), e.newAccount("")
	path := webhookPath(account) + "/replay"
	hour, many := ago(time.Hour), `"evt_1"`+strings.Repeat(`,"evt_1"`, maxReplayed)
	for field, bodies := range map[string][]string{
		"eventIds": {`{}`, `{"eventIds":null,"since":null}`, `{"eventIds":[]}`, `{"eventIds":"evt_1"}`, `{"eventIds":{}}`, `{"eventIds":[` + many + `]}`,
			`{"eventIds":["evt_1"],"since":"` + hour + `"}`, `{"eventIds":["evt_1"],"status":"undelivered"}`},
		"eventIds[0]": {`{"eventIds":[1]}`},
		"eventIds[1]": {`{"eventIds":["evt_1",""]}`, `{"eventIds":["evt_1",null]}`},
		"since": {`{"since":1}`, `{"since":""}`, `{"since":"yesterday"}`, `{"since":"2026-02-30T12:00:00Z"}`, `{"since":"` + ago(25*time.Hour) + `"}`,
			`{"since":"` + ago(-time.Hour) + `"}`, `{"status":"undelivered","since":1}`, `{"status":"undelivered","since":"` + ago(25*time.Hour) + `"}`},
		"status": {`{"status":1}`, `{"status":""}`, `{"status":"delivered"}`, `{"status":"Undelivered"}`, `{"status":["undelivered"]}`, `{"status":"lost","since":"` + hour + `"}`},
	} {
		for _, body := range bodies {
			wantField(t, e.tryAdmin("POST", path, body), 422, "VALIDATION_FAILED", field)
		}
	}

	for _, body := range []string{`{`, `[]`, `{"since":"a","since":"b"}`} {
		want(t, e.tryAdmin("POST", path, body), 400, "MALFORMED_REQUEST")
	}

	for _, body := range []string{`{"since":"` + hour + `"}`, `{"status":"undelivered"}`} {
		want(t, e.tryAdmin("POST", webhookPath(bare)+"/replay", body), 404, "WEBHOOK_NOT_CONFIGURED")
	}
}

// A vendor whose receiver is dead replays as often as it may: what waits does not
// grow, and when it is as much as may wait, the answer says what to do.
//
//rule:webhooks/an-event-waits-at-most
func TestReplay_ManyTimesWaitsOnce(t *testing.T) {
	e := newEnv(t)
	e.account = e.named("Dead")
	e.testEvents(e.account, 1)
	hour := since(time.Now().Add(-time.Hour))
	for range 40 {
		want(t, e.call("POST", "/webhook/replay", hour), 200, "", "replayed", 1)
		e.replayed(e.account, hour, 1)
	}

	e.health(e.account, "waitingEvents", 1)
	e.attempts(1, accepted)
	id := e.account.accountID()
	e.redis.(*testserver.Redis).Do(t, "EVAL", `for _, k in ipairs(redis.call('KEYS', '*')) do
		if string.sub(k, -17) == 'w' .. ARGV[1] then
			local replayed = string.match(k, '^%b{}') .. 'c' .. ARGV[1] .. 'r'
			for i = 1, 100000 do redis.call('SADD', replayed, i) end
		end
	end`, 0, string(id[:]))

	for _, a := range []answer{e.call("POST", "/webhook/replay", hour), e.tryAdmin("POST", webhookPath(e.account)+"/replay", hour)} {
		want(t, a, 409, "TOO_MANY_REPLAYS", "retryAfterSeconds", absent)
		if a.header.Get("Retry-After") != "" || !strings.Contains(a.message, "fix the receiver, then ask again") {
			t.Errorf("%s %v", a.body, a.header)
		}
	}
}
