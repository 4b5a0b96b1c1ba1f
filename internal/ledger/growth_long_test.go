//go:build long

package ledger

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/partitions"
)

// What is compared with little of the same kind. Variables of the environment replace the numbers.
var (
	growthOrders   = growthNumber{variable: "GROWTH_ORDERS", full: 5_000_000, short: 20_000}
	growthAccounts = growthNumber{variable: "GROWTH_ACCOUNTS", full: 50_000, short: 200}

	// The ids of five years of a million orders a day. They are over all partitions: the share of one of them is filled.
	growthIDs = growthNumber{variable: "GROWTH_IDS", full: 1_800_000_000, short: 8_000_000}

	growthRounds = growthNumber{variable: "GROWTH_ROUNDS", full: 15, short: 1}
)

const (
	fewOrders    = 10_000
	fewAccounts  = 10
	growthSample = 8_000 // orders of one half of a round; they are removed after it
)

// BenchmarkGrowth is `make bench SUITE=growth`: what an order costs in a full Redis and, in turns with it, in one with
// little of the same kind, and how much memory everything takes. Its results are lines of their own, one for each
// round, such as
//
//	BenchmarkGrowth/orders/round_3  1  21.5 redis-us/order  20.1 base-redis-us/order …
//
// in which base is the Redis with little. Run it with -benchtime 1x; -short shortens it.
func BenchmarkGrowth(b *testing.B) {
	b.Run("orders", growByOrders)
	b.Run("accounts", growByAccounts)
	b.Run("ids", growByIDs)
	b.Run("memory", measureMemory)
}

// A growthNumber is that of a variable or, without it, one of the others.
type growthNumber struct {
	variable    string
	full, short int
}

func (n growthNumber) value(b *testing.B) int {
	b.Helper()
	text := os.Getenv(n.variable)
	switch {
	case text != "":
		value, err := strconv.Atoi(text)
		require(b, err == nil && value >= 1, "%s: %q is no number from 1 on", n.variable, text)
		return value
	case testing.Short():
		return n.short
	default:
		return n.full
	}
}

// printResult writes a line with metrics, by their units.
func printResult(b *testing.B, name string, metrics map[string]float64) {
	b.Helper()
	b.Run(name, func(b *testing.B) {
		for unit, value := range metrics {
			b.ReportMetric(value, unit)
		}
	})
}

// printProgress writes what must not stand among the results.
func printProgress(format string, a ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", a...)
}

// growByOrders compares a ledger with many resident orders.
func growByOrders(b *testing.B) {
	small, large := newCostEnv(b, 1000), newCostEnv(b, 1000)
	small.fill(b, fewOrders)
	orders := growthOrders.value(b)
	large.fill(b, orders)
	compare(b, orders, large, small)
}

// growByAccounts compares many accounts, and one that sends everything.
func growByAccounts(b *testing.B) {
	small := newCostEnv(b, fewAccounts)
	small.fill(b, fewOrders)
	for name, accounts := range map[string]int{"many": growthAccounts.value(b), "one": 1} {
		b.Run(name, func(b *testing.B) {
			large := newCostEnv(b, accounts)
			large.fill(b, fewOrders)
			compare(b, accounts, large, small)
			large.stop()
		})
	}
}

// fill creates orders without waiting for the disk. They come from accounts of
// their own: the windows of those that are sampled must not be full of them.
func (s *costEnv) fill(b *testing.B, n int) {
	b.Helper()
	ctx := b.Context()
	must(b, s.core.Redis.ConfigSet(ctx, "appendfsync", "no").Err())
	began := time.Now()
	for left := n; left > 0; {
		part := min(left, 500_000)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { s.send(b, part/2, s.addSliding) })
		}

		all.Wait()
		left -= part
		if n > 500_000 {
			printProgress("filled %d of %d in %s", n-left, n, time.Since(began).Round(time.Second))
		}
	}

	s.finishRehashing(b)
	must(b, s.core.Redis.ConfigSet(ctx, "appendfsync", "always").Err())
}

// finishRehashing helps Redis to move its keys to the larger table that it has
// taken while it was filled: it does so a little with every command, which
// would be counted as the cost of the orders that follow.
func (s *costEnv) finishRehashing(b *testing.B) {
	b.Helper()
	for {
		tables := get(s.core.Redis.Do(b.Context(), "DEBUG", "HTSTATS", 0).Text())(b)
		keys, _, _ := strings.Cut(tables, "[Expires HT]")
		if !strings.Contains(keys, "rehashing target") {
			return
		}

		for range 500 {
			pipe := s.core.Redis.Pipeline()
			for range 1000 {
				pipe.Exists(b.Context(), "no such key")
			}
			get(pipe.Exec(b.Context()))(b)
		}
	}
}

func (s *costEnv) addPlain(b *testing.B, p redis.Pipeliner, n int) {
	s.addOrder(b, p, s.vendors, n, true)
}

// A sample is what one ledger costs in one round: microseconds of Redis's main thread for an order, those that an
// order takes on the clock when 64 go at once, and their 99th percentile.
type sample struct{ redis, elapsed, p99 float64 }

// compare takes turns between two ledgers and writes what each round found. The large one holds size of what is
// compared.
func compare(b *testing.B, size int, large, small *costEnv) {
	b.Helper()
	large.sample(b) // the first one after filling meets cold caches
	for round := range growthRounds.value(b) {
		l, s := large.sample(b), small.sample(b)
		printResult(b, fmt.Sprint("round_", round), map[string]float64{
			"size":           float64(size),
			"redis-us/order": l.redis, "base-redis-us/order": s.redis,
			"us/order": l.elapsed, "base-us/order": s.elapsed,
			"p99-us": l.p99, "base-p99-us": s.p99,
		})
	}
}

// sample sends growthSample orders in pipelines for their cost, and as many
// through Create, 64 at once, for rate and latency. Then it removes them,
// so that the ledger keeps its size.
func (s *costEnv) sample(b *testing.B) sample {
	b.Helper()
	resident := s.next.Load()
	defer s.removeAfter(b, resident)
	before := mainThread(b, s.Ledger)
	s.send(b, growthSample, s.addPlain)
	result := sample{redis: (mainThread(b, s.Ledger) - before) * 1e6 / growthSample}
	const atOnce = 64
	var all sync.WaitGroup
	took := make([]time.Duration, growthSample/atOnce*atOnce)
	began := time.Now()
	for i := range atOnce {
		all.Go(func() {
			for j := i; j < len(took); j += atOnce {
				c := s.nextCreation(s.vendors, int(s.next.Add(1)))
				at := time.Now()
				if _, _, err := s.Orders.Create(context.Background(), c); err != nil {
					b.Error(err)
					return
				}
				took[j] = time.Since(at)
			}
		})
	}

	all.Wait()
	result.elapsed = time.Since(began).Seconds() * 1e6 / float64(len(took))
	slices.Sort(took)
	result.p99 = took[len(took)*99/100].Seconds() * 1e6

	return result
}

func (s *costEnv) removeAfter(b *testing.B, resident int64) {
	b.Helper()
	for n := resident + 1; n <= s.next.Load(); {
		pipe := s.core.Redis.Pipeline()
		for ; n <= s.next.Load() && pipe.Len() < 1000; n++ {
			c := s.nextCreation(s.vendors, int(n))
			pipe.Del(b.Context(), s.core.PartitionOf(c.Account).Order(delivery.OrderDigest(c.Account, c.Draft.ExternalOrderID)))
		}
		get(pipe.Exec(b.Context()))(b)
	}

	for _, r := range s.core.Partitions {
		must(b, s.core.Redis.XTrimMaxLen(b.Context(), r.Key(core.KindEvents), resident/int64(len(s.core.Partitions))).Err())
	}
}

// measureMemory fills ledgers of their own and divides what they came to take, in bytes of Redis's memory.
func measureMemory(b *testing.B) {
	orders, accounts := 100_000, 2000
	if testing.Short() {
		orders, accounts = 10_000, 200
	}

	s := newCostEnv(b, orders/100)
	empty := usedMemory(b, s)
	s.fill(b, orders)
	s.forgetLogs(b)
	s.index(b)
	created := usedMemory(b, s) - empty // with its event and lists
	s.deliver(b)
	withReplays := usedMemory(b, s) - empty
	s.forgetAccountEvents(b)
	delivered := usedMemory(b, s) - empty // with its five changes and events
	s.stop()

	const ids = 320_000
	s = newCostEnv(b, 1000, func(c *core.Config) { c.Partitions = 1 })
	empty = usedMemory(b, s)
	s.fill(b, ids)
	s.forgetLogs(b)
	s.deliver(b)
	s.retire(b, ids)
	s.forgetAccountEvents(b)
	retired := usedMemory(b, s) - empty
	s.stop()

	const admissions = 600
	s = newCostEnv(b, accounts, func(c *core.Config) { c.Partitions = 1 })
	empty = usedMemory(b, s)
	s.fillWindows(b, admissions)
	windows := usedMemory(b, s) - empty

	printResult(b, "each", map[string]float64{
		"B/created":   created / float64(orders),
		"B/delivered": delivered / float64(orders),
		"B/replays":   (withReplays - delivered) / float64(orders),
		"B/id":        retired / ids,
		"B/account":   windows / float64(accounts),
	})
}

// usedMemory waits until Redis has shrunk the tables that it needs no more,
// which it does in its own time.
func usedMemory(b *testing.B, s *costEnv) float64 {
	b.Helper()
	for before := 0.0; ; time.Sleep(time.Second) {
		s.finishRehashing(b)
		now := memoryNow(b, s.Ledger)
		if before != 0 && math.Abs(now-before) < before/1000 {
			return now
		}
		before = now
	}
}

func memoryNow(b *testing.B, l *Ledger) float64 {
	b.Helper()
	info := get(l.core.Redis.Info(b.Context(), "memory").Result())(b)
	_, rest, _ := strings.Cut(info, "used_memory:")
	text, _, _ := strings.Cut(rest, "\r\n")
	bytes := get(strconv.ParseFloat(text, 64))(b)

	return bytes
}

// consume hands every new event to the two roles, as the workers would.
func (s *costEnv) consume(b *testing.B, role core.Role, handle func(partition int, batch []partitions.Entry) error) {
	b.Helper()
	reader := partitions.NewFeedReader(s.core, &partitions.Feed{Role: role, Consumer: "growth", Batch: 500, Log: b.Logf,
		Handle: func(_ context.Context, batch []partitions.Entry) error {
			byPartition := make(map[int][]partitions.Entry)
			for _, e := range batch {
				byPartition[e.Partition] = append(byPartition[e.Partition], e)
			}

			for partition, entries := range byPartition {
				if err := handle(partition, entries); err != nil {
					return err
				}
			}

			return nil
		}}, s.core.Partitions)

	must(b, makeGroups(b.Context(), reader))
	for {
		waiting := int64(0)
		for _, r := range s.core.Partitions {
			for _, group := range redisInfo(b, s.Ledger, r.Key(core.KindEvents)) {
				if group.Name == string(role) {
					waiting += group.Lag
				}
			}
		}

		if waiting == 0 {
			return
		}

		must(b, gather(b.Context(), reader))
	}
}

// forgetAccountEvents removes what the accounts could have replayed for a day, so that it is not taken for what orders
// or ids take longer.
func (s *costEnv) forgetAccountEvents(b *testing.B) {
	for _, vendor := range s.sliding {
		must(b, s.core.Redis.Del(b.Context(), s.core.PartitionOf(vendor.account).KeyOf(core.KindAccountEvents, vendor.account[:])).Err())
	}
}

// forgetLogs removes the accounts' logs of admissions, which are measured by themselves.
func (s *costEnv) forgetLogs(b *testing.B) {
	for _, one := range s.sliding {
		must(b, s.core.Redis.Del(b.Context(), limits.WindowsKey(s.core.PartitionOf(one.account), limits.EndpointOrders, one.account)+"l").Err())
	}
}

func (s *costEnv) index(b *testing.B) {
	s.consume(b, core.RoleStatus, func(_ int, batch []partitions.Entry) error {
		orders := make([]delivery.OrderID, len(batch))
		for i := range batch {
			orders[i] = batch[i].Events[0].Order
		}
		s.list(b, orders...)
		return s.Streams.Ack(b.Context(), core.RoleStatus, batch...)
	})
}

// deliver brings every order that the environment has sent to its end.
func (s *costEnv) deliver(b *testing.B) {
	b.Helper()
	delivered := []delivery.Change{{Status: delivery.Assigned, Courier: delivery.Courier{Name: "Mehmet Y.", Phone: "5321234567", VehicleType: "Motorcycle"}},
		{Status: delivery.PickingUp}, {Status: delivery.PickedUp}, {Status: delivery.Delivering}, {Status: delivery.Delivered}}
	for i := range delivered {
		c := &delivered[i]
		c.At, c.ETA, c.Location = time.Now(), time.Now(), delivery.Location{Point: taksim, At: time.Now()}
	}

	for from := int64(1); from <= s.next.Load(); from += costBatch {
		var ids []delivery.OrderID
		for n := from; n < from+costBatch && n <= s.next.Load(); n++ {
			c := s.nextCreation(s.sliding, int(n))
			digest := delivery.OrderDigest(c.Account, c.Draft.ExternalOrderID)
			ids = append(ids, delivery.MakeOrderID(s.core.PartitionOf(c.Account).Number, delivery.DayOf(c.Now), digest))
		}

		orders := get(s.Orders.GetAll(b.Context(), ids))(b)
		byPartition := make(map[int][]*delivery.Order)
		for _, o := range orders {
			byPartition[o.ID.Partition()] = append(byPartition[o.ID.Partition()], o)
		}

		for partition, orders := range byPartition {
			must(b, s.advanceBy(b.Context(), partition, func(step *partitions.Step) {
				for _, o := range orders {
					step.Change(o, slices.Clone(delivered))
				}
			}))
		}
	}
}

// retire removes all orders: every group has seen every event, and the clock
// says that they ended long ago.
func (s *costEnv) retire(b *testing.B, want int) {
	b.Helper()
	acknowledge := func(role core.Role) func(int, []partitions.Entry) error {
		return func(partition int, batch []partitions.Entry) error {
			ids := make([]string, len(batch))
			for i := range batch {
				ids[i] = batch[i].ID
			}
			return s.core.Redis.XAck(b.Context(), s.core.Partitions[partition].Key(core.KindEvents), string(role), ids...).Err()
		}
	}

	s.consume(b, core.RoleStatus, acknowledge(core.RoleStatus))
	s.consume(b, core.RoleWebhook, acknowledge(core.RoleWebhook))
	s.consume(b, core.RoleExport, acknowledge(core.RoleExport))
	retired := 0
	for partition, r := range s.core.Partitions {
		// The hours' lists are named after the hour; two hours ago is over.
		hours := get(s.core.Redis.ZRangeWithScores(b.Context(), r.Key(core.KindEndedHours), 0, -1).Result())(b)
		for _, hour := range hours {
			past := fmt.Sprint(int(hour.Score) - 2)
			must(b, s.core.Redis.Rename(b.Context(), r.KeyOf(core.KindEnded, []byte(hour.Member.(string))), r.KeyOf(core.KindEnded, []byte(past))).Err())
			must(b, s.core.Redis.ZAdd(b.Context(), r.Key(core.KindEndedHours), redis.Z{Score: hour.Score - 2, Member: past}).Err())
		}

		n := get(s.Orders.Retire(b.Context(), partition, time.Now(), want))(b)
		retired += n
		must(b, s.core.Redis.Del(b.Context(), r.Key(core.KindEvents)).Err())
	}

	require(b, retired == want, "%d orders retired, want %d", retired, want)
}

// fillWindows makes every account use so many requests.
func (s *costEnv) fillWindows(b *testing.B, each int) {
	b.Helper()
	for range each {
		calls := make([]core.Call, len(s.vendors))
		for i, one := range s.vendors {
			calls[i] = core.Call{Keys: []string{limits.WindowsKey(s.core.PartitionOf(one.account), limits.EndpointOrders, one.account)}}
		}
		get(s.core.RunAll(b.Context(), "consume", calls))(b)
	}
}
