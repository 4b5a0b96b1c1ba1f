//go:build long

package main

import (
	"regexp"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/harness"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// brief is the form of `make test-long`: the same cases, short. It demands nothing
// of the time that anything takes, only that it ends.
var brief = form{
	load: 3 * time.Second, times: 10, connections: 256, wide: 4, ordinary: 2, phase: time.Second, jump: time.Hour,
	quick: time.Minute, recovery: time.Minute, normal: time.Minute, patience: 2 * time.Minute,
	share: 0.5, beside: time.Minute, inFlight: "64",
}

func TestOverload_EveryCaseHolds(t *testing.T) {
	bin := testserver.Programs(t)
	for _, c := range cases {
		if c.name == "clickhouse" {
			continue // the reporting tests take ClickHouse away
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &run{form: brief, dir: t.TempDir(), bin: bin, sheet: sheet{out: t.Output()}}
			if err := r.play(t.Context(), regexp.MustCompile("^"+c.name+"$")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSaysWhen_WantsTheSameWaitTwice(t *testing.T) {
	const limited = `{"success":false,"message":"m","data":{"errorCode":"RATE_LIMITED","retryAfterSeconds":12}}`
	for _, c := range []struct {
		name string
		a    harness.Answer
		want bool
	}{
		{"right", harness.Answer{RetryAfter: 12, Body: []byte(limited)}, true},
		{"no header", harness.Answer{Body: []byte(limited)}, false},
		{"another wait", harness.Answer{RetryAfter: 13, Body: []byte(limited)}, false},
		{"a wait that begins alike", harness.Answer{RetryAfter: 1, Body: []byte(limited)}, false},
		{"another code", harness.Answer{RetryAfter: 12, Body: []byte(`{"data":{"errorCode":"DUPLICATE_ORDER","retryAfterSeconds":12}}`)}, false},
		{"no wait in the body", harness.Answer{RetryAfter: 12, Body: []byte(`{"data":{"errorCode":"RATE_LIMITED"}}`)}, false},
	} {
		if got := saysWhen(c.a, "RATE_LIMITED"); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestCount_SortsAnswers(t *testing.T) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	tally := newTally()
	now := time.Now()
	for _, a := range []harness.Answer{
		{Status: 201, Body: []byte(`{"data":{"orderId":"` + id + `"}}`)},
		{Status: 201, Body: []byte(`{"data":{}}`)},
		{Status: 429, RetryAfter: 1, Body: []byte(`{"data":{"errorCode":"RATE_LIMITED","retryAfterSeconds":1}}`)},
		{Status: 503, RetryAfter: 1, Body: []byte(`{"data":{"errorCode":"SERVICE_UNAVAILABLE","retryAfterSeconds":1}}`)},
		{Status: 503, Body: []byte(`{"data":{"errorCode":"SERVICE_UNAVAILABLE"}}`)},
		{Status: 500, Body: []byte(`{}`)},
	} {
		tally.count(shot{vendor: 3, number: 7, due: now}, a, now)
	}
	tally.lost(shot{due: now})
	if len(tally.orders) != 1 || tally.orders[0] != (placed{3, 7, id}) {
		t.Errorf("orders %+v", tally.orders)
	}
	if tally.limited.TotalCount() != 1 || tally.busy.TotalCount() != 1 || len(tally.refusals) != 2 || len(tally.unknown) != 1 || tally.wrong != 3 {
		t.Errorf("limited %d, busy %d, refusals %d, unknown %d, wrong %d", tally.limited.TotalCount(), tally.busy.TotalCount(),
			len(tally.refusals), len(tally.unknown), tally.wrong)
	}
}

func TestMost_CountsTheFullestSpan(t *testing.T) {
	at := time.Now()
	v := &scarce{}
	for _, second := range []int{0, 1, 2, 9, 10, 11, 12, 30} {
		v.granted = append(v.granted, at.Add(time.Duration(second)*time.Second))
	}
	if got := v.most(10 * time.Second); got != 4 {
		t.Errorf("%d within 10 s, want 4", got)
	}
}
