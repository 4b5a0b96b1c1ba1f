//go:build long

package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// serve returns the host:port of a server in this process.
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

// Every request that was due while a server stands still is counted with its delay.
// Only one was in flight: a generator that counts from the writing would report one.
func TestOpenLoop_CountsWhatAStallDelays(t *testing.T) {
	t.Parallel()

	const rate, stall = 200, 500 * time.Millisecond
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/0" {
			time.Sleep(stall) // the server's work, which begins at the first instant
		}
		answerOK(w, r)
	})

	r, err := OpenLoop(t.Context(), Load{
		Addrs: []string{addr}, Connections: 1, Rate: rate, Duration: time.Second, Request: get, Want: 200,
	})
	if err != nil {
		t.Fatal(err)
	}

	if r.Answered != 200 || r.Unexpected != 0 || r.Latency.TotalCount() != 200 {
		t.Fatalf("%+v", r)
	}

	// Request n is due n/200 s after the first and answered after the stall; other
	// work on this machine can only add to it. The histogram rounds.
	for percent, least := range map[float64]time.Duration{75: stall - 250*time.Millisecond, 60: stall - 400*time.Millisecond} {
		if got := time.Duration(r.Latency.ValueAtQuantile(percent)) * time.Microsecond; got < least*9/10 {
			t.Errorf("the %v th percentile is %v, want %v", percent, got, least)
		}
	}
}

// The schedule depends on nothing that happens during the run.
func TestOpenLoop_ScheduleIsFixed(t *testing.T) {
	t.Parallel()

	start := time.Now()
	l := &Load{Rate: 2000}
	for n, want := range map[int]time.Duration{0: 0, 1: 500 * time.Microsecond, 2000: time.Second, 12_001: 6*time.Second + 500*time.Microsecond} {
		if got := l.at(start, n).Sub(start); got != want {
			t.Errorf("request %d is due at %v, want %v", n, got, want)
		}
	}
}

func TestOpenLoop_Refuses(t *testing.T) {
	t.Parallel()

	broken := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	})

	good := Load{Addrs: []string{broken}, Connections: 2, Rate: 100, Duration: 100 * time.Millisecond, Request: get, Want: 200}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	nobody.Close()
	for name, change := range map[string]func(*Load){
		"a broken connection": func(*Load) {},
		"nobody listening":    func(o *Load) { o.Addrs = []string{nobody.Addr().String()} },
	} {
		o := good
		change(&o)
		if _, err := OpenLoop(t.Context(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	good.Addrs = []string{serve(t, answerOK)}
	if _, err := OpenLoop(ctx, good); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestClosedLoop_KeepsEveryConnectionBusy(t *testing.T) {
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

	r, err := ClosedLoop(t.Context(), Load{
		Addrs:       []string{serve(t, counting(&first)), serve(t, counting(&second))},
		Connections: 4, Duration: 200 * time.Millisecond, Request: get, Want: 200,
	})
	if err == nil || !strings.Contains(err.Error(), "418 seven") {
		t.Fatalf("error %v", err)
	}

	if first.Load() == 0 || second.Load() == 0 || int(first.Load()+second.Load()) != r.Answered || int64(r.Answered) != r.Latency.TotalCount() {
		t.Errorf("%d and %d requests, result %+v", first.Load(), second.Load(), r)
	}

	// Each number is used once, so every tenth ends in 7.
	if tenth := r.Answered / 10; r.Unexpected < tenth || r.Unexpected > tenth+1 {
		t.Errorf("%d of %d answers were unexpected", r.Unexpected, r.Answered)
	}
}

func TestClosedLoop_EndsWithItsContext(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	addr := serve(t, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		answerOK(w, r)
	})

	_, err := ClosedLoop(ctx, Load{Addrs: []string{addr}, Connections: 2, Duration: time.Minute, Request: get, Want: 200})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestConn_ReadsAnswers(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		said, body string
		refused    bool
	}{
		{"HTTP/1.1 201 Created\r\nContent-Length: 3\r\n\r\nabc", "abc", false},
		{"HTTP/1.1 200 OK\r\ncontent-length:  0\r\nX: y\r\n\r\n", "", false},
		{"HTTP/1.1 204 No Content\r\n\r\n", "", false},
		{"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "", true},
		{"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n", "", true},
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "", true},
		{"SSH-2.0-OpenSSH\r\n", "", true},
		{"", "", true},
	} {
		near, far := net.Pipe()
		conn := newConn(near)
		go func() {
			defer far.Close()
			_, _ = far.Read(make([]byte, 100)) // the request
			fmt.Fprint(far, c.said)
		}()

		a, err := conn.Exchange([]byte("GET / HTTP/1.1\r\n\r\n"))
		conn.Close()
		switch {
		case !c.refused && (err != nil || string(a.Body) != c.body || a.Size != len(c.said)):
			t.Errorf("%q: %+v, %v", c.said, a, err)
		case c.refused && err == nil:
			t.Errorf("%q: %+v", c.said, a)
		}
	}
}
