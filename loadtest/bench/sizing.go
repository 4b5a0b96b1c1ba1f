package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/goccy/go-yaml"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// sizing is a file that an operator fills in: what one order costs, by the names of bench.json (and of `make
// bench-growth`, growth.…), and what the operator decides. loadtest/SIZING.md explains both.
type sizing struct {
	Measured string             `json:"measured"` // where and when
	Costs    map[string]float64 `json:"per_order"`
	Choices  struct {
		Utilisation         float64 `json:"utilisation"`      // of a core at the peak, 0 to 1: the rest is for bursts and failures
		DayToPeak           float64 `json:"day_to_peak"`      // a day's mean rate as a part of the peak's, 0 to 1
		LiveDays            float64 `json:"live_days"`        // status.retention of configs/worker.yaml, in days
		IDYears             float64 `json:"id_years"`         // for how long retired ids are reckoned; they stay for ever
		ProgramCores        float64 `json:"program_cores"`    // of one gateway or worker
		ReceiverSeconds     float64 `json:"receiver_seconds"` // how long a vendor's receiver takes to answer a webhook
		WorkerSlots         float64 `json:"worker_slots"`     // webhook.concurrency of configs/worker.yaml
		PerEndpoint         float64 `json:"per_endpoint"`     // webhook.per_endpoint there, or an account's own maxInFlight
		MasterMemory        float64 `json:"master_memory_gb"` // of one Redis, the quarter for rewriting taken off
		PartitionsPerMaster float64 `json:"partitions_per_master"`
		LeastPartitions     float64 `json:"least_partitions"`
	} `json:"choices"`
}

// requiredCosts are in every sizing; without one of the others the lines that need it say "not measured".
var requiredCosts = []string{"delivered.redis_us", "delivered.gateway_us", "delivered.worker_us"}

var optionalCosts = []string{
	"delivered.aof_bytes", "delivered.disk_flushes", "delivered.redis_net_in_bytes", "delivered.redis_net_out_bytes",
	"delivered.webhooks", "delivered.webhook_bytes", "created.http_in_bytes", "created.http_out_bytes",
	"growth.memory_per_live_order", "growth.memory_per_shrunk_order", "growth.memory_per_retired_id",
}

func readSizing(content []byte) (*sizing, error) {
	var s sizing
	if err := yaml.UnmarshalWithOptions(content, &s, yaml.Strict()); err != nil { // JSON is YAML, too
		return nil, err
	}
	for name := range s.Costs {
		if !slices.Contains(requiredCosts, name) && !slices.Contains(optionalCosts, name) {
			return nil, fmt.Errorf("unknown cost %q", name)
		}
	}
	for _, name := range requiredCosts {
		if s.Costs[name] <= 0 {
			return nil, fmt.Errorf("the cost %q is missing", name)
		}
	}
	c := s.Choices
	switch {
	case c.Utilisation <= 0 || c.Utilisation > 1 || c.DayToPeak <= 0 || c.DayToPeak > 1:
		return nil, errors.New("utilisation and day_to_peak: want more than 0 and at most 1")
	case c.LiveDays <= 0 || c.IDYears < 0 || c.ProgramCores <= 0 || c.MasterMemory <= 0 || c.PartitionsPerMaster < 1 || c.LeastPartitions < 1 ||
		c.ReceiverSeconds <= 0 || c.WorkerSlots < 1 || c.PerEndpoint < 1:
		return nil, errors.New("a choice is missing or out of range")
	}
	return &s, nil
}

// need is one row of the table: what a rate of orders asks for. Its value is no
// number when a cost has not been measured.
type need struct {
	what, unit, formula string
	value               float64
}

func (s *sizing) needs(rate float64) []need {
	cost := func(name string) float64 {
		if v := s.Costs[name]; v > 0 {
			return v
		}
		return math.NaN()
	}
	c := s.Choices
	cores := func(name string) float64 { return rate * cost(name) / 1e6 / c.Utilisation }
	programs := func(name string) float64 { return math.Ceil(cores(name) / c.ProgramCores) }
	ordersPerDay := rate * 86400 * c.DayToPeak
	// An order shrinks a day after its end.
	live := ordersPerDay * (min(c.LiveDays, 1)*cost("growth.memory_per_live_order") + max(c.LiveDays-1, 0)*cost("growth.memory_per_shrunk_order")) / 1e9
	ids := ordersPerDay * 365 * c.IDYears * cost("growth.memory_per_retired_id") / 1e9
	byCPU, byMemory := math.Ceil(cores("delivered.redis_us")), math.Ceil((live+ids)/c.MasterMemory)
	partitions := max(max(byCPU, byMemory)*c.PartitionsPerMaster, c.LeastPartitions)
	// A webhook keeps a slot of a worker until its receiver has answered.
	inFlight := rate * cost("delivered.webhooks") * c.ReceiverSeconds
	return []need{
		{"orders a day", "million", "rate x 86,400 x day_to_peak", ordersPerDay / 1e6},
		{"Redis masters, by CPU", "", "rate x redis_us / 1e6 / utilisation", byCPU},
		{"memory of live orders", "GB", "orders a day x (memory_per_live_order + (live_days - 1) x memory_per_shrunk_order)", live},
		{"memory of retired ids", "GB", "orders a day x 365 x id_years x memory_per_retired_id", ids},
		{"Redis masters, by memory", "", "both memories / master_memory_gb", byMemory},
		{"partitions, 1,024 at most", "", "partitions_per_master x the larger number of masters, to a power of two", math.Exp2(math.Ceil(math.Log2(partitions)))},
		{"gateways", "", "rate x gateway_us / 1e6 / utilisation / program_cores", programs("delivered.gateway_us")},
		{"workers, by CPU", "", "rate x worker_us / 1e6 / utilisation / program_cores", programs("delivered.worker_us")},
		{"webhooks in flight", "", "rate x webhooks x receiver_seconds", inFlight},
		{"workers, by slots", "", "webhooks in flight / worker_slots / utilisation", math.Ceil(inFlight / c.WorkerSlots / c.Utilisation)},
		{"disk, all masters, rewriting included", "MB/s", "2 x rate x aof_bytes", 2 * rate * cost("delivered.aof_bytes") / 1e6},
		{"fsyncs, all masters, at most", "/s", "rate x disk_flushes", rate * cost("delivered.disk_flushes")},
		{"network of Redis", "MB/s", "rate x (redis_net_in + redis_net_out)", rate * (cost("delivered.redis_net_in_bytes") + cost("delivered.redis_net_out_bytes")) / 1e6},
		{"network of vendors, creations", "MB/s", "rate x (http_in + http_out)", rate * (cost("created.http_in_bytes") + cost("created.http_out_bytes")) / 1e6},
		{"webhooks", "/s", "rate x webhooks", rate * cost("delivered.webhooks")},
		{"network of webhooks", "MB/s", "rate x webhook_bytes", rate * cost("delivered.webhook_bytes") / 1e6},
		{"most of one account, by its receiver", "orders/s", "per_endpoint / receiver_seconds / webhooks", c.PerEndpoint / c.ReceiverSeconds / cost("delivered.webhooks")},
		{"most of one account, by Redis", "orders/s", "1e6 / redis_us", 1e6 / cost("delivered.redis_us")},
	}
}

func (b *bench) printNeeds() {
	var rates []float64
	for text := range strings.SplitSeq(b.need, ",") {
		rate, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || rate <= 0 || math.IsInf(rate, 0) {
			must(fmt.Errorf("-need: %q is no rate of orders per second", text))
		}
		rates = append(rates, rate)
	}
	path := cmp.Or(b.sizing, filepath.Join(got(stack.ModuleDir()), "loadtest", "bench", "sizing.json"))
	s, err := readSizing(got(os.ReadFile(path)))
	if err != nil {
		must(fmt.Errorf("sizing %s: %w", path, err))
	}
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "orders per second at the peak")
	for _, rate := range rates {
		fmt.Fprintf(w, "\t%s", harness.Number(rate))
	}
	fmt.Fprintln(w, "\t= formula")
	for row, n := range s.needs(rates[0]) {
		fmt.Fprint(w, n.what)
		for _, rate := range rates {
			text := "not measured"
			if v := s.needs(rate)[row].value; !math.IsNaN(v) {
				text = strings.TrimSpace(harness.Number(v) + " " + n.unit)
			}
			fmt.Fprintf(w, "\t%s", text)
		}
		fmt.Fprintf(w, "\t= %s\n", n.formula)
	}
	must(w.Flush())
}
