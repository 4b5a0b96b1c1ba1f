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
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// The same in lua/order.lua.
const (
	idsPerBucket = 24
	filterBits   = 192
)

// retiredTestIndex is of so many ids; its secrets are the same in every run.
func retiredTestIndex(ids int) retiredIndex {
	x := retiredIndex{ids: uint64(ids), buckets: uint32(ids/idsPerBucket + 1), span: 2, secrets: [3]uint32{31415926, 53589793, 23846264}}
	for x.span <= x.buckets {
		x.span *= 2
	}
	return x
}

// end writes records of orders that have ended, and lists them for retire_orders; nobody had created them.
func (l *Ledger) end(t tester, r partition, orders ...delivery.OrderID) (hour string) {
	t.Helper()
	ctx := context.Background()
	hour = "1000"
	pipe := l.rdb.Pipeline()
	for _, id := range orders {
		record := make([]byte, orderHead)
		record[0], record[1] = recordFormat, byte(delivery.Delivered)
		binary.BigEndian.PutUint16(record[92:], id.Day())
		pipe.Set(ctx, r.order(id.Digest()), record, 0)
		pipe.RPush(ctx, r.keyOf(kindEnded, []byte(hour)), orderMember(id))
	}

	pipe.ZAdd(ctx, r.key(kindEndedHours), redis.Z{Score: 1000, Member: hour})
	get(pipe.Exec(ctx))(t)

	return hour
}

// retire lets orders end and retires them, so many in a call.
func (l *Ledger) retire(t tester, r partition, atOnce int, orders ...delivery.OrderID) {
	t.Helper()
	hour := l.end(t, r, orders...)
	for retired := 0; retired < len(orders); {
		reply := get(l.run(context.Background(), "retire_orders", r.retirementKeys(hour), r.prefix, hour, atOnce, newRetiredIndex()))(t)
		n, _ := reply.(int64)
		require(t, n > 0, "retired %d of %d", retired, len(orders))
		retired += int(n)
	}
}

// readRetired reads a partition's index, and its buckets by their numbers.
func (l *Ledger) readRetired(t tester, r partition) (index retiredIndex, buckets map[uint32]string) {
	t.Helper()
	ctx := context.Background()
	stored, err := l.rdb.Get(ctx, r.key(kindRetired)).Result()
	if err != redis.Nil {
		must(t, err)
	}

	index = get(decodeRetiredIndex(stored))(t)

	buckets = make(map[uint32]string)
	for first := uint32(0); first < index.buckets; first += bucketsPerHash {
		key, _ := r.retiredPlace(first)
		for field, entries := range get(l.rdb.HGetAll(ctx, key).Result())(t) {
			buckets[first+uint32(binary.BigEndian.Uint16([]byte(field)))] = entries
		}
	}

	return index, buckets
}

// fillRetired writes what retiring orders one by one would have left in a partition that remembers none.
func (l *Ledger) fillRetired(t tester, r partition, orders []delivery.OrderID) {
	t.Helper()
	_, buckets := l.readRetired(t, r)
	require(t, len(buckets) == 0, "the partition remembers ids")
	index := retiredTestIndex(len(orders))
	for _, id := range orders {
		member := orderMember(id)
		buckets[index.bucket(id.Digest())] += member[:retiredDigestSize] + member[12:]
	}

	ctx := context.Background()
	pipe := l.rdb.Pipeline()
	for first := uint32(0); first < index.buckets; first += bucketsPerHash {
		key, _ := r.retiredPlace(first)
		filter := make([]byte, bucketsPerHash*filterBits/8)
		for bucket := first; bucket < min(first+bucketsPerHash, index.buckets); bucket++ {
			_, field := r.retiredPlace(bucket)
			pipe.HSet(ctx, key, field, buckets[bucket])
			setFilterBits(filter[(bucket-first)*filterBits/8:], buckets[bucket])
		}
		pipe.Set(ctx, key+"f", filter, 0)
	}

	pipe.Set(ctx, r.key(kindRetired), index.encode(), 0)
	get(pipe.Exec(ctx))(t)
}

// setFilterBits sets the bits of a bucket's ids in its part of the filter.
func setFilterBits[T string | []byte](filter []byte, entries T) {
	for at := 0; at < len(entries); at += retiredEntrySize {
		part := uint32(entries[at+6])<<16 | uint32(entries[at+7])<<8 | uint32(entries[at+8])
		bit := part % filterBits
		filter[bit/8] |= 0x80 >> (bit % 8)
	}
}

// forgetRetired leaves a partition as if it had never retired anything.
func (l *Ledger) forgetRetired(t tester, r partition) {
	t.Helper()
	ctx := context.Background()
	for _, key := range get(l.rdb.Keys(ctx, r.key(kindRetired)+"*").Result())(t) {
		must(t, l.rdb.Del(ctx, key).Err())
	}
}

// madeUpOrders makes up ids of orders in a partition.
func madeUpOrders(r partition, name string, n int) []delivery.OrderID {
	orders := make([]delivery.OrderID, n)
	for i := range orders {
		orders[i] = delivery.MakeOrderID(r.number, uint16(20_000+i%400), delivery.OrderDigest(delivery.AccountID{}, fmt.Sprint(name, i)))
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
func (l *Ledger) askForDays(t tester, r partition, ids []delivery.OrderID) []string {
	t.Helper()
	calls := make([]call, len(ids))
	for i, id := range ids {
		digest := id.Digest()
		calls[i] = call{keys: []string{r.key(kindRetired)}, args: []any{digest[:retiredDigestSize], newRetiredIndex()}}
	}

	answers := make([]string, len(ids))
	for i, answer := range get(l.runAll(context.Background(), "list_due", calls))(t) {
		answers[i] = get(answer.Text())(t)
	}

	return answers
}

// Digests of few different bytes make entries that are found at places where none begins.
func TestRetire_EveryIDIsFoundWithItsDayAndNothingElse(t *testing.T) {
	s := newEnv(t, func(c *Config) { c.edit = answerDays })
	r := s.partitionOf(s.account)
	rapid.Check(t, func(t *rapid.T) {
		s.forgetRetired(t, r)
		secret := rapid.Uint32Range(0, retiredPrime-1)
		start := firstRetiredIndex()
		start.secrets = [3]uint32{secret.Draw(t, "secret"), secret.Draw(t, "secret"), secret.Draw(t, "secret")}
		must(t, s.rdb.Set(context.Background(), r.key(kindRetired), start.encode(), 0).Err())

		letter, day := rapid.ByteRange(0, 2), rapid.Uint16Range(0, 3)
		digests := rapid.SliceOfNDistinct(rapid.SliceOfN(letter, retiredDigestSize, retiredDigestSize), 5*idsPerBucket, 6*idsPerBucket, func(b []byte) string { return string(b) }).Draw(t, "digests")
		atOnce := rapid.IntRange(1, retireBatch)
		orders := make([]delivery.OrderID, len(digests))
		for i, digest := range digests {
			var whole delivery.Digest
			copy(whole[:], digest)
			orders[i] = delivery.MakeOrderID(r.number, day.Draw(t, "day"), whole)
		}

		known := 0
		for known < len(orders) {
			n := min(rapid.IntRange(1, len(orders)).Draw(t, "orders"), len(orders)-known)
			s.retire(t, r, atOnce.Draw(t, "at once"), orders[known:known+n]...)
			known += n

			var otherDay []delivery.OrderID
			answers := s.askForDays(t, r, orders)
			for i, id := range orders {
				otherDay = append(otherDay, delivery.MakeOrderID(r.number, id.Day()+1, id.Digest()))
				want := "free"
				if i < known {
					want = string(dayOf(id))
				}
				require(t, answers[i] == want, "the script answered %q for an id, want %q", answers[i], want)
			}

			for i, retired := range get(s.Orders.Retired(context.Background(), orders))(t) {
				require(t, retired == (i < known), "of %d that are retired, number %d is said to be: %v", known, i, retired)
			}

			require(t, !slices.Contains(get(s.Orders.Retired(context.Background(), otherDay))(t), true), "found with another day")

			index, buckets := s.readRetired(t, r)
			require(t, index.ids == uint64(known) && index.buckets == uint32(known/idsPerBucket+1) && index.secrets == start.secrets, "index %+v, want %d ids", index, known)
			entries := 0
			filter := make([]byte, bucketsPerHash*filterBits/8)
			for bucket, held := range buckets {
				entries += len(held)
				setFilterBits(filter[bucket*filterBits/8:], held)
			}

			key, _ := r.retiredPlace(0)
			require(t, get(s.rdb.Get(context.Background(), key+"f").Result())(t) == string(filter), "the filter's bits are not those of the ids")
			require(t, entries == known*retiredEntrySize, "%d bytes for %d ids", entries, known)
		}
	})
}

func TestRetire_TheExternalIDOfARetiredOrderIsTakenForEver(t *testing.T) {
	s := newEnv(t)
	r := s.partitionOf(s.account)
	const n = 120
	var orders []delivery.OrderID
	for i := range n {
		orders = append(orders, delivery.MakeOrderID(r.number, uint16(i+1), delivery.OrderDigest(s.account, fmt.Sprint("X-", i))))
	}

	s.retire(t, r, retireBatch, orders...)
	for i, id := range orders {
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
	s := newEnv(t, func(c *Config) { c.URL, c.ClockKey = server.URL, "" })
	as := func(user string) *Ledger {
		return openTest(t, func(c *Config) { c.URL, c.ClockKey = server.URLFor(user), "" })
	}
	r := s.partitionOf(s.account)
	orders := madeUpOrders(r, "X-", 4*idsPerBucket)
	orders[0] = delivery.MakeOrderID(r.number, 1, delivery.OrderDigest(s.account, "used"))
	hour := s.end(t, r, orders...)
	worker := as(stack.WorkerUser)
	for range orders {
		get(worker.run(t.Context(), "retire_orders", r.retirementKeys(hour), r.prefix, hour, retireBatch, newRetiredIndex()))(t)
	}

	gateway := as(stack.GatewayUser)
	must(t, gateway.Fleets.Load(t.Context()))
	_, _, err := gateway.Orders.Create(t.Context(), s.creation("used", ""))
	equal(t, wantCode(t, err, delivery.CodeDuplicateOrder).OrderID, orders[0], "the order that has the id")
	for _, user := range []string{stack.ReportingUser, stack.BackupUser} {
		equal(t, slices.Contains(get(as(user).Orders.Retired(t.Context(), orders))(t), false), false, user+" does not find an id")
	}
}

func TestRetire_AnOrderThatIsListedTwiceIsRememberedOnce(t *testing.T) {
	s := newEnv(t)
	r := s.partitionOf(s.account)
	orders := madeUpOrders(r, "X-", 5)
	s.retire(t, r, retireBatch, append(orders, orders[1], orders[3])...)
	s.retire(t, r, 1, orders[2], orders[2])
	index, buckets := s.readRetired(t, r)
	check(t, index.ids == 6 && len(buckets[0]) == 6*retiredEntrySize, "%d ids in %d bytes", index.ids, len(buckets[0]))
}

// Whatever ends the script, and after whichever of its writes: no id is forgotten.
func TestRetire_NoIDIsForgottenWhereverTheScriptStops(t *testing.T) {
	s := newEnv(t, func(c *Config) {
		c.edit = func(file, text string) string {
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

	r := s.partitionOf(s.account)
	before, orders := madeUpOrders(r, "before-", 2*idsPerBucket-5), madeUpOrders(r, "X-", 10)
	all := slices.Concat(before, orders)
	for writes := 0; ; writes++ {
		s.forgetRetired(t, r)
		s.fillRetired(t, r, before)
		hour := s.end(t, r, orders...)
		keys := r.retirementKeys(hour)
		must(t, s.rdb.Set(t.Context(), keys[0]+"stop", writes, 0).Err())
		_, err := s.run(t.Context(), "retire_orders", keys, r.prefix, hour, retireBatch, newRetiredIndex())
		must(t, s.rdb.Del(t.Context(), keys[0]+"stop").Err())

		answers := s.askForDays(t, r, all)
		for i, retired := range get(s.Orders.Retired(t.Context(), all))(t) {
			taken := answers[i] == string(dayOf(all[i]))
			require(t, retired && taken || s.rdb.Exists(t.Context(), r.order(all[i].Digest())).Val() == 1, "after %d writes the id with number %d is forgotten", writes, i)
		}

		if err == nil {
			index, _ := s.readRetired(t, r)
			require(t, writes > len(orders)+4 && index.buckets == 3, "the script was stopped %d times, with %d buckets", writes, index.buckets)
			return
		}

		get(s.run(t.Context(), "retire_orders", keys, r.prefix, hour, retireBatch, newRetiredIndex()))(t)
		require(t, !slices.Contains(get(s.Orders.Retired(t.Context(), all))(t), false), "an id is forgotten after the next call")
	}
}

func TestRetired_FindsIDsThatMoveWhileItLooks(t *testing.T) {
	for name, before := range map[string]int{"the first ids of a partition": 0, "one split": idsPerBucket - 1, "many splits": 100} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			r := s.partitionOf(s.account)
			orders := madeUpOrders(r, "before-", before)
			if before > 0 {
				s.retire(t, r, retireBatch, orders...)
			}

			later := madeUpOrders(r, "meanwhile-", 3*before+1)
			other := openTest(t, sameDatabase(s.Ledger))
			s.rdb.AddHook(&afterPipeline{command: "get", do: func() { other.retire(t, r, retireBatch, later...) }})
			for i, retired := range get(s.Orders.Retired(t.Context(), append(orders, madeUpOrders(r, "never-", 10)...)))(t) {
				check(t, retired == (i < before), "id %d of %d: %v", i, before, retired)
			}

			equal(t, slices.Contains(get(s.Orders.Retired(t.Context(), later))(t), false), false, "one that came meanwhile is missing")
		})
	}
}

func TestRetired_SaysThatAnIndexCannotBeRead(t *testing.T) {
	s := newEnv(t)
	r := s.partitionOf(s.account)
	must(t, s.rdb.Set(t.Context(), r.key(kindRetired), "short", 0).Err())
	_, err := s.Orders.Retired(t.Context(), madeUpOrders(r, "X", 1))
	check(t, err != nil && strings.Contains(err.Error(), "index of retired ids"), "%v", err)
}

// Nobody can choose ids that all come into one bucket, though a digest is in the orderId and can be
// computed: here the first four bytes are the same, and the last ones.
func TestRetire_ChosenIDsDoNotMeetInOneBucket(t *testing.T) {
	s := newEnv(t)
	r := s.partitionOf(s.account)
	orders := make([]delivery.OrderID, 20_000)
	for i := range orders {
		digest := delivery.OrderDigest(s.account, strconv.Itoa(i))
		copy(digest[:4], "same")
		copy(digest[8:], "same")
		orders[i] = delivery.MakeOrderID(r.number, 1, digest)
	}

	s.fillRetired(t, r, orders)
	_, buckets := s.readRetired(t, r)
	largest := 0
	for _, entries := range buckets {
		largest = max(largest, len(entries)/retiredEntrySize)
	}

	check(t, largest <= 4*idsPerBucket, "a bucket has %d ids", largest)
}

// An id among 100,000 in a partition takes what it takes among a billion, since buckets stay as large as
// they are. The first filter takes 4 kB, whatever is in it.
func TestRetire_RemembersAnIDInAtMost16Bytes(t *testing.T) {
	for _, ids := range []int{10_000, 100_000} {
		s := newEnv(t)
		r := s.partitionOf(s.account)
		s.fillRetired(t, r, madeUpOrders(r, "before-", ids-500))
		s.retire(t, r, retireBatch, madeUpOrders(r, "X-", 500)...)
		bytes := int64(0)
		for _, key := range s.keys(t, kindRetired) {
			bytes += s.memory(t, key) + 16 // its place in Redis's table of keys
		}

		index, _ := s.readRetired(t, r)
		check(t, index.ids == uint64(ids) && bytes <= 16*int64(ids), "%d ids: %d bytes for %d", ids, bytes, index.ids)
	}
}

// Counts instead of times: how many commands a call makes, and how many ids it looks at.
func TestRetire_NothingCostsMoreWithEveryID(t *testing.T) {
	type costs struct{ create, poll, retire, lookUp map[string]int64 }
	measure := func(ids int) (c costs, largest int) {
		_, own := ownServer(t)
		s := newEnv(t, own, func(c *Config) { c.edit = answerDays })
		r := s.partitionOf(s.account)
		if ids > 0 {
			s.fillRetired(t, r, madeUpOrders(r, "before-", ids))
		}

		created := s.creation("X-1", "")
		c.create = s.commands(t, func() { get2(s.Orders.Create(t.Context(), created))(t) })
		c.poll = s.commands(t, func() { get2(s.Orders.Poll(t.Context(), s.account, created.order.ID))(t) })
		orders := madeUpOrders(r, "X-", retireBatch)
		hour := s.end(t, r, orders...)
		c.retire = s.commands(t, func() {
			get(s.run(t.Context(), "retire_orders", r.retirementKeys(hour), r.prefix, hour, retireBatch, newRetiredIndex()))(t)
		})
		c.lookUp = s.commands(t, func() { get(s.Orders.Retired(t.Context(), orders))(t) })
		free := madeUpOrders(r, "free-", 1000)
		looks := s.commands(t, func() {
			for _, answer := range s.askForDays(t, r, free) {
				equal(t, answer, "free", "an id that nobody has used")
			}
		})

		check(t, looks["hget"] < 300, "%d of 1000 free ids are looked for in a bucket", looks["hget"])
		_, buckets := s.readRetired(t, r)
		for _, entries := range buckets {
			largest = max(largest, len(entries)/retiredEntrySize)
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
	must(t, s.rdb.ConfigResetStat(t.Context()).Err())
	do()
	counts := make(map[string]int64)
	for line := range strings.Lines(get(s.rdb.Info(t.Context(), "commandstats").Result())(t)) {
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
	for _, ids := range []int{0, 1, idsPerBucket - 1, idsPerBucket, idsPerBucket * 7, idsPerBucket * 8, idsPerBucket * (retiredPrime - 1)} {
		index := retiredTestIndex(ids)
		check(t, index.bucket(digest) < index.buckets, "%d ids: bucket %d of %d", ids, index.bucket(digest), index.buckets)
		equal(t, get(decodeRetiredIndex(string(index.encode())))(t), index, "read back")
	}

	check(t, len(newRetiredIndex()) == retiredIndexSize && !bytes.Equal(newRetiredIndex(), newRetiredIndex()), "new indexes have the same secrets")
	damaged := retiredTestIndex(100)
	damaged.span *= 2
	for _, stored := range []string{"short", string(make([]byte, retiredIndexSize)), string(damaged.encode())} {
		_, err := decodeRetiredIndex(stored)
		check(t, err != nil && strings.Contains(err.Error(), "index of retired ids"), "%q: %v", stored, err)
	}
}

// With the most buckets ids go on being remembered and found; buckets grow.
func TestRetire_GoesOnWithTheMostBuckets(t *testing.T) {
	s := newEnv(t)
	r := s.partitionOf(s.account)
	most := retiredTestIndex(idsPerBucket * (retiredPrime - 3))
	must(t, s.rdb.Set(t.Context(), r.key(kindRetired), most.encode(), 0).Err())
	orders := madeUpOrders(r, "X-", 200)
	s.retire(t, r, retireBatch, orders...)
	equal(t, slices.Contains(get(s.Orders.Retired(t.Context(), orders))(t), false), false, "an id is forgotten")
	index := get(decodeRetiredIndex(get(s.rdb.Get(t.Context(), r.key(kindRetired)).Result())(t)))(t)
	equal(t, index.buckets, uint32(retiredPrime), "buckets")
}
