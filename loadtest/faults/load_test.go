package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"vendorapi/loadtest/harness"
)

func TestHasWait_WantsTheSameWaitTwice(t *testing.T) {
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
		if got := hasWait(c.a, "RATE_LIMITED"); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

func TestLoad_SortsAnswers(t *testing.T) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	answers := []struct {
		status int
		wait   string
		body   string
	}{
		{201, "", `{"data":{"orderId":"` + id + `"}}`},
		{201, "", `{"data":{}}`},
		{429, "1", `{"data":{"errorCode":"RATE_LIMITED","retryAfterSeconds":1}}`},
		{503, "1", `{"data":{"errorCode":"SERVICE_UNAVAILABLE","retryAfterSeconds":1}}`},
		{503, "", `{"data":{"errorCode":"SERVICE_UNAVAILABLE"}}`},
		{500, "", `{}`},
	}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil || n >= len(answers) {
			panic(http.ErrAbortHandler) // no answer
		}

		if answers[n].wait != "" {
			w.Header().Set("Retry-After", answers[n].wait)
		}

		w.WriteHeader(answers[n].status)
		_, _ = io.WriteString(w, answers[n].body)
	}))
	defer server.Close()
	v := new(loadVendor)
	l := load{
		addr:        server.Listener.Addr().String(),
		connections: 3,
		duration:    time.Minute,
		most:        len(answers) + 1,
		accepts:     created,
		request: func(dst []byte, n int) ([]byte, placed) {
			return fmt.Appendf(dst, "GET /?n=%d HTTP/1.1\r\nHost: x\r\n\r\n", n), placed{vendor: v, number: n}
		},
	}

	tally := l.send(t.Context())
	if len(tally.orders) != 1 || tally.orders[0] != (placed{v, 0, id}) {
		t.Errorf("orders %+v", tally.orders)
	}
	if tally.accepted.TotalCount() != 1 || tally.limited.TotalCount() != 1 || tally.busy.TotalCount() != 1 || len(tally.again) != 3 ||
		tally.unknown != 1 || tally.wrong != 3 || tally.sent != 7 || counts(tally.statuses) != "201: 2, 429: 1, 500: 1, 503: 2" {
		t.Errorf("%+v", tally)
	}
}
