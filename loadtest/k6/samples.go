package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"vendorapi/loadtest/harness"
)

// request is one HTTP request.
type request struct {
	endpoint       string // such as "POST /orders"
	account        string // label within the script; empty for a script without vendors
	step           string // of a ramp, such as "400/s"; else empty
	status         int    // 0: there was no answer
	failed         bool   // there was no answer, or a 5xx that the script had not asked for
	sent, answered time.Time
}

func (r *request) refused() bool { return r.status == 429 }

// admitted tells whether the service counted the request: it counts what it answers
// with a decision. Of a lost answer, a 5xx or a refusal before the account is known
// nobody outside can tell.
func (r *request) admitted() bool {
	switch r.status {
	case 400, 404, 409, 422, 423:
		return true
	}
	return r.status >= 200 && r.status < 300
}

// order is an order that was accepted, and the status that it must be in at last.
type order struct{ id, account, end string }

// samples are what one script did.
type samples struct {
	requests []request
	orders   []order
	stores   map[string]int // registered ones by account
}

// readSamples reads the output of `k6 run --out json=…`.
func readSamples(r io.Reader) (*samples, error) {
	all := &samples{stores: map[string]int{}}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		for _, metric := range []string{"http_req_duration", "orders_accepted", "stores_registered"} {
			if !bytes.HasPrefix(in.Bytes(), []byte(`{"metric":"`+metric+`","type":"Point"`)) {
				continue
			}
			if err := all.add(metric, in.Bytes()); err != nil {
				return nil, fmt.Errorf("k6's samples: %w: %s", err, in.Bytes())
			}
		}
	}
	return all, in.Err()
}

func (s *samples) add(metric string, line []byte) error {
	var point struct {
		Data struct {
			Time           time.Time
			Value          float64
			Tags, Metadata map[string]string
		}
	}
	if err := json.Unmarshal(line, &point); err != nil {
		return err
	}
	d := point.Data
	account := d.Tags["account"]
	switch metric {
	case "http_req_duration":
		status, err := strconv.Atoi(d.Tags["status"])
		if err != nil {
			return err
		}
		s.requests = append(s.requests, request{
			endpoint: d.Tags["name"], account: account, step: d.Tags["step"],
			status: status, failed: d.Tags["expected_response"] == "false",
			sent: d.Time.Add(-time.Duration(d.Value * float64(time.Millisecond))), answered: d.Time,
		})
	case "orders_accepted":
		if d.Metadata["order"] == "" || d.Metadata["end"] == "" {
			return fmt.Errorf("an accepted order without id or end")
		}
		s.orders = append(s.orders, order{d.Metadata["order"], account, d.Metadata["end"]})
	case "stores_registered":
		s.stores[account]++
	}
	return nil
}

// group sorts requests by a key.
func group(requests []request, key func(*request) string) map[string][]request {
	groups := map[string][]request{}
	for i := range requests {
		name := key(&requests[i])
		groups[name] = append(groups[name], requests[i])
	}
	return groups
}

// figures sum up requests.
type figures struct {
	count              int
	rate               float64 // per second, from the first one sent to the last one answered
	p50, p95, p99, max float64 // milliseconds from the first byte sent to the last received
}

func figuresOf(requests []request) figures {
	if len(requests) == 0 {
		return figures{}
	}
	from, to := requests[0].sent, requests[0].answered
	var took []float64
	for _, r := range requests {
		if r.sent.Before(from) {
			from = r.sent
		}
		if r.answered.After(to) {
			to = r.answered
		}
		took = append(took, float64(r.answered.Sub(r.sent))/float64(time.Millisecond))
	}
	quantile := func(q float64) float64 { return harness.Quantile(took, q) }
	return figures{len(took), float64(len(took)) / to.Sub(from).Seconds(), quantile(0.5), quantile(0.95), quantile(0.99), quantile(1)}
}
