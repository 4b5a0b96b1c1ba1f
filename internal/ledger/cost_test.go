package ledger

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/stack"
)

// costAccounts is how many accounts the orders of a cost benchmark come from,
// one after the other.
const costAccounts = 64

// costBatch is the length of the pipelines: long enough that reading and
// writing the socket, which all variants do alike, does not blur the ratio.
const costBatch = 100

// BenchmarkRedisCost is what one accepted order costs Redis's main thread, the
// one resource of a partition that cannot be added to. All variants write to a
// server that syncs every write:
//
//	order        the whole script, under a key that is the external id
//	order_key    the same under a key of its own
//	order_sliding  order from accounts both of whose windows slide: with every
//	               admission an old one leaves each of them
//	own_writes   literally the writes of order and nothing else
//	native       the plainest layout: SET idempotency, SET external id, HSET order, XADD document
func BenchmarkRedisCost(b *testing.B) {
	s := newCostEnv(b, costAccounts)
	for _, variant := range []struct {
		name string
		add  func(*testing.B, redis.Pipeliner, int)
	}{
		{"order", func(b *testing.B, p redis.Pipeliner, n int) { s.addOrder(b, p, s.vendors, n, true) }},
		{"order_key", func(b *testing.B, p redis.Pipeliner, n int) { s.addOrder(b, p, s.vendors, n, false) }},
		{"order_sliding", s.addSliding},
		{"own_writes", s.addOwnWrites},
		{"native", s.addNative},
	} {
		b.Run(variant.name, func(b *testing.B) { s.measure(b, variant.add) })
	}
}

// costEnv is a Redis of its own with accounts that no limit stops.
type costEnv struct {
	*Ledger
	vendors, sliding []*env
	next             atomic.Int64
	body             []byte
	stop             func()
}

func newCostEnv(b *testing.B, accounts int, change ...func(*core.Config)) *costEnv {
	b.Helper()
	server, err := stack.StartRedis(b.Context(), stack.RedisOptions{Dir: b.TempDir(), Unix: true,
		Extra: []string{"--auto-aof-rewrite-percentage", "0", "--enable-debug-command", "local"}})
	must(b, err)
	stop := sync.OnceFunc(server.Stop)
	b.Cleanup(stop)
	own := func(c *core.Config) { c.URL, c.ClockKey, c.Partitions = server.URL, "", 0 }
	l := openTest(b, append([]func(*core.Config){own}, change...)...)
	s := &costEnv{Ledger: l, body: make([]byte, 450), stop: stop}
	fleet := newFleet(b, l)
	s.vendors = openAccounts(b, l, fleet, accounts, 60, 10)
	s.sliding = openAccounts(b, l, fleet, accounts, 2, 1)
	must(b, l.core.LoadLibrary(b.Context()))

	return s
}

// openAccounts opens accounts with two windows of so many seconds that nobody fills.
func openAccounts(b *testing.B, l *Ledger, fleet *delivery.Fleet, accounts, sustained, burst int) []*env {
	b.Helper()
	limits := plenty()
	limits.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 6_000_000, Seconds: sustained},
		Burst: delivery.Window{Count: 1_200_000, Seconds: burst}}
	vendors := make([]*env, accounts)
	for i := range vendors {
		vendors[i] = &env{Ledger: l, account: newAccount(b, l, limits), fleet: fleet}
		newStore(b, l, vendors[i].account, fleet)
	}

	return vendors
}

// measure sends b.N orders in pipelines and reports the main thread's time.
func (s *costEnv) measure(b *testing.B, add func(*testing.B, redis.Pipeliner, int)) {
	before := mainThread(b, s.Ledger)
	b.ResetTimer()
	s.send(b, b.N, add)
	b.StopTimer()
	b.ReportMetric((mainThread(b, s.Ledger)-before)*1e6/float64(b.N), "redis-us/order")
}

// send sends n orders in pipelines.
func (s *costEnv) send(b *testing.B, n int, add func(*testing.B, redis.Pipeliner, int)) {
	for sent := 0; sent < n; {
		pipe := s.core.Redis.Pipeline()
		for range min(costBatch, n-sent) {
			add(b, pipe, int(s.next.Add(1)))
			sent++
		}

		cmds := get(pipe.Exec(b.Context()))(b)
		for _, cmd := range cmds {
			if reply, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "fcall" {
				require(b, strings.HasPrefix(reply.Val(), "created\n"), "the script answered %q", reply.Val())
			}
		}
	}
}

// fullDraft is an order with every field; its JSON takes about 450 bytes.
func fullDraft(externalID string) *delivery.OrderDraft {
	d := testDraft(externalID)
	d.OrderedAt = d.ReadyAt
	d.Dropoff.BuildingNo, d.Dropoff.Floor, d.Dropoff.Note = "12", "3", "Zil çalışmıyor, lütfen arayın"
	d.PackageNote = "İçecekler ayrı poşette, sos eklenmedi"
	d.OrderAmount = delivery.Money{Minor: 12550, Set: true}

	return d
}

func (s *costEnv) addSliding(b *testing.B, p redis.Pipeliner, n int) {
	s.addOrder(b, p, s.sliding, n, true)
}

func (s *costEnv) nextCreation(vendors []*env, n int) *orders.Creation {
	id := "X-" + strconv.Itoa(n)
	c := vendors[n%len(vendors)].creation(id, id)
	c.Draft = fullDraft(id)
	return c
}

func (s *costEnv) addOrder(b *testing.B, p redis.Pipeliner, vendors []*env, n int, keyIsExternal bool) {
	c := s.nextCreation(vendors, n)
	if !keyIsExternal {
		c.IdempotencyKey = "K-" + strconv.Itoa(n)
	}
	s.Orders.PrepareCreation(s.core.PartitionOf(c.Account), c)
	_ = p.Process(b.Context(), c.Call.Command(b.Context(), false))
}

// addOwnWrites are the writes of an order, with keys and values of its sizes.
func (s *costEnv) addOwnWrites(b *testing.B, p redis.Pipeliner, n int) {
	one := s.vendors[n%len(s.vendors)]
	r := s.core.PartitionOf(one.account)
	order := r.Order(delivery.OrderDigest(one.account, "W-"+strconv.Itoa(n)))
	ring := r.KeyOf(core.KindWindows, append([]byte{'w'}, one.account[:]...))
	document := core.Codec{Writing: true}
	document.Document(fullDraft("X"))
	p.MSet(b.Context(), ring, s.body[:116], order, s.body[:core.OrderHead+len(document.Out)])
	p.XAdd(b.Context(), &redis.XAddArgs{Stream: r.Key(core.KindEvents), Values: []any{"e", s.body[:24]}})
}

// addNative is the reference that the service is measured by: what a plain
// layout would at least have to write, without a limit or a check.
func (s *costEnv) addNative(b *testing.B, p redis.Pipeliner, n int) {
	one := s.vendors[n%len(s.vendors)]
	prefix, id := s.core.PartitionOf(one.account).Prefix, strconv.Itoa(n)
	account := one.account.String()
	p.Set(b.Context(), prefix+"idempotency:"+account+":"+id, s.body[:36], 0)
	p.Set(b.Context(), prefix+"external:"+account+":"+id, s.body[:36], 0)
	p.HSet(b.Context(), prefix+"order:"+id, "account", s.body[:16], "fleet", s.body[:16], "status", "1", "version", "1",
		"created", "1795284000000", "updated", "1795284000000")
	p.XAdd(b.Context(), &redis.XAddArgs{Stream: prefix + "orders", Values: []any{"document", s.body}})
}

// mainThread is the CPU time of Redis's main thread so far, in seconds.
func mainThread(b *testing.B, l *Ledger) float64 {
	b.Helper()
	info := get(l.core.Redis.Info(b.Context(), "cpu").Result())(b)
	total := 0.0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.HasSuffix(name, "_main_thread") {
			seconds := get(strconv.ParseFloat(value, 64))(b)
			total += seconds
		}
	}

	return total
}
