package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"vendorapi/internal/stack"
)

// BenchmarkCreateOrder sends orders through HTTP to a gateway with a real Redis
// that syncs every write, over 64 connections; the client shares the cores.
// Run it with -benchtime 5s.
func BenchmarkCreateOrder(b *testing.B) {
	w, account := benchWorld(b)
	head := "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " + account.token + "\r\n"
	var number atomic.Int64
	body := orderBody("POS-000000000000", "packageNote", `"Kapıya bırakın, zili çalmayın"`)
	load(b, w, func() string {
		id := fmt.Sprintf("POS-%012d", number.Add(1))
		return head + fmt.Sprintf("X-Idempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s", id, len(body), strings.Replace(body, "POS-000000000000", id, 1))
	}, 201)
}

// BenchmarkRefuseOrder is the same for a body that breaks a rule.
func BenchmarkRefuseOrder(b *testing.B) {
	w, account := benchWorld(b)
	body := orderBody("POS-1", "recipient.phone", `"1"`)
	request := fmt.Sprintf("POST /api/vendor/v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		account.token, len(body), body)
	load(b, w, func() string { return request }, 422)
}

// BenchmarkNotFound is what HTTP itself costs.
func BenchmarkNotFound(b *testing.B) {
	w, _ := benchWorld(b)
	load(b, w, func() string { return "GET /x HTTP/1.1\r\nHost: x\r\n\r\n" }, 404)
}

func load(b *testing.B, w *world, next func() string, want int) {
	b.SetParallelism(32) // times the cores
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.vendor, "http://"))
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		for pb.Next() {
			if _, err := io.WriteString(conn, next()); err != nil {
				b.Error(err)
				return
			}
			if got := discardResponse(r); got != want {
				b.Errorf("got %d", got)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// discardResponse reads one response and returns its status; 0 for a broken one.
func discardResponse(r *bufio.Reader) int {
	status, length := 0, 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0
		}
		switch {
		case len(line) == 2:
			if _, err := r.Discard(length); err != nil {
				return 0
			}
			return status
		case status == 0 && len(line) > 12:
			status = int(line[9]-'0')*100 + int(line[10]-'0')*10 + int(line[11]-'0')
		case strings.HasPrefix(string(line), "Content-Length: "):
			length = atoi(string(line[16 : len(line)-2]))
		}
	}
}

func benchWorld(b *testing.B) (*world, party) {
	b.Helper()
	s := testSettings(b)
	redis, err := stack.StartRedis(b.Context(), stack.RedisOptions{Dir: b.TempDir(), Unix: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(redis.Stop)
	s.Redis.URL, s.Redis.PoolSize = redis.URL, 64
	w := startGateway(b, s, testSecrets())
	w.awaitReady()
	account := w.newAccount(`{"orders":{"sustained":{"count":1000000,"seconds":60},"burst":{"count":1000000,"seconds":10}}}`)
	w.activeStore(account, w.newFleet("Kurye", istanbul), "s1")
	return w, account
}
