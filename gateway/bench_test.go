package main

import (
	"syscall"
	"testing"
)

// BenchmarkServe measures the gateway from socket to socket, in a process that
// holds the gateway and 64 vendors' connections, who send orders as fast as they
// are answered. Redis is a real one that syncs every write before it answers.
// Every answer's status is checked.
//
// allocs/op and B/op are the server's, go-redis included: the load allocates
// nothing. orders/s is what all connections got together, cpu-us/order the CPU
// time of this process, load included, for one order, and redis-us/order that of
// Redis's main thread; the empty handler, which has no Redis, reports requests as
// orders and leaves the last one out.
//
// The machine drifts: figures mean something as ratios of runs that alternate
// (loadtest/bench does that, and relies on these names). The CPU times drift
// least when others use the machine too.
//
//	empty           fasthttp with a handler that does nothing
//	nothing         this gateway without a ledger: it answers, and keeps nothing
//	xadd            this gateway with one bare XADD of the same bytes for a ledger
//	xadd_pipelines  the same, all requests on one connection (AutoPipeline)
//	plain           this gateway over two redis_rate calls, SET NX, HSET and XADD
//	order           this gateway with a connection to Redis for each request
//	order_pipelines this gateway as it is shipped, all requests on one connection
//
// Give it -benchtime 20000x or more: each run starts a Redis of its own.
func BenchmarkServe(b *testing.B) {
	for _, variant := range []struct {
		name string
		open func(testing.TB) *benchEnv
	}{
		{"empty", newEmptyEnv},
		{"nothing", func(t testing.TB) *benchEnv { return newReferenceEnv(t, newNothingReference) }},
		{"xadd", func(t testing.TB) *benchEnv { return newReferenceEnv(t, newXAddReference) }},
		{"xadd_pipelines", func(t testing.TB) *benchEnv { return newReferenceEnv(t, newXAddPipelinesReference) }},
		{"plain", func(t testing.TB) *benchEnv { return newReferenceEnv(t, newPlainReference) }},
		{"order", newOrderEnv},
		{"order_pipelines", newPipelinesEnv},
	} {
		b.Run(variant.name, func(b *testing.B) { measure(b, variant.open(b)) })
	}
}

func measure(b *testing.B, s *benchEnv) {
	redis, own := s.redisMicros(b), processMicros(b)
	b.ReportAllocs()
	err := s.load.orders(b.N, b.ResetTimer)
	b.StopTimer()
	if err != nil {
		b.Fatal(err)
	}

	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
	b.ReportMetric((processMicros(b)-own)/float64(b.N), "cpu-us/order")
	if s.rdb != nil {
		b.ReportMetric((s.redisMicros(b)-redis)/float64(b.N), "redis-us/order")
	}
}

// processMicros is the CPU time that this process has used, in microseconds.
func processMicros(b *testing.B) float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1000
}
