package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/stack"
)

// script is one of loadtest/*.js and what it needs.
type script struct {
	name     string
	accounts int
	// factor multiplies the contract's limits of POST /orders, as an operator raises them for a large vendor.
	factor int
	// manual leaves orders where they are: without a sandbox courier only stores are confirmed.
	manual bool
	// setting is the variable of the script's length, and length its value at scale 1; empty where the limits' own
	// windows decide. The script takes pieces times its length, and rest besides.
	setting string
	length  time.Duration
	pieces  int
	rest    time.Duration
}

// scripts in the order in which they run.
var scripts = []script{
	{name: "burst", accounts: 2, factor: 1, rest: 63 * time.Second},
	{name: "polling", accounts: 4, factor: 1, rest: 24 * time.Second},
	{name: "steady", accounts: 8, factor: 1, setting: "DURATION", length: 32 * time.Second, pieces: 1, rest: time.Second},
	{name: "evening", accounts: 4, factor: 1, setting: "DURATION", length: 50 * time.Second, pieces: 1, rest: 8 * time.Second},
	{name: "soak", accounts: 2, factor: 1, setting: "DURATION", length: 36 * time.Second, pieces: 1, rest: time.Second},
	{name: "ramp", accounts: 16, factor: 10, manual: true, setting: "STEP", length: 4 * time.Second, pieces: 7, rest: time.Second},
}

// choose returns the scripts that are named, separated by commas, in their own order; all of them for an empty list.
func choose(names string) ([]script, error) {
	if names == "" {
		return scripts, nil
	}
	wanted := strings.Split(names, ",")
	chosen := slices.DeleteFunc(slices.Clone(scripts), func(s script) bool { return !slices.Contains(wanted, s.name) })
	if len(chosen) != len(wanted) {
		return nil, fmt.Errorf("-scripts %s: not all of them are in loadtest/k6/scripts.go", names)
	}
	return chosen, nil
}

// scaled is the script's length times scale, but no less than is of any use.
func (s *script) scaled(scale float64) time.Duration {
	return max(2*time.Second, time.Duration(float64(s.length)*scale).Round(time.Second))
}

func (s *script) expected(scale float64) time.Duration {
	return s.rest + time.Duration(s.pieces)*s.scaled(scale)
}

// limits are those that the script's accounts are created with; nil: the contract's.
func (s *script) limits() any {
	if s.factor == 1 {
		return nil
	}
	return map[string]any{"orders": stack.Limit(600*s.factor, 60, 120*s.factor, 10)}
}

// bucket is what an account's requests are counted in (spec, "Limits").
type bucket struct {
	name   string
	limits []limit
	// alone: nothing but these limits refuses. Where something else does, too, a refusal cannot be checked.
	alone bool
}

func (s *script) buckets() []bucket {
	return []bucket{
		{"POST /orders", []limit{{600 * s.factor, time.Minute}, {120 * s.factor, 10 * time.Second}}, true},
		{"POST /orders/{id}/cancel", []limit{{600, time.Minute}}, true},
		{"GET /orders/{id}", []limit{{3000, time.Minute}}, false},     // each order has a limit of its own
		{"PUT /stores/{id}", []limit{{200, 10 * time.Second}}, false}, // and the sustained rate refuses
		{"POST /token", []limit{{60, time.Hour}}, true},
	}
}

// has reports whether an endpoint's requests count in the bucket.
func (b *bucket) has(endpoint string) bool {
	return b.name == endpoint || strings.HasPrefix(b.name, "GET ") && strings.HasPrefix(endpoint, "GET ")
}

// Limits are checked from outside. A vendor does not know when the service counted a request, only that it was
// between sending it and having the answer, so only what is certain from these two moments is claimed.
// loadtest/lib/window.js does the same for a single script.

// skew is the part by which the vendor's clock and the service's may run apart: NTP slews each by at most 500 ppm.
const skew = 0.001

// limit is "at most count in any span". An account's limits hold together: a
// request is admitted when all of them allow it.
type limit struct {
	count int
	span  time.Duration
}

// String is such as "120 in 10 s".
func (l limit) String() string { return fmt.Sprintf("%d in %.0f s", l.count, l.span.Seconds()) }

// limitRow is what is certain of the requests that one limit is for, of an account or of all of a script's.
type limitRow struct {
	Bucket   string
	Limit    limit
	Accounts int // that sent anything
	Admitted int
	Refused  int
	Most     int // certainly admitted within the span, of the account with the most
	Wronged  int // refused although every limit had room; -1: not known
	Held     bool
}

// measure looks at all requests of one account in one bucket, in any order, and has a row for each limit. One whose
// answer was lost or leaves open whether it was counted counts as admitted where that favours the service, and not
// where it does not.
func measure(requests []request, limits []limit) (rows []limitRow) {
	certain := boundsOf(requests, (*request).admitted)
	possible := boundsOf(requests, func(r *request) bool { return !r.refused() })
	wronged := 0
	for _, r := range requests {
		if r.refused() && possible.hadRoom(r, limits) {
			wronged++
		}
	}
	for _, l := range limits {
		rows = append(rows, limitRow{Admitted: len(certain.sent), Refused: len(requests) - len(possible.sent),
			Most: certain.most(time.Duration(float64(l.span) * (1 - skew))), Wronged: wronged})
	}
	return rows
}

// bounds are the two moments of many requests, each ascending.
type bounds struct{ sent, answered []time.Time }

func boundsOf(requests []request, counts func(*request) bool) *bounds {
	b := &bounds{}
	for i := range requests {
		if r := &requests[i]; counts(r) {
			b.sent, b.answered = append(b.sent, r.sent), append(b.answered, r.answered)
		}
	}
	slices.SortFunc(b.sent, time.Time.Compare)
	slices.SortFunc(b.answered, time.Time.Compare)
	return b
}

// most is the largest number that was certainly counted within less than span: those answered by some moment, less
// all that were sent before the span that ends there.
func (b *bounds) most(span time.Duration) (most int) {
	for i, end := range b.answered {
		most = max(most, i+1-upTo(b.sent, end.Add(-span)))
	}
	return most
}

// hadRoom reports whether, at whatever moment r was refused, fewer than allowed
// can have been counted in every limit's window before it.
func (b *bounds) hadRoom(r request, limits []limit) bool {
	for _, l := range limits {
		longer := time.Duration(float64(l.span) * (1 + skew))
		if upTo(b.sent, r.answered)-upTo(b.answered, r.sent.Add(-longer)) >= l.count {
			return false
		}
	}
	return true
}

// upTo is how many of the ascending moments are not after t.
func upTo(moments []time.Time, t time.Time) int {
	n, _ := slices.BinarySearchFunc(moments, t.Add(1), time.Time.Compare)
	return n
}

// checkLimits compares every account's requests with the limits of every bucket.
func checkLimits(s *script, requests []request) (rows []limitRow) {
	for _, b := range s.buckets() {
		counted := slices.DeleteFunc(slices.Clone(requests), func(r request) bool { return r.account == "" || !b.has(r.endpoint) })
		accounts := group(counted, func(r *request) string { return r.account })
		if len(accounts) == 0 {
			continue
		}
		for i, l := range b.limits {
			row := limitRow{Bucket: b.name, Limit: l, Accounts: len(accounts)}
			for _, requests := range accounts {
				one := measure(requests, b.limits)[i]
				row.Admitted += one.Admitted
				row.Refused += one.Refused
				row.Most = max(row.Most, one.Most)
				row.Wronged += one.Wronged
			}
			if !b.alone {
				row.Wronged = -1
			}
			row.Held = row.Most <= l.count && row.Wronged <= 0
			rows = append(rows, row)
		}
	}
	return rows
}
