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
	// factor multiplies the contract's limits of POST /orders, as an operator
	// raises them for a large vendor.
	factor int
	// manual leaves orders where they are: without a sandbox courier only stores
	// are confirmed.
	manual bool
	// setting is the variable of the script's length, and length its value at scale
	// 1; empty where the limits' own windows decide. The script takes pieces times its
	// length, and rest besides.
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

// choose returns the scripts that are named, separated by commas, in their own
// order; all of them for an empty list.
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

// expected is how long the script's run takes.
func (s *script) expected(scale float64) time.Duration {
	return s.rest + time.Duration(s.pieces)*s.scaled(scale)
}

// limits are those that the script's accounts are created with; nil: the
// contract's.
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
	// alone: nothing but these limits refuses. Where something else does, too, a
	// refusal cannot be checked.
	alone bool
}

// buckets are those of the script's accounts.
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
