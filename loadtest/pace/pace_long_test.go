//go:build long

package pace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// serve is a server in this process; the result is its host:port.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func answerOK(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }

func get(dst []byte, n int) []byte {
	return fmt.Appendf(dst, "GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", n)
}

// A server that stands still for 100 ms delays the 50 requests that were due
// meanwhile, 5 % of all, so that the 99th percentile shows it. Only 4 of them
// were under way: a generator that counts from the writing sees 0.4 %.
func TestOpen_CountsWhatAStallDelays(t *testing.T) {
	t.Parallel()
	const stall = 100 * time.Millisecond
	var (
		door    sync.RWMutex // held while the server stands still
		answers atomic.Int64
	)
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if answers.Add(1) == 400 {
			door.Lock()
			time.Sleep(stall)
			door.Unlock()
		}
		door.RLock()
		defer door.RUnlock()
		answerOK(w, r)
	})
	r, err := Open(t.Context(), Options{
		Addrs: []string{addr}, Connections: 4, Rate: 500, Duration: 2 * time.Second, Request: get, Want: 200,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Answered != 1000 || r.Strange != 0 || r.Latency.TotalCount() != 1000 || r.Lateness.TotalCount() != 1000 {
		t.Fatalf("%+v", r)
	}
	// The delays of those 50 fall evenly from 100 ms to 0, so the 99th percentile
	// is at 80 ms; other work on this machine can only add to it.
	micros := stall.Microseconds()
	if p99 := r.Latency.ValueAtQuantile(99); p99 < micros*7/10 {
		t.Errorf("the 99th percentile is %d us, the stall was %d us", p99, micros)
	}
	if p50 := r.Latency.ValueAtQuantile(50); p50 > micros/2 {
		t.Errorf("the median is %d us", p50)
	}
}

// The schedule depends on nothing that happens during the run.
func TestOpen_ScheduleIsFixed(t *testing.T) {
	t.Parallel()
	start := time.Now()
	l := openLoop{o: &Options{Rate: 2000}, start: start}
	for n, want := range map[int]time.Duration{0: 0, 1: 500 * time.Microsecond, 2000: time.Second, 12_001: 6*time.Second + 500*time.Microsecond} {
		if got := l.due(n).Sub(start); got != want {
			t.Errorf("request %d is due at %v, want %v", n, got, want)
		}
	}
}

// A server that is too slow for the rate does not slow the schedule down: the
// wait grows, and the run takes as long as the server needs.
func TestOpen_OverloadGrowsTheWait(t *testing.T) {
	t.Parallel()
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		answerOK(w, r)
	})
	r, err := Open(t.Context(), Options{
		Addrs: []string{addr}, Connections: 1, Rate: 100, Duration: 500 * time.Millisecond, Request: get, Want: 200,
	})
	if err != nil {
		t.Fatal(err)
	}
	// 50 requests of 20 ms one after the other: the last, due at 490 ms, is
	// answered at 1 s or later.
	if longest := r.Latency.Max(); longest < 500_000 {
		t.Errorf("the longest wait is %d us", longest)
	}
	if r.Elapsed < time.Second || r.PerSecond() > 50 {
		t.Errorf("took %v, %.1f/s", r.Elapsed, r.PerSecond())
	}
}

func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	broken := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	good := Options{Addrs: []string{broken}, Connections: 2, Rate: 100, Duration: 100 * time.Millisecond, Request: get, Want: 200}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	for name, change := range map[string]func(*Options){
		"a broken connection": func(*Options) {},
		"nobody listening":    func(o *Options) { o.Addrs = []string{nobody.Addr().String()} },
		"no rate":             func(o *Options) { o.Rate = 0 },
		"no connections":      func(o *Options) { o.Connections = 0 },
		"no address":          func(o *Options) { o.Addrs = nil },
	} {
		o := good
		change(&o)
		if _, err := Open(t.Context(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	good.Addrs = []string{serve(t, answerOK)}
	if _, err := Open(ctx, good); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestClosed_KeepsEveryConnectionBusy(t *testing.T) {
	t.Parallel()
	var first, second atomic.Int64
	counting := func(n *atomic.Int64) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			if strings.HasSuffix(r.URL.Path, "7") {
				http.Error(w, "seven", http.StatusTeapot)
				return
			}
			answerOK(w, r)
		}
	}
	r, err := Closed(t.Context(), Options{
		Addrs:       []string{serve(t, counting(&first)), serve(t, counting(&second))},
		Connections: 4, Duration: 200 * time.Millisecond, Request: get, Want: 200,
	})
	if err != nil {
		t.Fatal(err)
	}
	if first.Load() == 0 || second.Load() == 0 || int(first.Load()+second.Load()) != r.Answered || int64(r.Answered) != r.Latency.TotalCount() {
		t.Errorf("%d and %d requests, result %+v", first.Load(), second.Load(), r)
	}
	// Each number is used once, so every tenth ends in 7.
	if tenth := r.Answered / 10; r.Strange < tenth || r.Strange > tenth+1 {
		t.Errorf("%d of %d answers were strange", r.Strange, r.Answered)
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "418 seven") {
		t.Errorf("Err: %v", err)
	}
}

func TestClosed_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Closed(ctx, Options{Addrs: []string{serve(t, answerOK)}, Connections: 2, Duration: time.Minute, Request: get, Want: 200})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestConn_ReadsAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ said, body, fault string }{
		{"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc", "abc", ""},
		{"HTTP/1.1 200 OK\r\ncontent-length:  0\r\nX: y\r\n\r\n", "", ""},
		{"HTTP/1.1 204 No Content\r\n\r\n", "", ""},
		{"HTTP/1.1 200 OK\r\n\r\n", "", "no Content-Length"},
		{"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "", "Content-Length"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n", "", "Content-Length"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "", "body"},
		{"SSH-2.0-OpenSSH\r\n", "", "begins with"},
		{"", "", "EOF"},
	} {
		ours, theirs := net.Pipe()
		conn := &Conn{conn: ours, reader: newReader(ours)}
		go func() {
			defer theirs.Close()
			fmt.Fprint(theirs, c.said)
		}()
		a, err := conn.Receive()
		conn.Close()
		switch {
		case c.fault == "" && (err != nil || string(a.Body) != c.body || a.Size != len(c.said)):
			t.Errorf("%q: %+v, %v", c.said, a, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%q: error %v, want %q", c.said, err, c.fault)
		}
	}
}
