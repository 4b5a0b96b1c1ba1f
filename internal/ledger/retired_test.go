package ledger

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// The same in core/order.lua.
const (
	idsPerBucket = 24
	filterBits   = 192
)

// retiredTestIndex is of so many ids; its secrets are the same in every run.
func retiredTestIndex(ids int) orders.RetiredIndex {
	x := orders.RetiredIndex{Ids: uint64(ids), Buckets: uint32(ids/idsPerBucket + 1), Span: 2, Secrets: [3]uint32{31415926, 53589793, 23846264}}
	for x.Span <= x.Buckets {
		x.Span *= 2
	}
	return x
}

// end writes records of orders that have ended, and lists them for retire_orders; nobody had created them.
func (l *Ledger) end(t tester, r core.Partition, orders ...delivery.OrderID) (hour string) {
	t.Helper()
	ctx := context.Background()
	hour = "1000"
	pipe := l.core.Redis.Pipeline()
	for _, id := range orders {
		record := make([]byte, core.OrderHead)
		record[0], record[1] = core.RecordFormat, byte(delivery.Delivered)
		binary.BigEndian.PutUint16(record[92:], id.Day())
		pipe.Set(ctx, r.Order(id.Digest()), record, 0)
		pipe.RPush(ctx, r.KeyOf(core.KindEnded, []byte(hour)), core.OrderMember(id))
	}

	pipe.ZAdd(ctx, r.Key(core.KindEndedHours), redis.Z{Score: 1000, Member: hour})
	get(pipe.Exec(ctx))(t)

	return hour
}

// retire lets orders end and retires them, so many in a call.
func (l *Ledger) retire(t tester, r core.Partition, atOnce int, orderList ...delivery.OrderID) {
	t.Helper()
	hour := l.end(t, r, orderList...)
	for retired := 0; retired < len(orderList); {
		reply := get(l.core.Run(context.Background(), "retire_orders", orders.RetirementKeys(r, hour), r.Prefix, hour, atOnce, orders.NewRetiredIndex()))(t)
		n, _ := reply.(int64)
		require(t, n > 0, "retired %d of %d", retired, len(orderList))
		retired += int(n)
	}
}

// readRetired reads a partition's index, and its buckets by their numbers.
func (l *Ledger) readRetired(t tester, r core.Partition) (index orders.RetiredIndex, buckets map[uint32]string) {
	t.Helper()
	ctx := context.Background()
	stored, err := l.core.Redis.Get(ctx, r.Key(core.KindRetired)).Result()
	if err != redis.Nil {
		must(t, err)
	}

	index = get(orders.DecodeRetiredIndex(stored))(t)

	buckets = make(map[uint32]string)
	for first := uint32(0); first < index.Buckets; first += orders.BucketsPerHash {
		key, _ := orders.RetiredPlace(r, first)
		for field, entries := range get(l.core.Redis.HGetAll(ctx, key).Result())(t) {
			buckets[first+uint32(binary.BigEndian.Uint16([]byte(field)))] = entries
		}
	}

	return index, buckets
}

// fillRetired writes what retiring orders one by one would have left in a partition that remembers none.
func (l *Ledger) fillRetired(t tester, r core.Partition, orderList []delivery.OrderID) {
	t.Helper()
	_, buckets := l.readRetired(t, r)
	require(t, len(buckets) == 0, "the partition remembers ids")
	index := retiredTestIndex(len(orderList))
	for _, id := range orderList {
		member := core.OrderMember(id)
		buckets[index.Bucket(id.Digest())] += member[:orders.RetiredDigestSize] + member[12:]
	}

	ctx := context.Background()
	pipe := l.core.Redis.Pipeline()
	for first := uint32(0); first < index.Buckets; first += orders.BucketsPerHash {
		key, _ := orders.RetiredPlace(r, first)
		filter := make([]byte, orders.BucketsPerHash*filterBits/8)
		for bucket := first; bucket < min(first+orders.BucketsPerHash, index.Buckets); bucket++ {
			_, field := orders.RetiredPlace(r, bucket)
			pipe.HSet(ctx, key, field, buckets[bucket])
			setFilterBits(filter[(bucket-first)*filterBits/8:], buckets[bucket])
		}
		pipe.Set(ctx, key+"f", filter, 0)
	}

	pipe.Set(ctx, r.Key(core.KindRetired), index.Encode(), 0)
	get(pipe.Exec(ctx))(t)
}

// setFilterBits sets the bits of a bucket's ids in its part of the filter.
func setFilterBits[T string | []byte](filter []byte, entries T) {
	for at := 0; at < len(entries); at += orders.RetiredEntrySize {
		part := uint32(entries[at+6])<<16 | uint32(entries[at+7])<<8 | uint32(entries[at+8])
		bit := part % filterBits
		filter[bit/8] |= 0x80 >> (bit % 8)
	}
}

// forgetRetired leaves a partition as if it had never retired anything.
func (l *Ledger) forgetRetired(t tester, r core.Partition) {
	t.Helper()
	ctx := context.Background()
	for _, key := range get(l.core.Redis.Keys(ctx, r.Key(core.KindRetired)+"*").Result())(t) {
		must(t, l.core.Redis.Del(ctx, key).Err())
	}
}

// madeUpOrders makes up ids of orders in a partition.
func madeUpOrders(r core.Partition, name string, n int) []delivery.OrderID {
	orders := make([]delivery.OrderID, n)
	for i := range orders {
		orders[i] = delivery.MakeOrderID(r.Number, uint16(20_000+i%400), delivery.OrderDigest(delivery.AccountID{}, fmt.Sprint(name, i)))
	}
	return orders
}

// answerDays makes list_due ask what create_order asks.
func answerDays(file, text string) string {
	if file == "list_due" {
		return "return retired_day(KEYS[1], call('GET', KEYS[1]) or ARGV[2], ARGV[1]) or 'free'\n"
	}
	return text
}

// askForDays are the days that creations would be told of ids; "free" without one.
func (l *Ledger) askForDays(t tester, r core.Partition, ids []delivery.OrderID) []string {
	t.Helper()
	calls := make([]core.Call, len(ids))
	for i, id := range ids {
		digest := id.Digest()
		calls[i] = core.Call{Keys: []string{r.Key(core.KindRetired)}, Args: []any{digest[:orders.RetiredDigestSize], orders.NewRetiredIndex()}}
	}

	answers := make([]string, len(ids))
	for i, answer := range get(l.core.RunAll(context.Background(), "list_due", calls))(t) {
		answers[i] = get(answer.Text())(t)
	}

	return answers
}

// Digests of few different bytes make entries that are found at places where none begins.
func TestRetire_EveryIDIsFoundWithItsDayAndNothingElse(t *testing.T) {
	s := newEnv(t, func(c *core.Config) { c.Edit = answerDays })
	r := s.core.PartitionOf(s.account)
	rapid.Check(t, func(t *rapid.T) {
		s.forgetRetired(t, r)
		secret := rapid.Uint32Range(0, orders.RetiredPrime-1)
		start := orders.FirstRetiredIndex()
		start.Secrets = [3]uint32{secret.Draw(t, "secret"), secret.Draw(t, "secret"), secret.Draw(t, "secret")}
		must(t, s.core.Redis.Set(context.Background(), r.Key(core.KindRetired), start.Encode(), 0).Err())

		letter, day := rapid.ByteRange(0, 2), rapid.Uint16Range(0, 3)
		digests := rapid.SliceOfNDistinct(rapid.SliceOfN(letter, orders.RetiredDigestSize, orders.RetiredDigestSize), 5*idsPerBucket, 6*idsPerBucket, func(b []byte) string { return string(b) }).Draw(t, "digests")
		atOnce := rapid.IntRange(1, orders.RetireBatch)
		orderList := make([]delivery.OrderID, len(digests))
		for i, digest := range digests {
			var whole delivery.Digest
			copy(whole[:], digest)
			orderList[i] = delivery.MakeOrderID(r.Number, day.Draw(t, "day"), whole)
		}

		known := 0
		for known < len(orderList) {
			n := min(rapid.IntRange(1, len(orderList)).Draw(t, "orders"), len(orderList)-known)
			s.retire(t, r, atOnce.Draw(t, "at once"), orderList[known:known+n]...)
			known += n

			var otherDay []delivery.OrderID
			answers := s.askForDays(t, r, orderList)
			for i, id := range orderList {
				otherDay = append(otherDay, delivery.MakeOrderID(r.Number, id.Day()+1, id.Digest()))
				want := "free"
				if i < known {
					want = string(core.DayOf(id))
				}
				require(t, answers[i] == want, "the script answered %q for an id, want %q", answers[i], want)
			}

			for i, retired := range get(s.Orders.Retired(context.Background(), orderList))(t) {
				require(t, retired == (i < known), "of %d that are retired, number %d is said to be: %v", known, i, retired)
			}

			require(t, !slices.Contains(get(s.Orders.Retired(context.Background(), otherDay))(t), true), "found with another day")

			index, buckets := s.readRetired(t, r)
			require(t, index.Ids == uint64(known) && index.Buckets == uint32(known/idsPerBucket+1) && index.Secrets == start.Secrets, "index %+v, want %d ids", index, known)
			entries := 0
			filter := make([]byte, orders.BucketsPerHash*filterBits/8)
			for bucket, held := range buckets {
				entries += len(held)
				setFilterBits(filter[bucket*filterBits/8:], held)
			}

			key, _ := orders.RetiredPlace(r, 0)
			require(t, get(s.core.Redis.Get(context.Background(), key+"f").Result())(t) == string(filter), "the filter's bits are not those of the ids")
			require(t, entries == known*orders.RetiredEntrySize, "%d bytes for %d ids", entries, known)
		}
	})
}

func TestRetire_TheExternalIDOfARetiredOrderIsTakenForEver(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	const n = 120
	var orderList []delivery.OrderID
	for i := range n {
		orderList = append(orderList, delivery.MakeOrderID(r.Number, uint16(i+1), delivery.OrderDigest(s.account, fmt.Sprint("X-", i))))
	}

	s.retire(t, r, orders.RetireBatch, orderList...)
	for i, id := range orderList {
		_, _, err := s.Orders.Create(t.Context(), s.creation(fmt.Sprint("X-", i), ""))
		equal(t, wantCode(t, err, delivery.CodeDuplicateOrder).OrderID, id, "the order that has the id")
	}

	for i := range n {
		s.create(t, fmt.Sprint("Y-", i))
	}
}

// Within a script, too, Redis holds a program to the rights of its user.
func TestRetire_HasTheRightsThatItNeeds(t *testing.T) {
	server := testserver.NewRedis(t)
	s := newEnv(t, func(c *core.Config) { c.URL, c.ClockKey = server.URL, "" })
	as := func(user string) *Ledger {
		return openTest(t, func(c *core.Config) { c.URL, c.ClockKey = server.URLFor(user), "" })
	}
	r := s.core.PartitionOf(s.account)
	orderList := madeUpOrders(r, "X-", 4*idsPerBucket)
	orderList[0] = delivery.MakeOrderID(r.Number, 1, delivery.OrderDigest(s.account, "used"))
	hour := s.end(t, r, orderList...)
	worker := as(stack.WorkerUser)
	for range orderList {
		get(worker.core.Run(t.Context(), "retire_orders", orders.RetirementKeys(r, hour), r.Prefix, hour, orders.RetireBatch, orders.NewRetiredIndex()))(t)
	}

	gateway := as(stack.GatewayUser)
	must(t, gateway.Fleets.Load(t.Context()))
	_, _, err := gateway.Orders.Create(t.Context(), s.creation("used", ""))
	equal(t, wantCode(t, err, delivery.CodeDuplicateOrder).OrderID, orderList[0], "the order that has the id")
	for _, user := range []string{stack.ReportingUser, stack.BackupUser} {
		equal(t, slices.Contains(get(as(user).Orders.Retired(t.Context(), orderList))(t), false), false, user+" does not find an id")
	}
}

func TestRetire_AnOrderThatIsListedTwiceIsRememberedOnce(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	orderList := madeUpOrders(r, "X-", 5)
	s.retire(t, r, orders.RetireBatch, append(orderList, orderList[1], orderList[3])...)
	s.retire(t, r, 1, orderList[2], orderList[2])
	index, buckets := s.readRetired(t, r)
	check(t, index.Ids == 6 && len(buckets[0]) == 6*orders.RetiredEntrySize, "%d ids in %d bytes", index.Ids, len(buckets[0]))
}

// Whatever ends the script, and after whichever of its writes: no id is forgotten.
func TestRetire_NoIDIsForgottenWhereverTheScriptStops(t *testing.T) {
	s := newEnv(t, func(c *core.Config) {
		c.Edit = func(file, text string) string {
			if file != "retire_orders" {
				return answerDays(file, text)
			}

			return `local really, left = call, tonumber(call('GET', KEYS[1] .. 'stop') or 10000)
local function call(name, ...)
  if name ~= 'GET' and name ~= 'HGET' and name ~= 'LRANGE' then left = left - 1 end
  if left < 0 then error('stopped by a test') end
  return really(name, ...)
end
` + text
		}
	})

	r := s.core.PartitionOf(s.account)
	before, orderList := madeUpOrders(r, "before-", 2*idsPerBucket-5), madeUpOrders(r, "X-", 10)
	all := slices.Concat(before, orderList)
	for writes := 0; ; writes++ {
		s.forgetRetired(t, r)
		s.fillRetired(t, r, before)
		hour := s.end(t, r, orderList...)
		keys := orders.RetirementKeys(r, hour)
		must(t, s.core.Redis.Set(t.Context(), keys[0]+"stop", writes, 0).Err())
		_, err := s.core.Run(t.Context(), "retire_orders", keys, r.Prefix, hour, orders.RetireBatch, orders.NewRetiredIndex())
		must(t, s.core.Redis.Del(t.Context(), keys[0]+"stop").Err())

		answers := s.askForDays(t, r, all)
		for i, retired := range get(s.Orders.Retired(t.Context(), all))(t) {
			taken := answers[i] == string(core.DayOf(all[i]))
			require(t, retired && taken || s.core.Redis.Exists(t.Context(), r.Order(all[i].Digest())).Val() == 1, "after %d writes the id with number %d is forgotten", writes, i)
		}

		if err == nil {
			index, _ := s.readRetired(t, r)
			require(t, writes > len(orderList)+4 && index.Buckets == 3, "the script was stopped %d times, with %d buckets", writes, index.Buckets)
			return
		}

		get(s.core.Run(t.Context(), "retire_orders", keys, r.Prefix, hour, orders.RetireBatch, orders.NewRetiredIndex()))(t)
		require(t, !slices.Contains(get(s.Orders.Retired(t.Context(), all))(t), false), "an id is forgotten after the next call")
	}
}

func TestRetired_FindsIDsThatMoveWhileItLooks(t *testing.T) {
	for name, before := range map[string]int{"the first ids of a partition": 0, "one split": idsPerBucket - 1, "many splits": 100} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			r := s.core.PartitionOf(s.account)
			orderList := madeUpOrders(r, "before-", before)
			if before > 0 {
				s.retire(t, r, orders.RetireBatch, orderList...)
			}

			later := madeUpOrders(r, "meanwhile-", 3*before+1)
			other := openTest(t, sameDatabase(s.Ledger))
			s.core.Redis.AddHook(&afterPipeline{command: "get", do: func() { other.retire(t, r, orders.RetireBatch, later...) }})
			for i, retired := range get(s.Orders.Retired(t.Context(), append(orderList, madeUpOrders(r, "never-", 10)...)))(t) {
				check(t, retired == (i < before), "id %d of %d: %v", i, before, retired)
			}

			equal(t, slices.Contains(get(s.Orders.Retired(t.Context(), later))(t), false), false, "one that came meanwhile is missing")
		})
	}
}

func TestRetired_SaysThatAnIndexCannotBeRead(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	must(t, s.core.Redis.Set(t.Context(), r.Key(core.KindRetired), "short", 0).Err())
	_, err := s.Orders.Retired(t.Context(), madeUpOrders(r, "X", 1))
	check(t, err != nil && strings.Contains(err.Error(), "index of retired ids"), "%v", err)
}

// Nobody can choose ids that all come into one bucket, though a digest is in the orderId and can be
// computed: here the first four bytes are the same, and the last ones.
func TestRetire_ChosenIDsDoNotMeetInOneBucket(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	orderList := make([]delivery.OrderID, 20_000)
	for i := range orderList {
		digest := delivery.OrderDigest(s.account, strconv.Itoa(i))
		copy(digest[:4], "same")
		copy(digest[8:], "same")
		orderList[i] = delivery.MakeOrderID(r.Number, 1, digest)
	}

	s.fillRetired(t, r, orderList)
	_, buckets := s.readRetired(t, r)
	largest := 0
	for _, entries := range buckets {
		largest = max(largest, len(entries)/orders.RetiredEntrySize)
	}

	check(t, largest <= 4*idsPerBucket, "a bucket has %d ids", largest)
}

// An id among 100,000 in a partition takes what it takes among a billion, since buckets stay as large as
// they are. The first filter takes 4 kB, whatever is in it.
func TestRetire_RemembersAnIDInAtMost16Bytes(t *testing.T) {
	for _, ids := range []int{10_000, 100_000} {
		s := newEnv(t)
		r := s.core.PartitionOf(s.account)
		s.fillRetired(t, r, madeUpOrders(r, "before-", ids-500))
		s.retire(t, r, orders.RetireBatch, madeUpOrders(r, "X-", 500)...)
		bytes := int64(0)
		for _, key := range s.keys(t, core.KindRetired) {
			bytes += s.memory(t, key) + 16 // its place in Redis's table of keys
		}

		index, _ := s.readRetired(t, r)
		check(t, index.Ids == uint64(ids) && bytes <= 16*int64(ids), "%d ids: %d bytes for %d", ids, bytes, index.Ids)
	}
}

// Counts instead of times: how many commands a call makes, and how many ids it looks at.
func TestRetire_NothingCostsMoreWithEveryID(t *testing.T) {
	type costs struct{ create, poll, retire, lookUp map[string]int64 }
	measure := func(ids int) (c costs, largest int) {
		_, own := ownServer(t)
		s := newEnv(t, own, func(c *core.Config) { c.Edit = answerDays })
		r := s.core.PartitionOf(s.account)
		if ids > 0 {
			s.fillRetired(t, r, madeUpOrders(r, "before-", ids))
		}

		created := s.creation("X-1", "")
		c.create = s.commands(t, func() { get2(s.Orders.Create(t.Context(), created))(t) })
		c.poll = s.commands(t, func() { get2(s.Orders.Poll(t.Context(), s.account, created.Order.ID))(t) })
		orderList := madeUpOrders(r, "X-", orders.RetireBatch)
		hour := s.end(t, r, orderList...)
		c.retire = s.commands(t, func() {
			get(s.core.Run(t.Context(), "retire_orders", orders.RetirementKeys(r, hour), r.Prefix, hour, orders.RetireBatch, orders.NewRetiredIndex()))(t)
		})
		c.lookUp = s.commands(t, func() { get(s.Orders.Retired(t.Context(), orderList))(t) })
		free := madeUpOrders(r, "free-", 1000)
		looks := s.commands(t, func() {
			for _, answer := range s.askForDays(t, r, free) {
				equal(t, answer, "free", "an id that nobody has used")
			}
		})

		check(t, looks["hget"] < 300, "%d of 1000 free ids are looked for in a bucket", looks["hget"])
		_, buckets := s.readRetired(t, r)
		for _, entries := range buckets {
			largest = max(largest, len(entries)/orders.RetiredEntrySize)
		}

		return c, largest
	}

	few, _ := measure(24 * 100)
	many, largest := measure(24 * 10_000)
	none, _ := measure(0)
	check(t, many.create["hget"] <= 1 && largest <= 4*idsPerBucket, "a creation reads %d buckets of up to %d ids", many.create["hget"], largest)
	for _, c := range []costs{few, many} {
		delete(c.create, "hget") // only for one id in some
	}

	equal(t, many, few, "commands with a hundred times the ids")
	delete(many.create, "getbit") // without an index there is no filter to look into
	equal(t, many.create, none.create, "a creation's commands without any id")
	equal(t, many.poll, none.poll, "a poll's commands without any id")
	equal(t, many.lookUp, none.lookUp, "a look-up's commands without any id")
}

// commands counts what a server of the test's own does meanwhile, also within scripts.
func (s *env) commands(t *testing.T, do func()) map[string]int64 {
	t.Helper()
	must(t, s.core.Redis.ConfigResetStat(t.Context()).Err())
	do()
	counts := make(map[string]int64)
	for line := range strings.Lines(get(s.core.Redis.Info(t.Context(), "commandstats").Result())(t)) {
		name, rest, isCommand := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if isCommand && !strings.HasPrefix(name, "config") && name != "info" {
			calls, _, _ := strings.Cut(rest, ",")
			counts[name] = get(strconv.ParseInt(calls, 10, 64))(t)
		}
	}

	return counts
}

func TestRetiredIndex_IsReadAsItWasWritten(t *testing.T) {
	digest := delivery.OrderDigest(delivery.AccountID{1}, "X")
	for _, ids := range []int{0, 1, idsPerBucket - 1, idsPerBucket, idsPerBucket * 7, idsPerBucket * 8, idsPerBucket * (orders.RetiredPrime - 1)} {
		index := retiredTestIndex(ids)
		check(t, index.Bucket(digest) < index.Buckets, "%d ids: bucket %d of %d", ids, index.Bucket(digest), index.Buckets)
		equal(t, get(orders.DecodeRetiredIndex(string(index.Encode())))(t), index, "read back")
	}

	check(t, len(orders.NewRetiredIndex()) == orders.RetiredIndexSize && !bytes.Equal(orders.NewRetiredIndex(), orders.NewRetiredIndex()), "new indexes have the same secrets")
	damaged := retiredTestIndex(100)
	damaged.Span *= 2
	for _, stored := range []string{"short", string(make([]byte, orders.RetiredIndexSize)), string(damaged.Encode())} {
		_, err := orders.DecodeRetiredIndex(stored)
		check(t, err != nil && strings.Contains(err.Error(), "index of retired ids"), "%q: %v", stored, err)
	}
}

// With the most buckets ids go on being remembered and found; buckets grow.
func TestRetire_GoesOnWithTheMostBuckets(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	most := retiredTestIndex(idsPerBucket * (orders.RetiredPrime - 3))
	must(t, s.core.Redis.Set(t.Context(), r.Key(core.KindRetired), most.Encode(), 0).Err())
	orderList := madeUpOrders(r, "X-", 200)
	s.retire(t, r, orders.RetireBatch, orderList...)
	equal(t, slices.Contains(get(s.Orders.Retired(t.Context(), orderList))(t), false), false, "an id is forgotten")
	index := get(orders.DecodeRetiredIndex(get(s.core.Redis.Get(t.Context(), r.Key(core.KindRetired)).Result())(t)))(t)
	equal(t, index.Buckets, uint32(orders.RetiredPrime), "buckets")
}
