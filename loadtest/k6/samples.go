package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

type request struct {
	endpoint       string // such as "POST /orders"
	account        string // label within the script; empty for a script without vendors
	step           string // of a ramp, such as "400/s"; else empty
	status         int    // 0: there was no answer
	failed         bool   // there was no answer, or a 5xx that the script had not asked for
	sent, answered time.Time
}

func (r *request) refused() bool { return r.status == 429 }

// admitted reports whether the service counted the request: it counts what it answers with a decision. Of a lost
// answer, a 5xx or a refusal before the account is known nobody outside can know.
func (r *request) admitted() bool {
	return r.status >= 200 && r.status < 300 || slices.Contains([]int{400, 404, 409, 422, 423}, r.status)
}

type samples struct {
	requests []request
	orders   map[string][]receiver.History // accepted ones by account, with the status that each must be in at last
	stores   map[string]int                // registered ones by account
}

// readSamples reads the output of `k6 run --out json=…`.
func readSamples(r io.Reader) (*samples, error) {
	all := &samples{orders: map[string][]receiver.History{}, stores: map[string]int{}}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		start, isPoint := bytes.CutPrefix(in.Bytes(), []byte(`{"metric":"`))
		metric, _, _ := bytes.Cut(start, []byte(`"`))
		if !isPoint {
			continue
		}
		if err := all.add(string(metric), in.Bytes()); err != nil {
			return nil, fmt.Errorf("k6's samples: %w: %s", err, in.Bytes())
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
	if !slices.Contains([]string{"http_req_duration", "orders_accepted", "stores_registered"}, metric) {
		return nil
	}
	if err := json.Unmarshal(line, &point); err != nil {
		return err
	}
	d := point.Data
	account := d.Tags["account"]
	switch metric {
	case "http_req_duration":
		status, err := strconv.Atoi(d.Tags["status"])
		s.requests = append(s.requests, request{
			endpoint: d.Tags["name"], account: account, step: d.Tags["step"],
			status: status, failed: d.Tags["expected_response"] == "false",
			sent: d.Time.Add(-time.Duration(d.Value * float64(time.Millisecond))), answered: d.Time,
		})
		return err
	case "orders_accepted":
		if d.Metadata["order"] == "" || d.Metadata["end"] == "" {
			return errors.New("an accepted order without id or end")
		}
		s.orders[account] = append(s.orders[account], receiver.History{OrderID: d.Metadata["order"], End: d.Metadata["end"]})
	case "stores_registered":
		s.stores[account]++
	}
	return nil
}

func group(requests []request, key func(*request) string) map[string][]request {
	groups := map[string][]request{}
	for i := range requests {
		name := key(&requests[i])
		groups[name] = append(groups[name], requests[i])
	}
	return groups
}

type figures struct {
	Count              int
	Rate               float64 // per second, from the first one sent to the last one answered
	P50, P95, P99, Max float64 // milliseconds from the first byte sent to the last received
}

func figuresOf(requests []request) figures {
	if len(requests) == 0 {
		return figures{}
	}
	from := slices.MinFunc(requests, func(a, b request) int { return a.sent.Compare(b.sent) }).sent
	to := slices.MaxFunc(requests, func(a, b request) int { return a.answered.Compare(b.answered) }).answered
	var took []float64
	for _, r := range requests {
		took = append(took, float64(r.answered.Sub(r.sent))/float64(time.Millisecond))
	}
	quantile := func(q float64) float64 { return harness.Quantile(took, q) }
	return figures{len(took), float64(len(took)) / to.Sub(from).Seconds(), quantile(0.5), quantile(0.95), quantile(0.99), quantile(1)}
}
