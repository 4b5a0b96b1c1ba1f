package lib_test

import (
	"net/http"
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
			r.requireNoException(t)
			r.requireLevel(t, answeredLevel, false)
			r.requireExit(t, exitLevelsNotHeld)
			if n := r.counter(t, "orders_accepted", nil); n != 0 {
				t.Errorf("%v orders are noted as accepted, and none was answered", n)
			}
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
	if a := onlyAnswer(t, r); a.Status != http.StatusCreated || !a.Replayed {
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
		if n := r.counter(t, "resends", settings{"reason": reason}); n != want {
			t.Errorf("%v resends because of %s, want %v", n, reason, want)
		}
	}
	if waits := r.samplesOf(t, "waited"); len(waits) != 4 {
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
	if n := len(api.requests(postOrder)); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
	r.requireExit(t, exitHeld)
	if a := onlyAnswer(t, r); !a.Replayed {
		t.Errorf("the order's answer is %+v", a)
	}
	if n := r.counter(t, "orders_accepted", nil); n != 1 {
		t.Errorf("%v orders are noted as accepted, want 1", n)
	}
}

func TestCreateUntilAnswered_OutlastsAClosedListener(t *testing.T) {
	t.Parallel()
	api := newVendorAPI(t)
	api.onceReply(postOrder, api.refuseConnections(t, 400*time.Millisecond))

	r := play(t, "till.js", api.settings(settings{"HOW": "createUntilAnswered", "TOLERATES": "outage"}))

	r.requireExit(t, exitHeld)
	r.requireNoException(t)
	if a := onlyAnswer(t, r); a.Status != http.StatusCreated {
		t.Errorf("the order's answer is %+v", a)
	}
	if n := r.counter(t, "orders_accepted", nil); n != 1 {
		t.Errorf("%v orders are noted as accepted, want 1", n)
	}
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
			if a := onlyAnswer(t, r); a.Status != c.status {
				t.Errorf("the order's last answer is %+v", a)
			}
			r.requireExit(t, exitLevelsNotHeld)
		})
	}
}

func TestAnswer_OfAnotherKindBreaksACheck(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"null":         "null",
		"nothing":      "",
		"garbage":      "\x00\xff garbage {",
		"HTML":         "<html>welcome</html>",
		"a list":       "[1, 2]",
		"a number":     "17",
		"data is null": `{"success":true,"data":null}`,
		"data is text": `{"success":true,"data":"order"}`,
		"data lacks":   `{"success":true}`,
		"no order id":  `{"success":true,"data":{"status":"Searching"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newVendorAPI(t)
			api.alwaysReply(postOrder, text(http.StatusCreated, body))

			r := play(t, "till.js", api.settings(settings{"HOW": "createUntilAnswered"}))

			r.requireNoException(t)
			r.requireLevel(t, checksLevel, false)
			r.requireLevel(t, answeredLevel, true)
			r.requireExit(t, exitLevelsNotHeld)
			if n := r.counter(t, "orders_accepted", nil); n != 0 {
				t.Errorf("%v orders are noted as accepted, and the answer names none", n)
			}
		})
	}
}

func TestLimitHeaders_LiesBreakTheirLevel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header, value string
	}{
		"no limit":                {header: "X-RateLimit-Limit"},
		"no remaining":            {header: "X-RateLimit-Remaining"},
		"no reset":                {header: "X-RateLimit-Reset"},
		"more remaining than all": {header: "X-RateLimit-Remaining", value: "121"},
		"less than nothing":       {header: "X-RateLimit-Remaining", value: "-1"},
		"a limit in words":        {header: "X-RateLimit-Limit", value: "many"},
		"a limit of nothing":      {header: "X-RateLimit-Limit", value: "0"},
		"a reset long ago":        {header: "X-RateLimit-Reset", value: "1000000000"},
		"a reset in years":        {header: "X-RateLimit-Reset", value: "9000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newVendorAPI(t)
			api.onceReply(postOrder, api.withHeader(c.header, c.value))

			r := play(t, "till.js", api.settings(nil))

			r.requireLevel(t, headersLevel, false)
			r.requireExit(t, exitLevelsNotHeld)
		})
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
	if n := len(notes[answer](t, r)); n != 2 {
		t.Errorf("%d answers are noted, want 2", n)
	}
}

func TestLimitHeaders_OfARefusalMustAgree(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply reply
		held  bool
	}{
		"header and body agree":  {reply: limited(1, 1), held: true},
		"header and body differ": {reply: limited(1, 2), held: false},
		"something remains": {held: false, reply: func(w http.ResponseWriter, _ *http.Request) {
			limitHeaders(w)
			w.Header().Set("Retry-After", "1")
			writeJSON(w, http.StatusTooManyRequests, map[string]any{"errorCode": "RATE_LIMITED", "retryAfterSeconds": 1})
		}},
		"no Retry-After": {held: false, reply: refuse(http.StatusTooManyRequests, "RATE_LIMITED")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newVendorAPI(t)
			api.onceReply(postOrder, c.reply)

			r := play(t, "till.js", api.settings(settings{"HOW": "create"}))

			// The order is sent again after the wait and accepted.
			r.requireLevel(t, headersLevel, c.held)
			if a := onlyAnswer(t, r); a.Status != http.StatusCreated {
				t.Errorf("the order's answer is %+v", a)
			}
			if n := r.counter(t, "resends", settings{"reason": "RATE_LIMITED"}); n != 1 {
				t.Errorf("%v resends, want 1", n)
			}
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
			}
		})
	}
}
