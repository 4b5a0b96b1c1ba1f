//go:build growth

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
)

// What is compared, the smallest first; GROWTH_ORDERS, GROWTH_ACCOUNTS and GROWTH_IDS in the
// environment replace the lists.
const (
	growthOrders   = "10000,1000000,5000000"
	growthAccounts = "10,1000,50000"
	growthRounds   = 15
	growthSample   = 8_000 // orders of one half of a round; they are removed after it
)

// Ceilings of the growth: what a full Redis may cost more than an empty one,
// and what it may keep (bytes).
const (
	mostSlower       = 1.15
	mostPerOrder     = 1200
	mostPerRetiredID = 16
)

// BenchmarkGrowth is `make bench-growth`: whether an order costs the same in a
// full Redis as in an empty one, and how much memory everything takes. Each
// comparison takes turns with the smallest of its kind, so that the machine's
// moods fall on both. Run it with -benchtime 1x.
func BenchmarkGrowth(b *testing.B) {
	b.Run("orders", func(b *testing.B) { growByOrders(b, numbers(b, "GROWTH_ORDERS", growthOrders)) })
	b.Run("accounts", func(b *testing.B) { growByAccounts(b, numbers(b, "GROWTH_ACCOUNTS", growthAccounts)) })
	b.Run("ids", func(b *testing.B) { growByIDs(b, numbers(b, "GROWTH_IDS", growthIDs)) })
	b.Run("memory", measureMemory)
}

func numbers(b *testing.B, variable, list string) (ns []int) {
	b.Helper()
	if given := os.Getenv(variable); given != "" {
		list = given
	}
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		require(b, err == nil && n >= 1 && (len(ns) <= 0 || n > ns[len(ns)-1]), "%s: %q is no rising list of numbers", variable, list)
		ns = append(ns, n)
	}
	return ns
}

// growByOrders keeps the smallest ledger and grows another beside it.
func growByOrders(b *testing.B, sizes []int) {
	small, large := newCostEnv(b, 1000), newCostEnv(b, 1000)
	small.fill(b, sizes[0])
	resident := 0
	for _, size := range sizes[1:] {
		large.fill(b, size-resident)
		resident = size
		compare(b, fmt.Sprintf("%d resident orders", size), large, fmt.Sprint(sizes[0]), small)
	}
}

// growByAccounts compares many accounts, and one that sends everything.
func growByAccounts(b *testing.B, sizes []int) {
	small := newCostEnv(b, sizes[0])
	small.fill(b, 10_000)
	for _, size := range append([]int{1}, sizes[1:]...) {
		large := newCostEnv(b, size)
		large.fill(b, 10_000)
		name := fmt.Sprintf("%d accounts", size)
		if size == 1 {
			name = "one hot account"
		}
		compare(b, name, large, fmt.Sprint(sizes[0]), small)
		large.stop()
	}
}

// fill creates orders without waiting for the disk. They come from accounts of
// their own: the windows of those that are sampled must not be full of them.
func (s *costEnv) fill(b *testing.B, n int) {
	b.Helper()
	ctx := b.Context()
	must(b, s.rdb.ConfigSet(ctx, "appendfsync", "no").Err())
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
			fmt.Printf("filled %d of %d in %s\n", n-left, n, time.Since(began).Round(time.Second))
		}
	}
	s.finishRehashing(b)
	must(b, s.rdb.ConfigSet(ctx, "appendfsync", "always").Err())
}

// finishRehashing helps Redis to move its keys to the larger table that it has
// taken while it was filled: it does so a little with every command, which
// would be counted as the cost of the orders that follow.
func (s *costEnv) finishRehashing(b *testing.B) {
	b.Helper()
	for {
		tables := get(s.rdb.Do(b.Context(), "DEBUG", "HTSTATS", 0).Text())(b)
		keys, _, _ := strings.Cut(tables, "[Expires HT]")
		if !strings.Contains(keys, "rehashing target") {
			return
		}
		for range 500 {
			pipe := s.rdb.Pipeline()
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

// sample is what one round measures.
type sample struct{ cpu, rate, p99 float64 }

// compare takes turns between two ledgers and reports the median of the ratios.
func compare(b *testing.B, name string, large *costEnv, base string, small *costEnv) {
	b.Helper()
	var cpu, rate, p99 []float64
	large.sample(b) // the first one after filling meets cold caches
	for range growthRounds {
		l, s := large.sample(b), small.sample(b)
		cpu, rate, p99 = append(cpu, l.cpu/s.cpu), append(rate, s.rate/l.rate), append(p99, l.p99/s.p99)
	}
	line := func(what string, ratios []float64, ceiling float64) {
		slices.Sort(ratios)
		median := ratios[len(ratios)/2]
		fmt.Printf("%-26s against %-6s %-28s %5.2f  (%.2f to %.2f)\n", name, base, what, median, ratios[0], ratios[len(ratios)-1])
		check(b, ceiling <= 0 || median <= ceiling, "%s: %s is %.2f times that of %s, at most %.2f is accepted", name, what, median, base, ceiling)
	}
	line("Redis CPU per order", cpu, mostSlower)
	line("time per order, 64 at once", rate, mostSlower)
	line("p99, 64 at once", p99, 0)
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
	result := sample{cpu: (mainThread(b, s.Ledger) - before) / growthSample}
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
	result.rate = float64(len(took)) / time.Since(began).Seconds()
	slices.Sort(took)
	result.p99 = took[len(took)*99/100].Seconds()
	return result
}

func (s *costEnv) removeAfter(b *testing.B, resident int64) {
	b.Helper()
	for n := resident + 1; n <= s.next.Load(); {
		pipe := s.rdb.Pipeline()
		for ; n <= s.next.Load() && pipe.Len() < 1000; n++ {
			c := s.nextCreation(s.vendors, int(n))
			pipe.Del(b.Context(), s.partitionOf(c.Account).order(delivery.OrderDigest(c.Account, c.Draft.ExternalOrderID)))
		}
		get(pipe.Exec(b.Context()))(b)
	}
	for _, r := range s.partitions {
		must(b, s.rdb.XTrimMaxLen(b.Context(), r.key(kindEvents), resident/int64(len(s.partitions))).Err())
	}
}

// measureMemory fills ledgers of their own and divides what they came to take.
func measureMemory(b *testing.B) {
	const n = 100_000
	s := newCostEnv(b, 1000)
	empty := usedMemory(b, s)
	s.fill(b, n)
	s.forgetLogs(b)
	s.index(b)
	report(b, "a live order, Searching, with its event and lists", usedMemory(b, s)-empty, n, mostPerOrder)
	s.deliver(b)
	report(b, "the same order Delivered, with its five changes and events", usedMemory(b, s)-empty, n, mostPerOrder)
	s.stop()

	const ids = 320_000
	s = newCostEnv(b, 1000, func(c *Config) { c.Partitions = 1 })
	empty = usedMemory(b, s)
	s.fill(b, ids)
	s.forgetLogs(b)
	s.deliver(b)
	s.retire(b, ids)
	report(b, "a remembered external id", usedMemory(b, s)-empty, ids, mostPerRetiredID)
	s.stop()

	const accounts = 2000
	s = newCostEnv(b, accounts, func(c *Config) { c.Partitions = 1 })
	empty = usedMemory(b, s)
	s.fillWindows(b, 600)
	report(b, "an account's full windows (600 admissions)", usedMemory(b, s)-empty, accounts, 0)
}

func report(b *testing.B, what string, bytes float64, n int, ceiling float64) {
	b.Helper()
	each := bytes / float64(n)
	fmt.Printf("%-60s %8.1f bytes of Redis memory\n", what, each)
	check(b, ceiling <= 0 || each <= ceiling, "%s takes %.1f bytes, at most %.0f are accepted", what, each, ceiling)
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
	info := get(l.rdb.Info(b.Context(), "memory").Result())(b)
	_, rest, _ := strings.Cut(info, "used_memory:")
	text, _, _ := strings.Cut(rest, "\r\n")
	bytes := get(strconv.ParseFloat(text, 64))(b)
	return bytes
}

// consume hands every new event to the two roles, as the workers would.
func (s *costEnv) consume(b *testing.B, role Role, handle func(partition int, batch []Entry) error) {
	b.Helper()
	reader := newFeedReader(s.core, &Feed{Role: role, Consumer: "growth", Batch: 500, Log: b.Logf,
		Handle: func(_ context.Context, batch []Entry) error {
			byPartition := make(map[int][]Entry)
			for _, e := range batch {
				byPartition[e.Partition] = append(byPartition[e.Partition], e)
			}
			for partition, entries := range byPartition {
				if err := handle(partition, entries); err != nil {
					return err
				}
			}
			return nil
		}}, s.partitions)
	must(b, reader.makeGroups(b.Context()))
	for {
		waiting := int64(0)
		for _, r := range s.partitions {
			for _, group := range redisInfo(b, s.Ledger, r.key(kindEvents)) {
				if group.Name == string(role) {
					waiting += group.Lag
				}
			}
		}
		if waiting == 0 {
			return
		}
		must(b, reader.gather(b.Context()))
	}
}

// forgetLogs takes the accounts' windows out of the account.
func (s *costEnv) forgetLogs(b *testing.B) {
	for _, one := range s.sliding {
		must(b, s.rdb.Del(b.Context(), s.partitionOf(one.account).windows(EndpointOrders, one.account)+"l").Err())
	}
}

func (s *costEnv) index(b *testing.B) {
	s.consume(b, RoleStatus, func(_ int, batch []Entry) error {
		orders := make([]delivery.OrderID, len(batch))
		for i := range batch {
			orders[i] = batch[i].Events[0].Order
		}
		s.list(b, orders...)
		return s.Streams.Ack(b.Context(), RoleStatus, batch...)
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
			ids = append(ids, delivery.MakeOrderID(s.partitionOf(c.Account).number, delivery.DayOf(c.Now), digest))
		}
		orders := get(s.Orders.GetAll(b.Context(), ids))(b)
		byPartition := make(map[int][]*delivery.Order)
		for _, o := range orders {
			byPartition[o.ID.Partition()] = append(byPartition[o.ID.Partition()], o)
		}
		for partition, orders := range byPartition {
			must(b, s.advanceBy(b.Context(), partition, func(step *Step) {
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
	acknowledge := func(role Role) func(int, []Entry) error {
		return func(partition int, batch []Entry) error {
			ids := make([]string, len(batch))
			for i := range batch {
				ids[i] = batch[i].ID
			}
			return s.rdb.XAck(b.Context(), s.partitions[partition].key(kindEvents), string(role), ids...).Err()
		}
	}
	s.consume(b, RoleStatus, acknowledge(RoleStatus))
	s.consume(b, RoleWebhook, acknowledge(RoleWebhook))
	s.consume(b, RoleExport, acknowledge(RoleExport))
	retired := 0
	for partition, r := range s.partitions {
		// The hours' lists are named after the hour; two hours ago is over.
		hours := get(s.rdb.ZRangeWithScores(b.Context(), r.key(kindEndedHours), 0, -1).Result())(b)
		for _, hour := range hours {
			past := fmt.Sprint(int(hour.Score) - 2)
			must(b, s.rdb.Rename(b.Context(), r.keyOf(kindEnded, []byte(hour.Member.(string))), r.keyOf(kindEnded, []byte(past))).Err())
			must(b, s.rdb.ZAdd(b.Context(), r.key(kindEndedHours), redis.Z{Score: hour.Score - 2, Member: past}).Err())
		}
		n := get(s.Lifecycle.Retire(b.Context(), partition, time.Now(), want))(b)
		retired += n
		must(b, s.rdb.Del(b.Context(), r.key(kindEvents)).Err())
	}
	require(b, retired == want, "%d orders retired, want %d", retired, want)
}

// fillWindows makes every account use so many requests.
func (s *costEnv) fillWindows(b *testing.B, each int) {
	b.Helper()
	for range each {
		calls := make([]call, len(s.vendors))
		for i, one := range s.vendors {
			calls[i] = call{keys: []string{s.partitionOf(one.account).windows(EndpointOrders, one.account)}}
		}
		get(s.runAll(b.Context(), "consume", calls))(b)
	}
}
