package main

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// measurePrograms measures the programs as they run in production: a gateway, a worker and a Redis that syncs every
// write, over TCP, the load in this process.
func (b *bench) measurePrograms(ctx context.Context) {
	b.withVendors(ctx, "programs", stack.Options{}, nil, func(ctx context.Context, s *system) {
		for range b.rounds {
			b.measureAnswers(ctx, s)
		}
	})
}

// measureAnswers measures the answers to orders at a fixed rate, those to an unknown path (what HTTP, the machine and
// the generator cost) and those of a server that only writes the body to the same Redis (what the disk costs, too).
func (b *bench) measureAnswers(ctx context.Context, s *system) {
	const rate = 2000 // per second
	load := harness.Load{Addrs: s.addrs[:1], Connections: connections, Rate: rate, Duration: short(b, 5*time.Second, time.Second)}
	load.Want, load.Request = 404, func(dst []byte, _ int) []byte {
		return append(dst, "GET /nothing HTTP/1.1\r\nHost: api.example.com\r\n\r\n"...)
	}
	idle := got(harness.OpenLoop(ctx, load))
	load.Want, load.Request = 201, s.newOrders()
	orders := got(harness.OpenLoop(ctx, load))
	bare := s.bareWrites(ctx, load)
	for key, q := range map[string]float64{"wait_p50": 50, "wait_p99": 99, "wait_p999": 99.9} {
		wait, write, base := quantile(orders.Latency, q), quantile(bare.Latency, q), quantile(idle.Latency, q)
		b.add(key, wait, base)
		b.add(key+"_xadd", wait, write)
		b.progress("%s at %d orders/s in an open loop: %s ms, of one bare XADD each %s ms, of an unknown path %s ms", key, rate,
			harness.Number(wait), harness.Number(write), harness.Number(base))
	}
	s.settle(ctx)
}

// bareWrites sends a load to a server of this process that answers 201 when Redis has the body in a stream.
func (s *system) bareWrites(ctx context.Context, load harness.Load) *harness.Answers {
	const stream = "bench:bare"
	client := connect(s.Redis, load.Connections)
	defer func() { _ = client.Close() }() // all of its writes are answered
	listener := got(net.Listen("tcp", "127.0.0.1:0"))
	stop := serveHTTP(listener, func(c *fasthttp.RequestCtx) {
		c.SetStatusCode(fasthttp.StatusCreated)
		if err := client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"e", c.PostBody()}}).Err(); err != nil {
			c.Error(err.Error(), fasthttp.StatusInternalServerError)
		}
	})
	defer stop()
	load.Addrs = []string{listener.Addr().String()}
	answers := got(harness.OpenLoop(ctx, load))
	must(client.Del(ctx, stream).Err())
	return answers
}

// kinds of processes, as usage names them.
var kinds = []string{"gateway", "redis", "worker", "generator"}

// topologies are numbers of gateways over one Redis or a cluster, by the keys of suites.yaml, the baseline first.
var topologies = []struct {
	key       string
	gateways  int
	clustered bool
}{
	{"gateways_1", 1, false}, {"gateways_2", 2, false}, {"gateways_4", 4, false},
	{"cluster_gateways_1", 1, true}, {"cluster_gateways_4", 4, true},
}

// measureTopologies puts the same load, as many orders as are accepted, on each topology in turn. All of them are up
// all the time; those without load are idle.
func (b *bench) measureTopologies(ctx context.Context) {
	const masters = 3 // the fewest that Redis Cluster takes
	cluster := got(stack.StartCluster(ctx, b.file("cluster"), masters, 0))
	defer cluster.Stop()
	b.withVendors(ctx, "single", stack.Options{}, nil, func(ctx context.Context, single *system) {
		b.withVendors(ctx, "clustered", stack.Options{RedisURL: cluster.URL}, cluster.Nodes, func(ctx context.Context, clustered *system) {
			systems := map[bool]*system{false: single, true: clustered}
			for _, t := range topologies {
				for s := systems[t.clustered]; len(s.gateways) < t.gateways; {
					g, origin, err := s.AddGateway(ctx)
					must(err)
					s.gateways, s.addrs = append(s.gateways, g), append(s.addrs, hostOf(origin))
				}
			}
			b.inTurns(len(topologies), func(round, i int) {
				t := topologies[i]
				b.measureTopology(ctx, t.key, systems[t.clustered], t.gateways)
				f := b.figure(t.key)
				b.progress("round %d of %d  %-26s %9s orders/s", round+1, b.rounds, f.Title, harness.Number(f.Rounds[round]))
			})
		})
	})
	for i, t := range topologies {
		if i > 0 {
			b.figure(t.key).Bases = b.figure(topologies[0].key).Rounds
		}
		cores := func(kind string) float64 { return harness.Median(b.figure(t.key + "." + kind + "_cores").Rounds) }
		separator := "busy cores, and CPU per order: "
		for _, kind := range kinds {
			b.note(t.key, "%s%s %.2f, %s us", separator, kind, cores(kind), harness.Number(cores(kind)*1e6/harness.Median(b.figure(t.key).Rounds)))
			separator = ""
		}
		b.note(t.key, "other %.2f; idle %.2f", cores("other"), cores("idle"))
	}
	b.progress("Everything shares these cores, the load included: where few are idle, more processes\n" +
		"divide what there is. Redis is the main threads alone; other is the kernel's work for\n" +
		"the disk, and Redis rewriting its file.")
}

func (b *bench) measureTopology(ctx context.Context, key string, s *system, gateways int) {
	var r *harness.Answers
	used := s.during(ctx, func() { r = s.create(ctx, s.addrs[:gateways], short(b, 6*time.Second, time.Second)) })
	b.add(key, r.PerSecond())
	other := used["busy_us"]
	for _, kind := range kinds {
		other -= used[kind+"_us"]
	}
	used["other_us"] = max(0, other)
	for _, kind := range slices.Concat(kinds, []string{"other", "idle"}) {
		b.add(key+"."+kind+"_cores", used[kind+"_us"]/1e6/r.Elapsed.Seconds())
	}
	s.settle(ctx)
}

// measureReplica puts the same loads on a system whose answers are on its Redis's disk and, in turn, on one whose answers
// are on the disk of a replica, too.
func (b *bench) measureReplica(ctx context.Context) {
	master := got(stack.StartRedis(ctx, stack.RedisOptions{Dir: b.file("master")}))
	defer master.Stop()
	replica := got(stack.StartRedis(ctx, stack.RedisOptions{Dir: b.file("replica")}))
	defer replica.Stop()
	must(replica.Follow(ctx, master))
	confirmed := stack.Options{RedisURL: master.URL, Env: []string{"REDIS_DURABILITY=replica"}}
	b.withVendors(ctx, "local", stack.Options{}, nil, func(ctx context.Context, local *system) {
		b.withVendors(ctx, "confirmed", confirmed, []*stack.Redis{master}, func(ctx context.Context, confirmed *system) {
			b.inTurns(2, func(_, i int) {
				b.measureConfirmed(ctx, []*system{local, confirmed}[i], []string{"local", "replica"}[i])
			})
		})
	})
	for _, f := range b.figures {
		if of, ok := strings.CutPrefix(f.Key, "replica_"); ok {
			f.Bases = b.figure("local_" + of).Rounds
		}
	}
}

func (b *bench) measureConfirmed(ctx context.Context, s *system, how string) {
	const created, carried = 500, 100 // orders a second
	b.measureTopology(ctx, how+"_orders", s, 1)
	length := short(b, 10*time.Second, time.Second)
	open := got(harness.OpenLoop(ctx, harness.Load{Addrs: s.addrs, Connections: connections, Rate: created, Duration: length,
		Want: 201, Request: s.newOrders()}))
	whole := s.carry(ctx, carried, 1, short(b, deliveryWarmUp, 0), length)
	rounds := b.figure(how + "_orders").Rounds
	b.progress("%-8s %s orders/s; at %d/s an answer after %s ms (p99 %s); %s", how, harness.Number(rounds[len(rounds)-1]),
		created, harness.Number(quantile(open.Latency, 50)), harness.Number(quantile(open.Latency, 99)), whole)
	b.add(how+"_wait_p50", quantile(open.Latency, 50))
	b.add(how+"_wait_p99", quantile(open.Latency, 99))
	b.add(how+"_told_p50", quantile(whole.told, 50))
	b.add(how+"_told_p99", quantile(whole.told, 99))
	s.settle(ctx)
}
