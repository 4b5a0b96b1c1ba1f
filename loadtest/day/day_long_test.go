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
	p, err := newPlan(300, 1, "T-")
	if err != nil {
		t.Fatal(err)
	}
	same, err := newPlan(300, 1, "T-")
	if err != nil {
		t.Fatal(err)
	}
	codes, ends := map[string]int{}, map[string]int{}
	for i, r := range p.requests {
		if r.original == nil {
			codes[r.want.Code]++
			ends[r.want.End]++
		} else if slices.Index(p.requests, r.original) >= i {
			t.Errorf("request %d repeats a later one", i)
		}
		if string(r.body) != string(same.requests[i].body) {
			t.Fatalf("request %d differs for the same seed:\n%s\n%s", i, r.body, same.requests[i].body)
		}
	}
	if len(p.requests) != 315 || len(codes) != 12 || ends[""] != 24 || ends["Failed"] != 24 || ends["Cancelled"] != 24 || ends["Delivered"] != 228 {
		t.Errorf("%d requests, codes %v, ends %v", len(p.requests), codes, ends)
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
	p.claim(now.Add(100 * time.Millisecond)) // two in flight

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
