// Suite growth: what an order costs with history, beside the same without.

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"vendorapi/loadtest/harness"
)

// growthSuite returns suite growth. It measures whether an order costs the same with history as without: with millions of resident orders,
// with many accounts or one that sends everything, with the ids of years of orders. It also measures how much of Redis's
// memory one of each takes. The measuring is BenchmarkGrowth of internal/ledger, which fills Redis faster than the ledger's
// methods could. Two servers run side by side and take turns, one of them with little of the same kind.
func growthSuite() suite {
	return suite{
		name:  "growth",
		takes: "30 minutes, 10 GB of memory, 10 GB of disk",
		about: `  What an order costs with history, against the same without: in a Redis with
  5 million orders against one with 10,000, from 50,000 accounts and from one against
  10, beside 1.8 billion remembered ids against none or 10,000; and what one of each
  takes in Redis's memory. GROWTH_ORDERS, GROWTH_ACCOUNTS and GROWTH_IDS in the
  environment replace these numbers.`,
		timeout:    growthTimeout,
		fullRounds: 15,
		measurements: []measurement{
			{name: "orders", measure: (*bench).measureOrderGrowth, figures: growthFigures("orders", "with many orders", "with 10,000")},
			{name: "accounts", measure: (*bench).measureAccountGrowth, figures: slices.Concat(
				growthFigures("accounts", "from many accounts", "from 10"),
				growthFigures("account", "from one account", "from 10"),
			)},
			{name: "ids", measure: (*bench).measureIDGrowth, figures: idFigures()},
			{name: "memory", measure: (*bench).measureMemory, figures: memoryFigures()},
		},
	}
}

const (
	growthTimeout = 100 * time.Minute

	// mostGrowth bounds an order's cost with history, as a multiple of its cost without.
	mostGrowth = 1.15
	// mostColdGrowth is the bound for calls that do little else than read memory that no cache holds. A look-up reads from
	// four places, and each read takes as long as a few hundred instructions. Once the caches are full, the number of ids
	// makes no difference.
	mostColdGrowth = 2
)

// A growthMetric names the metric of BenchmarkGrowth that a figure shows. The baseline of a figure that has one is the metric
// with "base-" before its name.
type growthMetric struct {
	suffix string // of the figure's key
	metric string
}

var orderMetrics = []growthMetric{{".redis", "redis-us/order"}, {".elapsed", "us/order"}, {".p99", "p99-us"}}

// growthFigures returns the figures of orderMetrics, with keys that begin with key. with and without describe the two
// sides of the comparison in the table.
func growthFigures(key, with, without string) []*figure {
	return []*figure{
		{Key: key + ".redis", What: "Redis CPU per order " + with, Unit: "us", Baseline: without, Limit: ratioAtMost(mostGrowth)},
		{Key: key + ".elapsed", What: "  time per order, 64 at once", Unit: "us", Baseline: without, Limit: ratioAtMost(mostGrowth)},
		{Key: key + ".p99", What: "  p99, 64 at once", Unit: "us", Baseline: without},
	}
}

func (b *bench) measureOrderGrowth(ctx context.Context) {
	results := b.runGrowth(ctx, "orders")
	b.addGrowth(results, "orders/round_", "orders", orderMetrics)
}

func (b *bench) measureAccountGrowth(ctx context.Context) {
	results := b.runGrowth(ctx, "accounts")
	b.addGrowth(results, "accounts/many/round_", "accounts", orderMetrics)
	b.addGrowth(results, "accounts/one/round_", "account", orderMetrics)
}

var (
	idMetrics = []growthMetric{
		{".create", "create-us"}, {".create_few", "create-few-us"}, {".poll", "poll-us"}, {".retire", "retire-us"},
		{".look_up", "look-up-us"}, {".look_up_redis", "look-up-redis-us"},
	}
	scriptMetrics = []growthMetric{
		{".create_order", "create_order-median-us"}, {".create_order_p99", "create_order-p99-us"},
		{".poll_order", "poll_order-median-us"}, {".poll_order_p99", "poll_order-p99-us"},
		{".retire_orders", "retire_orders-median-us"}, {".retire_orders_p99", "retire_orders-p99-us"},
	}
)

func idFigures() []*figure {
	const none, few = "with none", "with 10,000"
	return []*figure{
		{Key: "ids.create", What: "create an order, Redis, with many ids", Unit: "us", Baseline: none},
		{Key: "ids.create_few", What: "create an order, Redis, with many ids", Unit: "us", Baseline: few, Limit: ratioAtMost(mostGrowth)},
		{Key: "ids.poll", What: "poll an order, Redis", Unit: "us", Baseline: few, Limit: ratioAtMost(mostGrowth)},
		{Key: "ids.retire", What: "retire an order, Redis", Unit: "us", Baseline: few, Limit: ratioAtMost(mostColdGrowth)},
		{Key: "ids.look_up", What: "look an id up, program and Redis", Unit: "us", Baseline: few, Limit: ratioAtMost(mostColdGrowth)},
		{Key: "ids.look_up_redis", What: "look an id up, Redis alone", Unit: "us", Baseline: few},
		// By Redis's own clock, which other programs delay: how long one call keeps everything else waiting.
		{Key: "ids.create_order", What: "one call of create_order, median", Unit: "us", Baseline: few, Limit: ratioAtMost(mostColdGrowth)},
		{Key: "ids.create_order_p99", What: "  p99", Unit: "us", Baseline: few},
		{Key: "ids.poll_order", What: "one call of poll_order, median", Unit: "us", Baseline: few, Limit: ratioAtMost(mostColdGrowth)},
		{Key: "ids.poll_order_p99", What: "  p99", Unit: "us", Baseline: few},
		{
			Key: "ids.retire_orders", What: "one call of retire_orders, median", Unit: "us",
			Baseline: few, Limit: ratioAtMost(mostColdGrowth),
		},
		{Key: "ids.retire_orders_p99", What: "  p99", Unit: "us", Baseline: few},
		{Key: "ids.memory", What: "memory of a remembered id, of many", Unit: "B", Limit: atMost(16)},
	}
}

func (b *bench) measureIDGrowth(ctx context.Context) {
	results := b.runGrowth(ctx, "ids")
	b.addGrowth(results, "ids/round_", "ids", idMetrics)
	b.addGrowth(results, "ids/scripts", "ids", scriptMetrics)
	b.addMetric(results, "ids/memory", "ids.memory", "B/id")
}

var memoryMetrics = []growthMetric{
	{".created", "B/created"}, {".delivered", "B/delivered"}, {".replays", "B/replays"},
	{".id", "B/id"}, {".windows", "B/account"},
}

func memoryFigures() []*figure {
	return []*figure{
		{Key: "memory.created", What: "memory of an order, Searching, with its event and lists", Unit: "B", Limit: atMost(1200)},
		{Key: "memory.delivered", What: "memory of an order, Delivered, with its five changes and events", Unit: "B", Limit: atMost(1200)},
		{Key: "memory.replays", What: "  its events for replays, gone after a day", Unit: "B", Limit: atMost(400)},
		// Of 320,000, so that what else is left of 1,000 accounts is a part of it; ids.memory is of many. Measured 17.2.
		{Key: "memory.id", What: "memory of a remembered id, as orders are retired", Unit: "B", Limit: atMost(20)},
		{Key: "memory.windows", What: "memory of an account's full windows, 600 admissions", Unit: "B"},
	}
}

func (b *bench) measureMemory(ctx context.Context) {
	results := b.runGrowth(ctx, "memory")
	for _, m := range memoryMetrics {
		b.addMetric(results, "memory/each", "memory"+m.suffix, m.metric)
	}
}

// runGrowth runs one part of BenchmarkGrowth and returns its results by the names of its lines, such as
// "orders/round_0".
func (b *bench) runGrowth(ctx context.Context, part string) map[string]measures {
	const benchmark = "BenchmarkGrowth/"
	cmd := b.compileTests(ctx, "./internal/ledger", "-tags", "long").command(ctx, benchmark+part, 1, growthTimeout)
	if b.short {
		cmd.Args = append(cmd.Args, "-test.short")
	}

	cmd.Env = append(os.Environ(), "TMPDIR="+b.dir, fmt.Sprintf("GROWTH_ROUNDS=%d", b.rounds))
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = io.MultiWriter(&out, b.out) // shows the progress of the benchmark
	b.progress("growth: %s", part)

	err := cmd.Run()
	var all map[string]measures
	if err == nil {
		all, err = parseBenchmarks(out.String())
	}

	if err != nil {
		must(fmt.Errorf("%s%s: %w\n%s", benchmark, part, err, endOf(out.Bytes())))
	}

	results := make(map[string]measures)
	for name, found := range all {
		results[strings.TrimPrefix(name, benchmark)] = found
	}

	return results
}

// addGrowth adds metrics, beside those of the Redis with little history, from every line whose name begins with prefix. The
// keys of the figures begin with key.
func (b *bench) addGrowth(results map[string]measures, prefix, key string, metrics []growthMetric) {
	for _, name := range slices.Sorted(maps.Keys(results)) {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		for _, m := range metrics {
			b.addBeside(key+m.suffix, metricOf(results, name, m.metric), metricOf(results, name, "base-"+m.metric))
		}
	}

	size, isKnown := results[prefix+"0"]["size"]
	if isKnown {
		b.note(key+metrics[0].suffix, "%s", harness.Grouped(int64(size)))
	}
}

// addMetric adds a metric of one line to a figure that has no baseline.
func (b *bench) addMetric(results map[string]measures, name, key, metric string) {
	b.add(key, metricOf(results, name, metric))
}

// metricOf returns a metric of a line. It panics with a failure if the line or the metric is missing.
func metricOf(results map[string]measures, name, metric string) float64 {
	value, isMeasured := results[name][metric]
	if !isMeasured {
		must(fmt.Errorf("BenchmarkGrowth/%s has no %s", name, metric))
	}
	return value
}
