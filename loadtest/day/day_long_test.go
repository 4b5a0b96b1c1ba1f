//go:build long

package day

import (
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"
)

func TestNewPlan_HasEveryKindAndIsRepeatable(t *testing.T) {
	p := newPlan(300, 1, "T-")
	codes, ends, payments, keys, repeats := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}, 0
	for i, r := range p.requests {
		if r.original != nil {
			repeats++
			if slices.Index(p.requests, r.original) >= i {
				t.Errorf("request %d repeats a later one", i)
			}
			continue
		}
		keys[r.externalID]++
		codes[r.wantCode]++
		ends[r.wantEnd]++
		payments[r.payment]++
	}
	if len(keys) != 300 || repeats != 15 || len(p.stores) != 12 {
		t.Errorf("%d orders, %d repetitions, %d stores", len(keys), repeats, len(p.stores))
	}
	for _, code := range []string{
		"INVALID_PHONE", "INVALID_RECIPIENT", "INVALID_ADDRESS", "COORDINATE_MISMATCH", "DROPOFF_OUT_OF_COVERAGE",
		"READY_AT_TOO_FAR", "STORE_NOT_CONFIGURED", "VALIDATION_FAILED", "MALFORMED_REQUEST", "FLEET_SUSPENDED", "FLEET_UNAVAILABLE",
	} {
		if codes[code] < 2 {
			t.Errorf("%d orders for %s", codes[code], code)
		}
	}
	if ends[""] != 24 || ends["Failed"] != 24 || ends["Cancelled"] != 24 || ends["Delivered"] != 228 {
		t.Errorf("ends: %v", ends)
	}
	if len(payments) != 4 || payments["none"] == 0 {
		t.Errorf("payments: %v", payments)
	}
	same := newPlan(300, 1, "T-")
	for i, r := range p.requests {
		if r.wantCode != "READY_AT_TOO_FAR" && string(r.body) != string(same.requests[i].body) {
			t.Fatalf("request %d differs for the same seed:\n%s\n%s", i, r.body, same.requests[i].body)
		}
	}
	if string(newPlan(300, 2, "T-").requests[0].body) == string(p.requests[0].body) {
		t.Error("another seed gives the same day")
	}
}

func limits(remaining int, reset time.Time) http.Header {
	h := http.Header{}
	h.Set("X-RateLimit-Remaining", strconv.Itoa(remaining))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
	return h
}

func TestPacer_ObeysRateAndHeaders(t *testing.T) {
	p := newPacer(10)
	now := time.Unix(1000, 0)
	if p.claim(now) != 0 {
		t.Fatal("the first has to wait")
	}
	if wait := p.claim(now); wait != 100*time.Millisecond {
		t.Errorf("the second waits %v", wait)
	}
	p.claim(now.Add(100 * time.Millisecond)) // two under way

	p.learn(limits(1, now.Add(5*time.Second))) // one of them may take the last place
	later := now.Add(time.Second)
	if wait := p.claim(later); wait != 4*time.Second {
		t.Errorf("with nothing left it waits %v", wait)
	}
	p.learn(limits(0, now.Add(5*time.Second)))
	at := now.Add(5 * time.Second)
	if wait := p.claim(at); wait != 0 {
		t.Errorf("after the reset it waits %v", wait)
	}
	if wait := p.claim(at.Add(time.Second)); wait != 0 {
		t.Errorf("a reset that is past makes it wait %v", wait)
	}
	p.learn(nil)
	p.learn(limits(50, at.Add(10*time.Second)))
	for i := range 50 {
		if p.claim(at.Add(time.Duration(i+20)*100*time.Millisecond)) != 0 {
			t.Fatalf("place %d is refused", i)
		}
	}
	if p.claim(at.Add(8*time.Second)) <= 0 {
		t.Error("a place beyond what remains")
	}
}
