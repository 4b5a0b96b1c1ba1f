//go:build long

package lib_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// answer is what testdata/till.js notes of an answer.
type answer struct {
	Status   int    `json:"status"`
	Code     string `json:"code"`
	Error    string `json:"error"`
	Text     string `json:"text"`
	OrderID  string `json:"orderId"`
	Replayed bool   `json:"replayed"`

	// HeadersRight reports that the limits' headers are there and make sense.
	HeadersRight bool `json:"headersRight"`
}

const (
	answeredLevel = "answered rate==1"
	checksLevel   = "checks rate==1"
	headersLevel  = "limit_headers_right rate==1"
)

// onlyAnswer returns the answer that the script has noted.
func onlyAnswer(t *testing.T, r *run) answer {
	t.Helper()
	found := notes[answer](t, r)
	if len(found) != 1 {
		t.Fatalf("%d answers are noted, want 1", len(found))
	}
	return found[0]
}

func requireStatus(t *testing.T, a answer, want int) {
	t.Helper()
	if a.Status != want {
		t.Errorf("the order's answer is %+v, want the status %d", a, want)
	}
}

func TestAnswer_LostIsStatusZeroWithItsError(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		lost  reply
		how   string
		error string
	}{
		"cut in the status line":               {lost: cut, how: "createOnce", error: "EOF"},
		"cut in the body":                      {lost: cutBody(http.StatusCreated), how: "createOnce", error: "EOF"},
		"cut in an answer to callAsync":        {lost: cut, how: "callAsync", error: "EOF"},
		"cut in the body, answer to callAsync": {lost: cutBody(http.StatusCreated), how: "callAsync", error: "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			api.onceReply(postOrder, c.lost)

			r := play(t, "till.js", api.settings(settings{"HOW": c.how}))

			a := onlyAnswer(t, r)
			if a.Status != 0 || a.Code != "NO_ANSWER" || !strings.Contains(a.Error, c.error) {
				t.Errorf("the lost answer is %+v", a)
			}
			if strings.Contains(a.Error, api.URL) {
				t.Errorf("the error repeats the URL: %s", a.Error)
			}

			r.requireNoException(t)
			r.requireLevel(t, answeredLevel, false)
			r.requireExit(t, exitLevelsNotHeld)
			requireCount(t, "orders are noted as accepted", r.counter(t, "orders_accepted", nil), 0)
		})
	}
}

func TestCreateUntilAnswered_SendsTheSameBytesUntilAnswered(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.onceReply(postOrder, cut, badGateway, busy, api.lostAfterCreation)

	r := play(t, "till.js", api.settings(settings{"HOW": "createUntilAnswered", "TOLERATES": "outage"}))

	r.requireExit(t, exitHeld)
	r.requireNoException(t)
	a := onlyAnswer(t, r)
	if a.Status != http.StatusCreated || !a.Replayed {
		t.Errorf("the order's answer is %+v", a)
	}

	// One order, sent five times: the bytes and the key never change.
	sent := api.requests(postOrder)
	if len(sent) != 5 {
		t.Fatalf("%d requests, want 5", len(sent))
	}

	for _, s := range sent {
		isSame := s.body == sent[0].body && s.header.Get("X-Idempotency-Key") == sent[0].header.Get("X-Idempotency-Key")
		if !isSame || s.header.Get("X-Idempotency-Key") == "" {
			t.Errorf("a request differs from the first: key %q, %s", s.header.Get("X-Idempotency-Key"), s.body)
		}
	}

	// The order is noted once, and every repetition with its reason.
	accepted := r.samplesOf(t, "orders_accepted")
	if len(accepted) != 1 || accepted[0].Metadata["order"] != "order-1" || accepted[0].Metadata["end"] != "Delivered" {
		t.Errorf("accepted: %+v", accepted)
	}

	for reason, want := range map[string]float64{"NO_ANSWER": 2, "502": 1, "SERVICE_UNAVAILABLE": 1} {
		requireCount(t, "resends because of "+reason, r.counter(t, "resends", settings{"reason": reason}), want)
	}

	waits := r.samplesOf(t, "waited")
	if len(waits) != 4 {
		t.Errorf("%d waits, want 4", len(waits))
	}
}

// k6's HTTP client takes a request with X-Idempotency-Key for one that it may repeat.
func TestCreateUntilAnswered_NotesAnOrderOnceThatK6SentTwice(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.onceReply(postOrder, func(w http.ResponseWriter, r *http.Request) {
		api.keepFirstOrder()
		cutInSilence(w, r)
	})

	r := play(t, "till.js", api.settings(settings{"HOW": "createUntilAnswered"}))

	// The service has seen two requests and the library one.
	requireCount(t, "requests", len(api.requests(postOrder)), 2)
	r.requireExit(t, exitHeld)
	a := onlyAnswer(t, r)
	if !a.Replayed {
		t.Errorf("the order's answer is %+v", a)
	}

	requireCount(t, "orders are noted as accepted", r.counter(t, "orders_accepted", nil), 1)
}

func TestCreateUntilAnswered_OutlastsAClosedListener(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.onceReply(postOrder, api.refuseConnections(t, 400*time.Millisecond))

	r := play(t, "till.js", api.settings(settings{"HOW": "createUntilAnswered", "TOLERATES": "outage"}))

	r.requireExit(t, exitHeld)
	r.requireNoException(t)
	requireStatus(t, onlyAnswer(t, r), http.StatusCreated)
	requireCount(t, "orders are noted as accepted", r.counter(t, "orders_accepted", nil), 1)
}

func TestCreateUntilAnswered_EndsWithTheLastAnswerWhenTimeIsOver(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		reply  reply
		status int
	}{
		"no answer at all":                  {reply: cut, status: 0},
		"a wait that is longer than within": {reply: limited(60, 60), status: http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			api.alwaysReply(postOrder, c.reply)

			r := play(t, "till.js", api.settings(settings{"HOW": "createUntilAnswered", "WITHIN": "0.5"}))

			r.requireNoException(t)
			requireStatus(t, onlyAnswer(t, r), c.status)
			r.requireExit(t, exitLevelsNotHeld)
		})
	}
}

func TestAnswer_OfAnotherKindBreaksACheck(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	bodies := []string{
		"null",
		"",
		"\x00\xff garbage {",
		"<html>welcome</html>",
		"[1, 2]",
		"17",
		`{"success":true,"data":null}`,
		`{"success":true,"data":"order"}`,
		`{"success":true}`,
		`{"success":true,"data":{"status":"Searching"}}`, // without the order's id
		`{"success":true,"data":{"status":"Searching","orderId":null}}`,
	}

	for _, body := range bodies {
		api.onceReply(postOrder, text(http.StatusCreated, body))
	}

	r := play(t, "till.js", api.settings(settings{"HOW": "createUntilAnswered", "ITERATIONS": strconv.Itoa(len(bodies))}))

	// Each answer is one, breaks a check and is not taken for an order.
	r.requireNoException(t)
	r.requireExit(t, exitLevelsNotHeld)
	r.requireLevel(t, answeredLevel, true)
	r.requireLevel(t, checksLevel, false)
	requireCount(t, "answers are noted", len(notes[answer](t, r)), len(bodies))
	requireCount(t, "of the answers are taken for orders", r.counter(t, "checks", settings{"check": "an accepted order has an id"}), 0)
	requireCount(t, "orders are noted as accepted", r.counter(t, "orders_accepted", nil), 0)
}

func TestLimitHeaders_LiesBreakTheirLevel(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	lies := []struct{ header, value string }{
		{header: "X-RateLimit-Limit"}, // an empty value: there is no such header
		{header: "X-RateLimit-Remaining"},
		{header: "X-RateLimit-Reset"},
		{header: "X-RateLimit-Remaining", value: "121"}, // of 120
		{header: "X-RateLimit-Remaining", value: "-1"},
		{header: "X-RateLimit-Limit", value: "many"},
		{header: "X-RateLimit-Limit", value: "0"},
		{header: "X-RateLimit-Limit", value: "120.5"},
		{header: "X-RateLimit-Reset", value: "1000000000"}, // in 2001
		{header: "X-RateLimit-Reset", value: "9000000000"}, // in 2255
		{header: "X-RateLimit-Reset", value: strconv.FormatInt(time.Now().Add(65*time.Minute).Unix(), 10)},
	}

	for _, lie := range lies {
		api.onceReply(postOrder, api.withHeader(lie.header, lie.value))
	}

	r := play(t, "till.js", api.settings(settings{"ITERATIONS": strconv.Itoa(len(lies) + 1)}))

	r.requireLevel(t, headersLevel, false)
	r.requireExit(t, exitLevelsNotHeld)
	found := notes[answer](t, r)
	if len(found) != len(lies)+1 {
		t.Fatalf("%d answers are noted, want %d", len(found), len(lies)+1)
	}

	for i, lie := range lies {
		if found[i].HeadersRight {
			t.Errorf("%s: %q is taken as right", lie.header, lie.value)
		}
	}

	if !found[len(lies)].HeadersRight {
		t.Error("headers that are right are not taken as right")
	}
}

// A vendor that believed a wrong Reset would sleep for years.
func TestLimitHeaders_AreNotWaitedForWhenTheyAreWrong(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.onceReply(postOrder, func(w http.ResponseWriter, r *http.Request) {
		limitHeaders(w)
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", "9000000000")
		writeJSON(w, http.StatusCreated, map[string]any{"orderId": "order-1", "status": "Searching"})
	})

	r := play(t, "till.js", api.settings(settings{"HOW": "create", "ITERATIONS": "2"}))

	r.requireLevel(t, headersLevel, false)
	requireCount(t, "answers are noted", len(notes[answer](t, r)), 2)
}

func TestLimitHeaders_OfARefusalMustAgree(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	somethingRemains := func(w http.ResponseWriter, _ *http.Request) {
		limitHeaders(w)
		w.Header().Set("Retry-After", "1")
		writeJSON(w, http.StatusTooManyRequests, map[string]any{"errorCode": "RATE_LIMITED", "retryAfterSeconds": 1})
	}

	noRetryAfter := refuse(http.StatusTooManyRequests, "RATE_LIMITED")
	api.onceReply(postOrder, limited(1, 1), limited(1, 2), limited(0, 0), somethingRemains, noRetryAfter)

	r := play(t, "till.js", api.settings(settings{"ITERATIONS": "5"}))

	r.requireLevel(t, headersLevel, false)
	for i, want := range []bool{true, false, false, false, false} {
		found := notes[answer](t, r)
		if found[i].Status != http.StatusTooManyRequests || found[i].HeadersRight != want {
			t.Errorf("refusal %d is %+v, want right %v", i, found[i], want)
		}
	}
}

func TestCreate_WaitsWhereNothingOfTheLimitRemains(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.onceReply(postOrder, func(w http.ResponseWriter, _ *http.Request) {
		limitHeaders(w)
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+2, 10))
		writeJSON(w, http.StatusCreated, map[string]any{"orderId": "order-1", "status": "Searching"})
	})

	r := play(t, "till.js", api.settings(settings{"HOW": "create", "ITERATIONS": "2"}))

	r.requireExit(t, exitHeld)
	waits := r.samplesOf(t, "waited")
	if len(waits) != 1 || waits[0].Value < 500 || waits[0].Value > 2000 {
		t.Errorf("waits of %+v, want one until the reset, in ms", waits)
	}
}

// A 429 without a time that can be believed is waited for a second.
func TestCreate_SendsAgainAfterTheWaitOfARefusal(t *testing.T) {
	t.Parallel()

	for name, refusal := range map[string]reply{
		"Retry-After":    limited(1, 1),
		"no Retry-After": refuse(http.StatusTooManyRequests, "RATE_LIMITED"),
		"a day":          limited(86400, 86400),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			api.onceReply(postOrder, refusal)

			r := play(t, "till.js", api.settings(settings{"HOW": "create"}))

			requireStatus(t, onlyAnswer(t, r), http.StatusCreated)
			waits := r.samplesOf(t, "waited")
			if len(waits) != 1 || waits[0].Value != 1000 {
				t.Errorf("waits of %+v, want one of 1000 ms", waits)
			}

			requireCount(t, "resends", r.counter(t, "resends", settings{"reason": "RATE_LIMITED"}), 1)
			requireCount(t, "refusals are counted", r.counter(t, "refused", nil), 1)
		})
	}
}

func TestCreate_SendsFiveRequestsAtMost(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.alwaysReply(postOrder, limited(1, 1))

	r := play(t, "till.js", api.settings(settings{"HOW": "create"}))

	requireStatus(t, onlyAnswer(t, r), http.StatusTooManyRequests)
	requireCount(t, "requests", len(api.requests(postOrder)), 5)
	requireCount(t, "resends", r.counter(t, "resends", nil), 4)
}

// k6 adds metadata to every later sample of the user, until they are removed.
func TestCreate_NamesTheOrderInOneSampleOnly(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)

	r := play(t, "till.js", api.settings(settings{"ITERATIONS": "2"}))

	requireCount(t, "orders are noted as accepted", len(r.samplesOf(t, "orders_accepted")), 2)
	for _, metric := range []string{"http_reqs", "iterations", "checks"} {
		for _, s := range r.samplesOf(t, metric) {
			if len(s.Metadata) > 0 {
				t.Errorf("a sample of %s has %v", metric, s.Metadata)
			}
		}
	}
}

// A script that reads an order too early wants to see the refusal.
func TestRead_IsNotRepeatedAfterARefusal(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.onceReply(getOrder, limited(1, 1))

	r := play(t, "till.js", api.settings(settings{"READ": "yes"}))

	found := notes[answer](t, r)
	if len(found) != 2 || found[1].Status != http.StatusTooManyRequests {
		t.Errorf("the answers are %+v, want an order and a refusal", found)
	}

	requireCount(t, "reads", len(api.requests(getOrder)), 1)
	requireCount(t, "waits", len(r.samplesOf(t, "waited")), 0)
}

func TestCancelUntilAnswered_IsRepeated(t *testing.T) {
	t.Parallel()

	api := newVendorAPI(t)
	api.onceReply(postCancel, cut, badGateway, limited(1, 1))

	r := play(t, "till.js", api.settings(settings{"CANCEL": "yes", "TOLERATES": "outage"}))

	r.requireExit(t, exitHeld)
	found := notes[answer](t, r)
	if len(found) != 2 || found[1].Status != http.StatusOK {
		t.Errorf("the answers are %+v, want an order and its cancellation", found)
	}

	requireCount(t, "cancellations", len(api.requests(postCancel)), 4)
}

func TestExpectedStatus_DecidesWhichAnswerIsAFailure(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		how    string
		expect string
		reply  reply
		failed float64
		held   bool // the level of what is answered
	}{
		"a 503 that is right":              {how: "call", expect: "503", reply: busy, failed: 0, held: true},
		"a 503 that is right to callAsync": {how: "callAsync", expect: "503", reply: busy, failed: 0, held: true},
		"a 503 that is not":                {how: "call", expect: "422", reply: busy, failed: 1, held: false},
		"a success that is not":            {how: "call", expect: "503", reply: nil, failed: 1, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			api.onceReply(postOrder, c.reply)

			r := play(t, "till.js", api.settings(settings{"HOW": c.how, "EXPECT": c.expect}))

			r.requireLevel(t, answeredLevel, c.held)
			failed := r.counter(t, "http_req_failed", settings{"name": postOrder})
			requireCount(t, "requests count as failed", failed, c.failed)
		})
	}
}

func TestEmptyPath_IsAskedBeforeEveryTenthRequest(t *testing.T) {
	t.Parallel()

	// setup() asks before the first of its three requests, and the user before its first.
	for orders, want := range map[string]float64{"10": 2, "11": 3} {
		t.Run(orders+" orders", func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)

			r := play(t, "till.js", api.settings(settings{"ITERATIONS": orders}))

			r.requireExit(t, exitHeld)
			empty := settings{"name": "GET empty path"}
			requireCount(t, "requests to the empty path", r.counter(t, "http_reqs", empty), want)
			requireCount(t, "of them are failures for k6", r.counter(t, "http_req_failed", empty), 0)
		})
	}
}

func TestTolerates_DecidesWhichFailuresBreakAnswered(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		tolerates string
		failure   reply
		held      bool
	}{
		"nothing: busy":              {tolerates: "nothing", failure: busy, held: false},
		"nothing: bad gateway":       {tolerates: "nothing", failure: badGateway, held: false},
		"busy: busy":                 {tolerates: "busy", failure: busy, held: true},
		"busy: bad gateway":          {tolerates: "busy", failure: badGateway, held: false},
		"busy: no answer":            {tolerates: "busy", failure: cut, held: false},
		"busy: 503 without a time":   {tolerates: "busy", failure: refuse(http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE"), held: false},
		"outage: busy":               {tolerates: "outage", failure: busy, held: true},
		"outage: bad gateway":        {tolerates: "outage", failure: badGateway, held: true},
		"outage: no answer":          {tolerates: "outage", failure: cut, held: true},
		"outage: 500 of the service": {tolerates: "outage", failure: refuse(http.StatusInternalServerError, "INTERNAL_ERROR"), held: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api := newVendorAPI(t)
			api.onceReply(postOrder, c.failure)

			r := play(t, "till.js", api.settings(settings{"HOW": "createUntilAnswered", "TOLERATES": c.tolerates}))

			r.requireNoException(t)
			r.requireLevel(t, answeredLevel, c.held)
			want := exitLevelsNotHeld
			if c.held {
				want = exitHeld
			}

			r.requireExit(t, want)

			// A refusal that sheds load, or a balancer's page, has no limit to show.
			if c.tolerates != "outage" {
				r.requireLevel(t, headersLevel, true)
				return
			}

			if _, isThere := r.levels[headersLevel]; isThere {
				t.Error("there is a level of the limits' headers, although a balancer may answer")
			}
		})
	}
}
