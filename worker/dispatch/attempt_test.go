package dispatch

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
	"vendorapi/internal/tracing"
	"vendorapi/internal/webhook"
	"vendorapi/worker/dispatch/sender"
)

// newRole is a role without a ledger.
func newRole() *Role {
	r := New(nil, testSettings(), Options{Sandbox: true}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	r.reorder, r.redisTime = time.Minute, time.Now
	return r
}

func someAttempt(number int, occurred time.Time) *attempt {
	return &attempt{Delivery: &partitions.Delivery{EventID: "evt_1", Type: delivery.StatusChanged, OccurredAt: occurred, Data: []byte("{}")},
		event: &event{}, number: number, signed: occurred, receiver: partitions.Receiver{URL: "http://127.0.0.1:1/", Secret: webhook.NewSecret()}}
}

func always() bool { return true }

// concluded is what follows from an answer.
func (r *Role) concluded(a *attempt, now time.Time, answered sender.Answer) *attempt {
	a.started = now
	r.conclude(a, answered)
	return a
}

//rule:webhooks/timeout-10-s-only-2xx
func TestConclude_NamesTheNextAttempt(t *testing.T) {
	r := newRole()
	now := time.Now()
	for name, c := range map[string]struct {
		number      int
		age         time.Duration
		answer      sender.Answer
		least, most time.Duration // from now; zero: given up
	}{
		"the first failure":         {1, 0, sender.Answer{Class: sender.ClassTimeout, Took: 10 * time.Second}, 18 * time.Second, 22 * time.Second},
		"the fourth failure":        {4, time.Minute, sender.Answer{Class: sender.ClassStatus, Status: 500}, 96 * time.Second, 144 * time.Second},
		"Retry-After in seconds":    {1, 0, sender.Answer{Class: sender.ClassStatus, Status: 429, RetryAfter: "120"}, 2 * time.Minute, 2 * time.Minute},
		"Retry-After below the gap": {6, 0, sender.Answer{Class: sender.ClassStatus, Status: 503, RetryAfter: "1"}, 8 * time.Minute, 12 * time.Minute},
		"Retry-After beyond the deadline": {2, 20 * time.Hour, sender.Answer{Class: sender.ClassStatus, Status: 503, RetryAfter: "86400"},
			4*time.Hour - 5*time.Minute, 4*time.Hour - time.Minute},
		"410 is tried again": {1, 0, sender.Answer{Class: sender.ClassStatus, Status: 410}, 8 * time.Second, 12 * time.Second},
		"the last attempt":   {14, 24*time.Hour - 2*time.Minute, sender.Answer{Class: sender.ClassDNS}, 0, 0},
	} {
		a := r.concluded(someAttempt(c.number, now.Add(-c.age)), now, c.answer)
		result, record := a.result(), a.record()
		if result.isGone != (c.answer.Status == 410) || result.proven || record.HTTPStatus != c.answer.Status || record.Error == "" || record.Attempt != c.number {
			t.Errorf("%s: %+v %+v", name, result, record)
		}

		if c.most == 0 {
			if result.ending != undelivered || record.State != partitions.StateUndelivered || !record.NextAt.IsZero() {
				t.Errorf("%s: %+v %+v", name, result, record)
			}
			continue
		}

		wait := record.NextAt.Sub(now)
		if result.ending != retry || result.at != record.NextAt.UnixMilli() || record.State != partitions.StateRetrying || wait < c.least-time.Second || wait > c.most+time.Second {
			t.Errorf("%s: again after %s, %+v %+v", name, wait, result, record)
		}
	}
}

func TestConclude_AReplayHasAWindowOfItsOwn(t *testing.T) {
	now := time.Now()
	a := someAttempt(1, now.Add(-72*time.Hour))
	a.ReplayedAt, a.replay = now, true
	record := newRole().concluded(a, now, sender.Answer{Class: sender.ClassConnect}).record()
	if wait := record.NextAt.Sub(now); wait < 8*time.Second || wait > 12*time.Second || !record.Replay {
		t.Errorf("%+v", record)
	}
}

func TestConclude_ASuccessIsOver(t *testing.T) {
	now := time.Now()
	for kind, proven := range map[delivery.EventType]bool{delivery.StatusChanged: false, delivery.WebhookTest: true} {
		a := someAttempt(3, now)
		a.Type = kind
		newRole().concluded(a, now, sender.Answer{Status: 204, Took: time.Millisecond, Body: []byte("thanks")})
		want := partitions.AttemptRecord{Attempt: 3, At: now, State: partitions.StateDelivered, HTTPStatus: 204, Millis: 1}
		if r := a.result(); r.ending != delivered || r.proven != proven || r.pause != 0 || a.record() != want {
			t.Errorf("%s: %+v %+v", kind, r, a.record())
		}
	}
}

func TestResult_PausesABusyReceiver(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		answer sender.Answer
		pause  int64
	}{
		"429":                  {sender.Answer{Class: sender.ClassStatus, Status: 429}, 1},
		"429 with Retry-After": {sender.Answer{Class: sender.ClassStatus, Status: 429, RetryAfter: "7"}, 7000},
		"502":                  {sender.Answer{Class: sender.ClassStatus, Status: 502}, 1},
		"504":                  {sender.Answer{Class: sender.ClassStatus, Status: 504}, 1},
		"503 with Retry-After": {sender.Answer{Class: sender.ClassStatus, Status: 503, RetryAfter: "7"}, 7000},
		"500 with Retry-After": {sender.Answer{Class: sender.ClassStatus, Status: 500, RetryAfter: "7"}, 0},
		"no answer":            {sender.Answer{Class: sender.ClassTimeout}, 0},
	} {
		if r := newRole().concluded(someAttempt(1, now), now, c.answer).result(); r.pause != c.pause {
			t.Errorf("%s: a pause of %d ms", name, r.pause)
		}
	}
}

// A probe's failure changes nothing in the schedule of its event, whatever the time.
func TestConclude_AProbeIsNoAttemptOfItsEvent(t *testing.T) {
	now := time.Now()
	due := now.Add(30 * time.Second)
	a := someAttempt(14, now.Add(-24*time.Hour))
	a.probe, a.event.dueAt = true, due.UnixMilli()
	record := newRole().concluded(a, now, sender.Answer{Class: sender.ClassConnect}).record()
	if a.ending != retry || record.State != partitions.StateRetrying || !record.Probe || record.NextAt.UnixMilli() != a.event.dueAt {
		t.Errorf("%+v", record)
	}
}

func TestMake_BeginsNothingThatMayBeAnotherWorkers(t *testing.T) {
	asked := 0
	a := someAttempt(1, time.Now())
	newRole().make(t.Context(), a, time.Now(), func() bool { asked++; return false })
	if a.ending != 0 || asked != 1 {
		t.Errorf("asked %d times, then it ended with %+v", asked, a.answer)
	}
}

// The partition may be lost while the request's connection is made. Then nothing of it leaves, and it is
// neither an attempt of its event nor a failure of its receiver.
func TestMake_WhatIsNotBegunIsNoAttempt(t *testing.T) {
	var received atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Add(1) }))
	t.Cleanup(receiver.Close)
	r := newRole()
	w, _ := webhooks(r)
	publish(w, "e")
	ev := w.scheduler.next(nil, places{free: 1}, w.ms())[0]
	a := w.attemptOf(ev)
	a.receiver.URL = receiver.URL
	asked := 0

	r.make(t.Context(), a, time.Now(), func() bool {
		asked++
		return asked == 1 // and not when the connection is ready
	})

	w.InFlight++
	w.finished(a)

	if n := received.Load(); n != 0 || asked != 2 {
		t.Errorf("%d requests were received, after %d questions", n, asked)
	}
	if a.ending != 0 || ev.state != queued || len(w.lines) != 0 || len(w.logs) != 0 {
		t.Errorf("it ended with %d, it is in state %d, %d lines were recorded", a.ending, ev.state, len(w.lines))
	}
	if n := testenv.Value(t, r.metrics.aborted); n != 1 {
		t.Errorf("%v are counted as deferred", n)
	}
	if n := testenv.Value(t, r.metrics.attempts.WithLabelValues(sender.ClassConnect)); n != 0 {
		t.Errorf("%v are counted as failures", n)
	}
}

// What was cut off may have arrived: nothing is known, so it goes again.
func TestMake_CutOffIsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := someAttempt(1, time.Now())
	newRole().make(ctx, a, time.Now(), always)
	if a.ending != 0 {
		t.Errorf("%d: %+v", a.ending, a.answer)
	}
}

// shutDown is over for whoever asks, and interrupts nothing.
type shutDown struct{ context.Context }

func (shutDown) Err() error { return context.Canceled }

func TestMake_AnAnswerDuringTheShutdownCounts(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(receiver.Close)
	r := newRole()
	a := someAttempt(1, time.Now())
	a.receiver.URL = receiver.URL

	r.make(shutDown{t.Context()}, a, time.Now(), always)

	if a.ending != retry || a.answer.Status != http.StatusInternalServerError {
		t.Errorf("%d: %+v", a.ending, a.answer)
	}
}

// webhooks are of a role without a ledger, which have caught up. What the owner has written stays confirmed, however
// slow the machine is.
func webhooks(r *Role) (w *Webhooks, results chan *Result) {
	results = make(chan *Result, 10)
	w = r.newWebhooks(context.Background(), 0, time.Now, results)
	w.state, w.isReading = sending, true // it reads nothing
	w.confirm(time.Now().Add(time.Hour))
	return w, results
}

func TestSend_APanicFreesItsSlot(t *testing.T) {
	r := newRole()
	w, results := webhooks(r)
	a := someAttempt(1, time.Now())
	r.sender = nil
	w.launch(a)
	sent := <-results
	if n := r.inFlight.Load(); n != 0 || testenv.Value(t, r.metrics.panics) != 1 || sent.attempt.ending != retry {
		t.Errorf("%d in flight, %v panics, ended with %d", n, testenv.Value(t, r.metrics.panics), sent.attempt.ending)
	}
}

func TestHoldBack_OnlyEverySecondVersionOfATriggeredOrder(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		note    string
		version uint64
		number  int
		change  func(*Role, *attempt)
		held    bool
	}{
		"second version":           {"SIM:REORDER", 2, 1, nil, true},
		"third version":            {"SIM:REORDER", 3, 1, nil, false},
		"held back long enough":    {"SIM:REORDER", 2, 1, func(_ *Role, a *attempt) { a.OccurredAt = now.Add(-time.Minute) }, false},
		"a retry":                  {"SIM:REORDER", 2, 2, nil, false},
		"a replay":                 {"SIM:REORDER", 2, 1, func(_ *Role, a *attempt) { a.replay = true }, false},
		"no trigger":               {"ring twice", 2, 1, nil, false},
		"trigger not at the start": {"x SIM:REORDER", 2, 1, nil, false},
		"a notice":                 {"SIM:REORDER", 2, 1, func(_ *Role, a *attempt) { a.Order = nil }, false},
		"production":               {"SIM:REORDER", 2, 1, func(r *Role, _ *attempt) { r.sandbox = false }, false},
	} {
		r, a := newRole(), someAttempt(c.number, now)
		a.Version, a.Order = c.version, &delivery.Order{}
		a.Order.PackageNote = c.note
		if c.change != nil {
			c.change(r, a)
		}

		until, held := r.holdBack(a, now)
		if held != c.held || held && until != now.Add(time.Minute) {
			t.Errorf("%s: held %v until %s", name, held, until)
		}
	}
}

func TestNew_ProductionNeverReachesLocalReceivers(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	for _, c := range []struct {
		sandbox bool
		setting string
		local   bool
	}{{true, "auto", true}, {true, "never", false}, {false, "auto", false}, {false, "never", false}} {
		s := testSettings()
		s.LocalReceivers = c.setting
		r := New(nil, s, Options{Sandbox: c.sandbox}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		answer := r.sender.Send(t.Context(), sender.Request{URL: receiver.URL, Header: http.Header{}})
		if answer.OK() != c.local {
			t.Errorf("%+v: %+v", c, answer)
		}
	}
}

// SIM:DUPLICATE repeats what the receiver has taken: a failure is repeated by the schedule alone.
//
//rule:decisions/sandbox
func TestMake_DuplicatesOnlyWhatWasTaken(t *testing.T) {
	for status, want := range map[int]int32{200: 2, 500: 1} {
		var received atomic.Int32
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			received.Add(1)
			w.WriteHeader(status)
		}))

		t.Cleanup(receiver.Close)
		r := newRole()
		a := someAttempt(1, time.Now())
		a.receiver.URL = receiver.URL
		a.Order, a.Version = someOrder(delivery.Assigned, time.Now()), 2
		a.Order.PackageNote = "SIM:DUPLICATE"

		r.make(t.Context(), a, time.Now(), always)

		if got := received.Load(); got != want {
			t.Errorf("answered %d: received %d times, want %d", status, got, want)
		}
	}
}

// receiveOnce is the URL of a receiver that does this with the one connection that it accepts.
func receiveOnce(t *testing.T, serve func(net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	var serving sync.WaitGroup
	serving.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn)
	})

	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})

	return "http://" + l.Addr().String() + "/"
}

// On the wire every name of the service's own is in lower case, whatever the version of HTTP:
// some verifiers look up nothing else, and a Turkish lower-casing of an I is no i.
//
//rule:request-headers/X-Service-Signature request-headers/X-Service-Event request-headers/X-Service-Attempt
func TestMake_SendsNamesOfHeadersInLowerCase(t *testing.T) {
	var head string
	received := make(chan struct{})
	url := receiveOnce(t, func(conn net.Conn) {
		request := make([]byte, 64<<10)
		n, _ := conn.Read(request)
		head, _, _ = strings.Cut(string(request[:n]), "\r\n\r\n")
		close(received)
	})

	r := newRole()
	tracer, err := tracing.Open(t.Context(), tracing.Settings{Endpoint: "http://127.0.0.1:1", SampleRatio: 1}, "worker", "sandbox", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	r.tracer = tracer
	a := someAttempt(1, time.Now())
	a.receiver.URL = url

	r.make(t.Context(), a, time.Now(), always)
	<-received

	var names []string
	for _, line := range strings.Split(head, "\r\n")[1:] {
		name, _, _ := strings.Cut(line, ":")
		names = append(names, name)
	}

	slices.Sort(names)
	want := []string{"Content-Length", "Content-Type", "Host", "User-Agent", "traceparent",
		"webhook-id", "webhook-signature", "webhook-timestamp", "x-service-attempt", "x-service-event", "x-service-signature"}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

// What a receiver sends is kept and logged only in part, however it is wrong.
func TestAttempt_KeepsLittleOfWhatAReceiverSends(t *testing.T) {
	line := strings.Repeat("\xc3\"", 30_000) // each byte of it takes four when it is quoted
	for name, answer := range map[string]string{
		"a header line without a colon": "HTTP/1.1 500 Wrong\r\n" + line + "\r\n\r\n",
		"a header's name":               "HTTP/1.1 500 Wrong\r\nX" + line + ": 1\r\n\r\n",
		"a status line":                 "HTTP/1.1 5" + line + "\r\n\r\n",
		"a version":                     line + "\r\n\r\n",
		"a length":                      "HTTP/1.1 500 Wrong\r\nContent-Length: " + line + "\r\n\r\n",
		"a coding":                      "HTTP/1.1 500 Wrong\r\nTransfer-Encoding: " + line + "\r\n\r\n",
		"a body":                        fmt.Sprintf("HTTP/1.1 500 Wrong\r\nContent-Length: %d\r\n\r\n%s", len(line), line),
	} {
		t.Run(name, func(t *testing.T) {
			url := receiveOnce(t, func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 4<<10))
				_, _ = io.WriteString(conn, answer)
			})

			answered := newRole().sender.Send(t.Context(), sender.Request{URL: url, Header: http.Header{}, Body: []byte("{}")})
			a := attempt{Delivery: new(partitions.Delivery), event: new(event), answer: answered, ending: retry}
			record := a.record()

			if a.answer.OK() || record.Error == "" {
				t.Fatalf("the attempt succeeded: %+v", record)
			}

			for what, kept := range map[string]string{"error": record.Error, "answer": record.Answer} {
				if !utf8.ValidString(kept) || utf8.RuneCountInString(kept) > 512 {
					t.Errorf("%s: %d bytes are kept", what, len(kept))
				}
			}
		})
	}
}
