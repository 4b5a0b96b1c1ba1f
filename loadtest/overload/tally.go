package main

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"vendorapi/loadtest/harness"
)

// placed is an order that was answered 201.
type placed struct {
	vendor int
	number int // of the request, which makes its key and external id
	id     string
}

// tally is what clients have seen. It is safe for concurrent use.
type tally struct {
	began time.Time

	mu                     sync.Mutex
	accepted, limited      *hdrhistogram.Histogram // microseconds
	busy                   *hdrhistogram.Histogram
	orders                 []placed
	refusals               []shot // answered 503, or a read that came too soon
	unknown                []shot // no answer came
	wrong, unsent, arrived int
	sample                 string // the first wrong answer
}

func newTally() *tally {
	histogram := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, time.Minute.Microseconds(), 3) }
	return &tally{began: time.Now(), accepted: histogram(), limited: histogram(), busy: histogram()}
}

// shot is one request of a schedule.
type shot struct {
	n              int // its place in the schedule
	vendor, number int // whose it is, and which order
	due            time.Time
}

// count records an answer to the creation of an order.
func (t *tally) count(s shot, a harness.Answer, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	took := at.Sub(s.due)
	switch a.Status {
	case 201:
		if id := orderIDOf(a.Body); id != "" {
			t.orders = append(t.orders, placed{s.vendor, s.number, id})
			_ = t.accepted.RecordValue(took.Microseconds())
			return
		}
	case 429:
		if saysWhen(a, "RATE_LIMITED") {
			_ = t.limited.RecordValue(took.Microseconds())
			return
		}
	case 503:
		t.refusals = append(t.refusals, s)
		if saysWhen(a, "SERVICE_UNAVAILABLE") {
			_ = t.busy.RecordValue(took.Microseconds())
			return
		}
	}
	t.strange(a)
}

// countRead records an answer that should be 200 and hold the text.
func (t *tally) countRead(s shot, a harness.Answer, at time.Time, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	took := at.Sub(s.due)
	switch {
	case a.Status == 200 && bytes.Contains(a.Body, []byte(text)):
		_ = t.accepted.RecordValue(took.Microseconds())
	case a.Status == 503 && saysWhen(a, "SERVICE_UNAVAILABLE"):
		t.refusals = append(t.refusals, s)
		_ = t.busy.RecordValue(took.Microseconds())
	case a.Status == 429 && saysWhen(a, "RATE_LIMITED"):
		t.refusals = append(t.refusals, s)
		_ = t.limited.RecordValue(took.Microseconds())
	default:
		t.strange(a)
	}
}

// lost records a request that no answer came to: whether it was carried out is
// not known.
func (t *tally) lost(s shot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unknown = append(t.unknown, s)
}

// sent is how many requests went out: an arrival that found every connection busy
// did not.
func (t *tally) sent() int { return t.arrived - t.unsent }

// served reports whether so many of what was sent were answered as they should,
// and none wrongly.
func (t *tally) served(n int64, share float64) bool {
	return t.wrong == 0 && n > 0 && float64(n) >= share*float64(t.sent())
}

// strange needs mu held.
func (t *tally) strange(a harness.Answer) {
	t.wrong++
	if t.sample == "" {
		t.sample = fmt.Sprintf("%d %.200s", a.Status, a.Body)
	}
}

var orderIDKey = []byte(`"orderId":"`)

// orderIDOf is the order's id in an answer; empty when there is none.
func orderIDOf(body []byte) string {
	at := bytes.Index(body, orderIDKey)
	if at < 0 || len(body) < at+len(orderIDKey)+36 {
		return ""
	}
	return string(body[at+len(orderIDKey):][:36])
}

// saysWhen reports whether a refusal has the code and says in both places, header
// and body, the same number of seconds to wait.
func saysWhen(a harness.Answer, code string) bool {
	var seconds [20]byte
	told := append(append([]byte(`"retryAfterSeconds":`), strconv.AppendInt(seconds[:0], int64(a.RetryAfter), 10)...), 0)
	told = told[:len(told)-1]
	at := bytes.Index(a.Body, told)
	return a.RetryAfter >= 1 && at >= 0 && (a.Body[at+len(told)] < '0' || a.Body[at+len(told)] > '9') &&
		bytes.Contains(a.Body, []byte(`"errorCode":"`+code+`"`))
}

// p99 is a histogram's 99th percentile.
func p99(h *hdrhistogram.Histogram) time.Duration {
	return time.Duration(h.ValueAtQuantile(99)) * time.Microsecond
}
