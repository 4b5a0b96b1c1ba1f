package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"vendorapi/loadtest/harness"
)

// sizing is a file that an operator fills in: what one order costs, measured by
// `make bench` and `make bench-growth`, and what the operator decides.
type sizing struct {
	// Measured says where and when.
	Measured string         `json:"measured"`
	Costs    orderCosts     `json:"per_order"`
	Choices  sizingDecision `json:"choices"`
}

// orderCosts are of one order on its whole way: created, carried out in five
// reports of its fleet, told by five webhooks. The names are those of bench.json.
type orderCosts struct {
	RedisMicros   float64 `json:"delivered.redis_us"`            // Redis's main thread
	GatewayMicros float64 `json:"delivered.gateway_us"`          // CPU of gateways
	WorkerMicros  float64 `json:"delivered.worker_us"`           // CPU of workers
	FileBytes     float64 `json:"delivered.aof_bytes"`           // appended to the append-only file
	Flushes       float64 `json:"delivered.disk_flushes"`        // fsyncs, at the load that was measured
	RedisIn       float64 `json:"delivered.redis_net_in_bytes"`  // to Redis
	RedisOut      float64 `json:"delivered.redis_net_out_bytes"` // from Redis
	Webhooks      float64 `json:"delivered.webhooks"`            // sent
	WebhookBytes  float64 `json:"delivered.webhook_bytes"`       // all of them together
	RequestBytes  float64 `json:"created.http_in_bytes"`         // the creation's request
	AnswerBytes   float64 `json:"created.http_out_bytes"`        // and its answer
	// LiveBytes and IDBytes are Redis memory, measured by `make bench-growth`; 0:
	// not measured yet.
	LiveBytes float64 `json:"growth.memory_per_live_order"`
	IDBytes   float64 `json:"growth.memory_per_retired_id"`
}

// sizingDecision is what no measurement can tell.
type sizingDecision struct {
	Utilisation     float64 `json:"utilisation"`      // of a core at the peak, 0 to 1: the rest is for bursts and failures
	DayToPeak       float64 `json:"day_to_peak"`      // a day's mean rate as a part of the peak's, 0 to 1
	LiveDays        float64 `json:"live_days"`        // status.retention of configs/worker.yaml, in days
	IDYears         float64 `json:"id_years"`         // for how long retired ids are reckoned; they stay for ever
	ProgramCores    float64 `json:"program_cores"`    // of one gateway or worker
	MasterMemory    float64 `json:"master_memory_gb"` // of one Redis, the quarter for rewriting taken off
	PerMaster       float64 `json:"partitions_per_master"`
	LeastPartitions float64 `json:"least_partitions"`
}

func readSizing(path string) (*sizing, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("sizing: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var s sizing
	if err := decoder.Decode(&s); err != nil {
		return nil, fmt.Errorf("sizing %s: %w", path, err)
	}
	c := s.Choices
	switch {
	case c.Utilisation <= 0 || c.Utilisation > 1 || c.DayToPeak <= 0 || c.DayToPeak > 1:
		err = errors.New("utilisation and day_to_peak: want more than 0 and at most 1")
	case c.LiveDays <= 0 || c.IDYears < 0 || c.ProgramCores <= 0 || c.MasterMemory <= 0 || c.PerMaster < 1 || c.LeastPartitions < 1:
		err = errors.New("a choice is missing or out of range")
	case s.Costs.RedisMicros <= 0 || s.Costs.GatewayMicros <= 0 || s.Costs.WorkerMicros <= 0:
		err = errors.New("a cost is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("sizing %s: %w", path, err)
	}
	return &s, nil
}

// need is one row of the page: what a rate asks for.
type need struct {
	what    string
	formula string
	of      func(s *sizing, rate float64) (float64, bool) // false: a figure has not been measured
	unit    string
}

const (
	day  = 86400.0
	giga = 1e9
)

func known(v float64) (float64, bool) { return v, true }

func (s *sizing) ordersPerDay(rate float64) float64 { return rate * day * s.Choices.DayToPeak }

func (s *sizing) cores(rate, micros float64) float64 {
	return rate * micros / 1e6 / s.Choices.Utilisation
}

// memory is what live orders and retired ids take in Redis, in GB.
func (s *sizing) memory(rate float64) (live, ids float64, measured bool) {
	live = s.ordersPerDay(rate) * s.Choices.LiveDays * s.Costs.LiveBytes / giga
	ids = s.ordersPerDay(rate) * 365 * s.Choices.IDYears * s.Costs.IDBytes / giga
	return live, ids, s.Costs.LiveBytes > 0 && s.Costs.IDBytes > 0
}

// masters is the number of Redis masters that CPU and, as far as it has been
// measured, memory ask for.
func (s *sizing) masters(rate float64) float64 {
	live, ids, _ := s.memory(rate)
	return math.Ceil(max(s.cores(rate, s.Costs.RedisMicros), (live+ids)/s.Choices.MasterMemory))
}

// partitions is a power of two; the number can never be changed.
func (s *sizing) partitions(rate float64) float64 {
	least := max(s.masters(rate)*s.Choices.PerMaster, s.Choices.LeastPartitions)
	return math.Exp2(math.Ceil(math.Log2(least)))
}

var needs = []need{
	{"orders a day", "rate x 86,400 x day_to_peak", func(s *sizing, r float64) (float64, bool) { return known(s.ordersPerDay(r) / 1e6) }, "million"},
	{"Redis masters, by CPU", "rate x redis_us / 1e6 / utilisation", func(s *sizing, r float64) (float64, bool) {
		return known(math.Ceil(s.cores(r, s.Costs.RedisMicros)))
	}, ""},
	{"memory of live orders", "orders a day x live_days x memory_per_live_order", func(s *sizing, r float64) (float64, bool) {
		live, _, measured := s.memory(r)
		return live, measured
	}, "GB"},
	{"memory of retired ids", "orders a day x 365 x id_years x memory_per_retired_id", func(s *sizing, r float64) (float64, bool) {
		_, ids, measured := s.memory(r)
		return ids, measured
	}, "GB"},
	{"Redis masters, by memory", "both memories / master_memory_gb", func(s *sizing, r float64) (float64, bool) {
		live, ids, measured := s.memory(r)
		return math.Ceil((live + ids) / s.Choices.MasterMemory), measured
	}, ""},
	{"partitions, 1,024 at most", "partitions_per_master x the larger number of masters, to a power of two", func(s *sizing, r float64) (float64, bool) {
		_, _, measured := s.memory(r)
		return s.partitions(r), measured
	}, ""},
	{"gateways", "rate x gateway_us / 1e6 / utilisation / program_cores", func(s *sizing, r float64) (float64, bool) {
		return known(math.Ceil(s.cores(r, s.Costs.GatewayMicros) / s.Choices.ProgramCores))
	}, ""},
	{"workers", "rate x worker_us / 1e6 / utilisation / program_cores", func(s *sizing, r float64) (float64, bool) {
		return known(math.Ceil(s.cores(r, s.Costs.WorkerMicros) / s.Choices.ProgramCores))
	}, ""},
	{"disk, all masters, rewriting included", "2 x rate x aof_bytes", func(s *sizing, r float64) (float64, bool) { return known(2 * r * s.Costs.FileBytes / 1e6) }, "MB/s"},
	{"fsyncs, all masters, at most", "rate x disk_flushes", func(s *sizing, r float64) (float64, bool) { return s.Costs.Flushes * r, s.Costs.Flushes > 0 }, "/s"},
	{"network of Redis", "rate x (redis_net_in + redis_net_out)", func(s *sizing, r float64) (float64, bool) {
		return known(r * (s.Costs.RedisIn + s.Costs.RedisOut) / 1e6)
	}, "MB/s"},
	{"network of vendors, creations", "rate x (http_in + http_out)", func(s *sizing, r float64) (float64, bool) {
		return known(r * (s.Costs.RequestBytes + s.Costs.AnswerBytes) / 1e6)
	}, "MB/s"},
	{"webhooks", "rate x webhooks", func(s *sizing, r float64) (float64, bool) { return known(r * s.Costs.Webhooks) }, "/s"},
	{"network of webhooks", "rate x webhook_bytes", func(s *sizing, r float64) (float64, bool) { return known(r * s.Costs.WebhookBytes / 1e6) }, "MB/s"},
}

// print writes what each rate needs, with the formulae.
func (s *sizing) print(out io.Writer, rates []float64) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "orders per second at the peak")
	for _, rate := range rates {
		fmt.Fprintf(w, "\t%s", harness.Number(rate))
	}
	fmt.Fprintln(w, "\t= formula")
	for _, n := range needs {
		fmt.Fprint(w, n.what)
		for _, rate := range rates {
			v, measured := n.of(s, rate)
			if !measured {
				fmt.Fprint(w, "\tnot measured")
				continue
			}
			fmt.Fprintf(w, "\t%s", strings.TrimSpace(harness.Number(v)+" "+n.unit))
		}
		fmt.Fprintf(w, "\t= %s\n", n.formula)
	}
	_ = w.Flush() // nobody reads it
}

// parseRates reads "10000,100000".
func parseRates(list string) ([]float64, error) {
	var rates []float64
	for text := range strings.SplitSeq(list, ",") {
		rate, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || rate <= 0 || math.IsInf(rate, 0) {
			return nil, fmt.Errorf("-need: %q is no rate of orders per second", text)
		}
		rates = append(rates, rate)
	}
	return rates, nil
}
