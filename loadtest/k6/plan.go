package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"vendorapi/loadtest/k6/window"
)

// script is one of loadtest/*.js and what it needs.
type script struct {
	name     string
	accounts int
	// factor multiplies the contract's limits of POST /orders, as an operator
	// raises them for a large vendor; 1: as they are.
	factor int
	// courier is "auto", or "manual" for a script whose orders are to stay where
	// they are; then only stores are confirmed.
	courier string
	// setting is the variable that tells the script its length, and length its
	// value at scale 1; empty where the limits' own windows decide.
	setting string
	length  time.Duration
	// about is what the script takes beside its length.
	about time.Duration
	// pieces is how many times its length the script takes.
	pieces int
}

// scripts in the order in which they run.
var scripts = []script{
	{name: "burst", accounts: 2, factor: 1, courier: "auto", about: 63 * time.Second},
	{name: "polling", accounts: 4, factor: 1, courier: "auto", about: 24 * time.Second},
	{name: "steady", accounts: 8, factor: 1, courier: "auto", setting: "DURATION", length: 32 * time.Second, pieces: 1, about: time.Second},
	{name: "evening", accounts: 4, factor: 1, courier: "auto", setting: "DURATION", length: 50 * time.Second, pieces: 1, about: 8 * time.Second},
	{name: "soak", accounts: 2, factor: 1, courier: "auto", setting: "DURATION", length: 36 * time.Second, pieces: 1, about: time.Second},
	{name: "ramp", accounts: 16, factor: 10, courier: "manual", setting: "STEP", length: 4 * time.Second, pieces: 7, about: time.Second},
}

// shortest is the least length that says anything.
const shortest = 2 * time.Second

// choose returns the scripts that are named, separated by commas, in their own
// order; all of them for an empty list.
func choose(names string) ([]script, error) {
	if names == "" {
		return scripts, nil
	}
	wanted := strings.Split(names, ",")
	var chosen []script
	for _, s := range scripts {
		if slices.Contains(wanted, s.name) {
			chosen = append(chosen, s)
			wanted = slices.DeleteFunc(wanted, func(w string) bool { return w == s.name })
		}
	}
	if len(wanted) > 0 {
		var known []string
		for _, s := range scripts {
			known = append(known, s.name)
		}
		return nil, fmt.Errorf("there is no script %s; there are %s", strings.Join(wanted, ", "), strings.Join(known, ", "))
	}
	return chosen, nil
}

// scaled is the script's length times scale.
func (s *script) scaled(scale float64) time.Duration {
	return max(shortest, time.Duration(float64(s.length)*scale).Round(time.Second))
}

// environment is what tells the script its length.
func (s *script) environment(scale float64) []string {
	if s.setting == "" {
		return nil
	}
	return []string{s.setting + "=" + s.scaled(scale).String()}
}

// expected is how long the script's run takes.
func (s *script) expected(scale float64) time.Duration {
	return s.about + time.Duration(s.pieces)*s.scaled(scale)
}

// patience bounds the script's run: it should have ended long before.
func (s *script) patience(scale float64) time.Duration {
	return 2*s.expected(scale) + 2*time.Minute
}

// limits are those that the script's accounts are created with; nil: the
// contract's.
func (s *script) limits() map[string]any {
	if s.factor == 1 {
		return nil
	}
	form := map[string]any{}
	for name, l := range map[string]window.Limit{"sustained": ordersMinute, "burst": ordersBurst} {
		form[name] = map[string]int{"count": l.Count * s.factor, "seconds": int(l.Span.Seconds())}
	}
	return map[string]any{"orders": form}
}

// The contract's limits (spec, "Limits").
var (
	ordersMinute = window.Limit{Count: 600, Span: time.Minute}
	ordersBurst  = window.Limit{Count: 120, Span: 10 * time.Second}
)

// bucket is what an account's requests are counted in.
type bucket struct {
	name   string
	limits []window.Limit
	// alone says that nothing but these limits refuses; where something else
	// does, too, a refusal cannot be judged by them.
	alone bool
}

// buckets are those of the script's accounts.
func (s *script) buckets() []bucket {
	minute, burst := ordersMinute, ordersBurst
	minute.Count *= s.factor
	burst.Count *= s.factor
	return []bucket{
		{"POST /orders", []window.Limit{minute, burst}, true},
		{"POST /orders/{id}/cancel", []window.Limit{{Count: 600, Span: time.Minute}}, true},
		{"GET /orders/{id}", []window.Limit{{Count: 3000, Span: time.Minute}}, false},     // each order has a limit of its own
		{"PUT /stores/{id}", []window.Limit{{Count: 200, Span: 10 * time.Second}}, false}, // and the sustained rate refuses
		{"POST /token", []window.Limit{{Count: 60, Span: time.Hour}}, true},
	}
}

// bucketOf is the name of the bucket that an endpoint's requests count in.
func bucketOf(endpoint string) string {
	if strings.HasPrefix(endpoint, "GET ") {
		return "GET /orders/{id}"
	}
	return endpoint
}
