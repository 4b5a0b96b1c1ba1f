package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"vendorapi/internal/webhook"
	"vendorapi/loadtest/faults/validate"
	check "vendorapi/loadtest/receiver"
)

// A Reception is what a receiver answers. Status 0: the connection breaks.
type Reception struct {
	Status     int
	RetryAfter int // seconds; 0: it does not say
	Took       time.Duration
}

// receiver takes an account's webhooks.
type receiver struct {
	account string
	random  *rand.Rand

	mu      sync.Mutex
	mood    mood
	until   time.Time
	secrets []*secret // the newest last
}

// secret signs webhooks from its issue until the next one has been known for a day, or until it is revoked.
type secret struct {
	value  string
	issued time.Time
	ends   time.Time // zero: it is the newest
}

// mood is how a receiver behaves for a while.
type mood int

const (
	healthy mood = iota
	failing
	silent
	breaking
	busy
)

func (w *world) receive(ctx context.Context, url string, header http.Header, body []byte) Reception {
	began := time.Now()
	header = canonical(header)
	v := w.vendorAt(url)
	if v == nil {
		w.breach("event-wrong", url, "a webhook was sent where nobody has asked for it")
		return Reception{Status: 404}
	}

	r := v.receiver
	r.mu.Lock()
	current := r.mood
	if !began.Before(r.until) {
		current = healthy
	}

	took := time.Duration(1+r.random.IntN(300)) * time.Millisecond
	cut := percent(r.random, 3) && v.prone // the answer is lost on its way
	r.mu.Unlock()

	arrival := validate.Arrival{Account: v.id, EventID: header.Get(webhook.HeaderID), Event: header.Get(webhook.HeaderEvent),
		Body: validate.Digest(body), Began: began}
	status := 204
	switch current {
	case failing:
		status = 500
	case silent:
		took = time.Hour
	case breaking:
		status = 0
	case busy:
		status = 503
	case healthy:
	}

	w.readWebhook(v, header, body, &arrival)
	if arrival.Invalid != "" {
		status = 401
	}

	pause(ctx, took)
	if ctx.Err() == nil {
		arrival.Answered = status
		if cut && status < 300 {
			status = 0
		}
	} else {
		status = 0
	}

	arrival.Ended = time.Now()
	w.mu.Lock()
	w.arrivals = append(w.arrivals, arrival)
	w.mu.Unlock()
	w.story.note("    receiver of %s got %s: %d", v.name, arrival.EventID, arrival.Answered)
	answer := Reception{Status: status, Took: took}
	if current == busy {
		answer.RetryAfter = 120
	}

	return answer
}

// brokeOff is what package validate takes for a request that nobody can judge.
const brokeOff = "the body broke off"

// readWebhook checks the signatures: every secret that is in force signs, and no other one.
func (w *world) readWebhook(v *vendor, header http.Header, body []byte, a *validate.Arrival) {
	v.receiver.mu.Lock()
	known := append([]*secret(nil), v.receiver.secrets...)
	v.receiver.mu.Unlock()
	if len(known) == 0 { // a rotation's answer is on its way: the receiver refuses what it cannot verify
		a.Invalid = brokeOff
		return
	}

	var values []string
	for _, s := range known {
		values = append(values, s.value)
	}

	e, _, err := check.Read(values, header, body, time.Now())
	if err != nil {
		a.Invalid = err.Error()
		return
	}

	a.Occurred = e.OccurredAt
	a.Attempt = e.Attempt
	a.Order, a.External, a.Status, a.Failure = e.Order.OrderID, e.Order.ExternalOrderID, e.Order.Status, e.Order.FailureReason
	w.checkSignatures(v, known, header, body)
}

// signatureSlack is how long a worker may go on with the secrets that it has read.
const signatureSlack = 10 * time.Minute

func (w *world) checkSignatures(v *vendor, known []*secret, header http.Header, body []byte) {
	var seconds int64
	if _, err := fmt.Sscan(header.Get(webhook.HeaderTimestamp), &seconds); err != nil {
		w.breach("event-wrong", header.Get(webhook.HeaderID), "its timestamp is %q", header.Get(webhook.HeaderTimestamp))
		return
	}

	at := time.Unix(seconds, 0)
	signatures := strings.Fields(header.Get(webhook.HeaderStandardSignature))
	for _, s := range known {
		own, err := webhook.SignStandard(header.Get(webhook.HeaderID), at, body, s.value)
		if err != nil {
			continue
		}

		signs := false
		for _, signature := range signatures {
			signs = signs || signature == own
		}

		now := time.Now()
		isOver := !s.ends.IsZero() && now.After(s.ends.Add(signatureSlack))
		isOn := now.After(s.issued.Add(signatureSlack)) && (s.ends.IsZero() || now.Before(s.ends.Add(-signatureSlack)))
		switch {
		case signs && isOver:
			w.breach("secret-lives", v.name, "a webhook secret signed %s after its end", now.Sub(s.ends))
		case !signs && isOn:
			w.breach("secret-lost", v.name, "a webhook secret of %s, to end at %s, did not sign",
				s.issued.Format(time.RFC3339), s.ends.Format(time.RFC3339))
		}
	}
}

func (w *world) vendorAt(url string) *vendor {
	for _, v := range w.vendors {
		if strings.HasPrefix(url, v.receiverURL()) {
			return v
		}
	}
	return nil
}

func (v *vendor) receiverURL() string { return "https://" + v.name + ".example/" }

// changeMoods lets a receiver be out of order now and then.
func (v *vendor) changeMoods(ctx context.Context) {
	random := v.w.chance("moods of " + v.name)
	for time.Now().Before(v.w.plan.end()) {
		pause(ctx, time.Duration(random.Int64N(int64(6*time.Hour))))
		if ctx.Err() != nil {
			return
		}

		length := draw(random, []time.Duration{time.Minute, 30 * time.Minute, 5 * time.Hour, 30 * time.Hour})
		v.receiver.mu.Lock()
		v.receiver.mood = draw(random, []mood{failing, failing, silent, breaking, busy})
		v.receiver.until = time.Now().Add(length)
		v.receiver.mu.Unlock()
		v.w.story.note("    receiver of %s is out of order for %s", v.name, length)
		pause(ctx, length)
	}
}

// canonical are headers as a server reads them, whatever their names look like on the way.
func canonical(sent http.Header) http.Header {
	read := make(http.Header, len(sent))
	for name, values := range sent {
		for _, value := range values {
			read.Add(name, value)
		}
	}
	return read
}
