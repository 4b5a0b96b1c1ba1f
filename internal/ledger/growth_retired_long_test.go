//go:build long

package ledger

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/orders"
)

const (
	growthShares    = 16     // partitions that the ids are spread over
	idSample        = 10_000 // orders of one half of a round
	idsOfABeginning = 10_000 // what a partition remembers after some days
)

// growByIDs compares a partition that remembers its share of all ids with one that remembers none
// or, where an operation needs some, few. Nothing is written to a disk: ids are in memory.
func growByIDs(b *testing.B) {
	small, large := newIDsEnv(b), newIDsEnv(b)
	ids := growthIDs.value(b)
	each := large.fillShare(b, ids/growthShares)
	printResult(b, "memory", map[string]float64{"size": float64(ids), "B/id": each})
	large.compareIDs(b, small)
}

// idsEnv is a partition, and some ids that it remembers.
type idsEnv struct {
	*costEnv
	known []delivery.OrderID
	round uint64
}

func newIDsEnv(b *testing.B) *idsEnv {
	b.Helper()
	s := &idsEnv{costEnv: newCostEnv(b, costAccounts, func(c *core.Config) { c.Partitions = 1 })}
	must(b, s.core.Redis.ConfigSet(b.Context(), "appendonly", "no").Err())
	return s
}

// randomOrders are ids that only depend on a seed, so that they need not be kept.
func (s *idsEnv) randomOrders(seed uint64) func() delivery.OrderID {
	source := rand.NewPCG(seed, 1)
	return func() delivery.OrderID {
		var digest delivery.Digest
		first, second := source.Uint64(), source.Uint64()
		binary.BigEndian.PutUint64(digest[:], first)
		binary.BigEndian.PutUint32(digest[8:], uint32(second))
		return delivery.MakeOrderID(s.core.Partitions[0].Number, uint16(second>>32), digest)
	}
}

// fillShare writes the buckets as retiring so many orders one by one would have left them: it counts
// the ids of each bucket, draws them again and puts each in its place. It returns how many bytes of Redis's memory an
// id takes.
func (s *idsEnv) fillShare(b *testing.B, ids int) float64 {
	b.Helper()
	const seed = 1
	r, began := s.core.Partitions[0], time.Now()
	before := usedMemory(b, s.costEnv)
	index := retiredTestIndex(ids)

	ends := make([]uint32, index.Buckets+1)
	next := s.randomOrders(seed)
	for range ids {
		ends[index.Bucket(next().Digest())+1]++
	}

	for i := range ends[1:] {
		ends[i+1] += ends[i]
	}

	entries := make([]byte, orders.RetiredEntrySize*ids)
	next = s.randomOrders(seed)
	for i := range ids {
		id := next()
		digest, bucket := id.Digest(), index.Bucket(id.Digest())
		at := orders.RetiredEntrySize * int(ends[bucket])
		copy(entries[at:], digest[:orders.RetiredDigestSize])
		binary.BigEndian.PutUint16(entries[at+orders.RetiredDigestSize:], id.Day())
		ends[bucket]++ // so that in the end it is where the next bucket begins
		if i%(ids/10_000+1) == 0 {
			s.known = append(s.known, id)
		}
	}

	start := uint32(0)
	var fields []any
	filter := make([]byte, orders.BucketsPerHash*filterBits/8)
	for bucket := range index.Buckets {
		key, field := orders.RetiredPlace(r, bucket)
		held := entries[orders.RetiredEntrySize*int(start) : orders.RetiredEntrySize*int(ends[bucket])]
		start = ends[bucket]
		fields = append(fields, field, held)
		setFilterBits(filter[bucket%orders.BucketsPerHash*filterBits/8:], held)
		if len(fields) == 2*orders.BucketsPerHash || bucket == index.Buckets-1 {
			must(b, s.core.Redis.HSet(b.Context(), key, fields...).Err())
			must(b, s.core.Redis.Set(b.Context(), key+"f", filter, 0).Err())
			fields = fields[:0]
			clear(filter)
		}
	}

	must(b, s.core.Redis.Set(b.Context(), r.Key(core.KindRetired), index.Encode(), 0).Err())
	s.finishRehashing(b)
	printProgress("filled one of %d partitions with %d ids in %d buckets, in %s", growthShares, ids, index.Buckets, time.Since(began).Round(time.Second))

	return (usedMemory(b, s.costEnv) - before) / float64(ids)
}

// start leaves only few ids, or none.
func (s *idsEnv) start(b *testing.B, ids int) {
	b.Helper()
	r := s.core.Partitions[0]
	s.forgetRetired(b, r)
	s.known = s.known[:0]
	next := s.randomOrders(1)
	for range ids {
		s.known = append(s.known, next())
	}

	s.fillRetired(b, r, s.known)
}

// idOperations are measured in this order, in microseconds: a creation must have come before a poll.
var idOperations = []struct {
	unit string
	few  bool // against a partition that remembers few ids, else against one that remembers none
	run  func(*idsEnv, *testing.B) (microseconds float64)
}{
	{"create-us", false, (*idsEnv).createSome},
	{"create-few-us", true, (*idsEnv).createSome},
	{"poll-us", true, (*idsEnv).pollSome},
	{"retire-us", true, (*idsEnv).retireSome},
	{"look-up-us", true, (*idsEnv).lookUpSome},
	{"look-up-redis-us", true, (*idsEnv).lookUpSomeInRedis},
}

// compareIDs takes turns between two partitions and writes what each operation costs in each round, and then how long
// single scripts took.
func (s *idsEnv) compareIDs(b *testing.B, small *idsEnv) {
	b.Helper()
	for round := range growthRounds.value(b) {
		resident, smallResident := s.next.Load(), small.next.Load()
		small.start(b, 0)
		metrics := make(map[string]float64)
		for i, operation := range idOperations {
			if operation.few && len(small.known) == 0 {
				small.start(b, idsOfABeginning)
			}

			turns := []*idsEnv{s, small}
			if (round+i)%2 == 1 {
				slices.Reverse(turns)
			}

			for _, turn := range turns {
				unit := operation.unit
				if turn == small {
					unit = "base-" + unit
				}
				metrics[unit] = operation.run(turn, b)
			}
		}

		s.removeAfter(b, resident)
		small.removeAfter(b, smallResident)
		printResult(b, fmt.Sprint("round_", round), metrics)
	}

	small.start(b, idsOfABeginning)
	metrics := make(map[string]float64)
	small.timeScripts(b, "base-", metrics)
	s.timeScripts(b, "", metrics)
	printResult(b, "scripts", metrics)
}

// spent is the main thread's time for each of n operations that do makes, in microseconds.
func (s *idsEnv) spent(b *testing.B, n int, do func()) float64 {
	b.Helper()
	before := mainThread(b, s.Ledger)
	do()
	return (mainThread(b, s.Ledger) - before) * 1e6 / float64(n)
}

func (s *idsEnv) createSome(b *testing.B) float64 {
	return s.spent(b, idSample, func() { s.send(b, idSample, s.addPlain) })
}

// pollSome reads the orders that were created last.
func (s *idsEnv) pollSome(b *testing.B) float64 {
	calls := make([]core.Call, idSample)
	for i := range calls {
		c := s.nextCreation(s.vendors, int(s.next.Load())-i)
		s.Orders.PrepareCreation(s.core.Partitions[0], c)
		calls[i] = core.Call{Keys: []string{limits.WindowsKey(s.core.Partitions[0], limits.EndpointOrderStatus, c.Account), s.core.Partitions[0].Order(c.Order.ID.Digest())},
			Args: []any{c.Account[:], core.DayOf(c.Order.ID), delivery.PollInterval.Microseconds()}}
	}
	return s.spent(b, idSample, func() { s.callAll(b, "poll_order", calls) })
}

// callAll runs a script in pipelines.
func (s *idsEnv) callAll(b *testing.B, script string, calls []core.Call) {
	b.Helper()
	for page := range slices.Chunk(calls, costBatch) {
		get(s.core.RunAll(b.Context(), script, page))(b)
	}
}

// retireSome retires orders that were made up, in calls like those of Orders.Retire.
func (s *idsEnv) retireSome(b *testing.B) float64 {
	s.round++
	next := s.randomOrders(1000 + s.round)
	orderList := make([]delivery.OrderID, idSample)
	for i := range orderList {
		orderList[i] = next()
	}

	r := s.core.Partitions[0]
	hour := s.end(b, r, orderList...)
	calls := make([]core.Call, idSample/orders.RetireBatch)
	for i := range calls {
		calls[i] = core.Call{Keys: orders.RetirementKeys(r, hour), Args: []any{r.Prefix, hour, orders.RetireBatch, orders.NewRetiredIndex()}}
	}

	return s.spent(b, idSample, func() { s.callAll(b, "retire_orders", calls) })
}

// lookUpSome is the time that a reconciling program waits for.
func (s *idsEnv) lookUpSome(b *testing.B) float64 {
	page := s.someKnown()
	began := time.Now()
	found := get(s.Orders.Retired(b.Context(), page))(b)
	took := time.Since(began)
	require(b, !slices.Contains(found, false), "an id is not found")

	return float64(took.Nanoseconds()) / 1e3 / idSample
}

func (s *idsEnv) lookUpSomeInRedis(b *testing.B) float64 {
	page := s.someKnown()
	return s.spent(b, idSample, func() { get(s.Orders.Retired(b.Context(), page))(b) })
}

func (s *idsEnv) someKnown() []delivery.OrderID {
	page := make([]delivery.OrderID, idSample)
	for i := range page {
		page[i] = s.known[rand.IntN(len(s.known))]
	}
	return page
}

// timeScripts notes how long the scripts took, one by one, by the server's own clock: "create_order-median-us" and
// "create_order-p99-us", after the prefix. Time that the machine gave to other programs is in it.
func (s *idsEnv) timeScripts(b *testing.B, prefix string, metrics map[string]float64) {
	b.Helper()
	// Commands within a script are logged, too: most are shorter than that.
	must(b, s.core.Redis.ConfigSet(b.Context(), "slowlog-max-len", "1000000").Err())
	must(b, s.core.Redis.ConfigSet(b.Context(), "slowlog-log-slower-than", "4").Err())
	must(b, s.core.Redis.SlowLogReset(b.Context()).Err())
	resident := s.next.Load()
	s.createSome(b)
	s.pollSome(b)
	for range 10 {
		s.retireSome(b)
	}

	must(b, s.core.Redis.ConfigSet(b.Context(), "slowlog-log-slower-than", "-1").Err())
	defer s.removeAfter(b, resident)

	times := make(map[string][]time.Duration)
	for _, entry := range get(s.core.Redis.SlowLogGet(b.Context(), -1).Result())(b) {
		if entry.Args[0] == "fcall" {
			script, _, _ := strings.Cut(entry.Args[1], "_"+strings.TrimPrefix(s.core.Library.Name, core.LibraryPrefix))
			times[script] = append(times[script], entry.Duration)
		}
	}

	for _, script := range []string{"create_order", "poll_order", "retire_orders"} {
		all := times[script]
		slices.Sort(all)
		require(b, len(all) > 0, "%s is not in the slow log", script)
		metrics[prefix+script+"-median-us"] = float64(all[len(all)/2].Microseconds())
		metrics[prefix+script+"-p99-us"] = float64(all[len(all)*99/100].Microseconds())
	}
}
