//go:build long

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// What letWait puts into Redis is what a worker would have left there: when the receivers are back, each event arrives.
func TestLetWait_LeavesWhatIsDelivered(t *testing.T) {
	t.Parallel()

	const accounts, events = 2 * partitionCount, 10
	b := &bench{dir: t.TempDir(), out: io.Discard, options: options{short: true}}
	err := stack.Build(t.Context(), filepath.Join(b.dir, "bin"), "gateway", "worker")
	if err != nil {
		t.Fatal(err)
	}

	use := func(ctx context.Context, e *receiversEnv) {
		for i := range e.workers {
			e.stop(i)
		}

		r := e.book.addReceivers(ctx, accounts, false)
		defer r.stop()
		e.book.letWait(ctx, r, events)
		for _, v := range r.vendors {
			endpoint := got(e.book.Webhooks.Endpoint(ctx, v.account))
			if endpoint.Backlog != events || !endpoint.BreakerOpen {
				t.Errorf("before: %+v", endpoint)
			}
		}

		r.dead.Store(false)
		e.startBoth(ctx)
		testserver.Await(t, "every event is delivered", func() bool {
			for _, v := range r.vendors {
				endpoint := got(e.book.Webhooks.Endpoint(ctx, v.account))
				if endpoint.Backlog > 0 || endpoint.Delivered < events {
					return false
				}
			}
			return true
		})

		for _, v := range r.vendors {
			endpoint := got(e.book.Webhooks.Endpoint(ctx, v.account))
			if endpoint.Delivered != events || endpoint.Undelivered+endpoint.NotSent != 0 {
				t.Errorf("after: %+v", endpoint)
			}
		}
	}

	err = caught(func() { b.withTwoWorkers(t.Context(), "waiting", use) })
	if err != nil {
		t.Fatal(err)
	}
}

// A receiver answers until it is dead; then a silent one leaves the request without an answer and the connection open.
func TestReceivers_AreSilentOnceTheyAreDead(t *testing.T) {
	t.Parallel()

	r := &receivers{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	r.stop = serveHTTP(listener, r.serve)
	defer r.stop()
	ask := func(path string) (answer string, open bool) {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()

		_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // so that silence ends
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", path)
		buffer := make([]byte, len("HTTP/1.1 204"))
		n, err := io.ReadFull(conn, buffer)
		failure, isNet := err.(net.Error)

		return string(buffer[:n]), isNet && failure.Timeout()
	}

	for _, path := range []string{silentPath, failsPath} {
		answer, _ := ask(path + "1")
		if answer != "HTTP/1.1 204" {
			t.Errorf("alive, %s: %q", path, answer)
		}
	}

	r.dead.Store(true)
	answer, _ := ask(failsPath + "1")
	if answer != "HTTP/1.1 500" {
		t.Errorf("dead: %q", answer)
	}

	answer, open := ask(silentPath + "1")
	if answer != "" || !open {
		t.Errorf("silent: %q, open: %v", answer, open)
	}
}

// Whatever order webhooks come in, each counts once.
func TestTraffic_CountsWhatArrives(t *testing.T) {
	t.Parallel()

	start := time.Now().Add(-time.Minute)
	table := timetable{start: start, rate: 1, orders: 2, every: 1}
	traffic := &traffic{timetable: table, batch: 7, partitions: []int{3, 5}, orders: make([]carried, 2)}
	traffic.orders[0].reported, traffic.orders[1].reported = 3, 2
	arrive := func(batch, order int, status string, at time.Time) {
		body := fmt.Appendf(nil, `{"data":{"externalOrderId":"POS-%016d","status":"%s"}}`, batch*ordersPerBatch+order, status)
		err := traffic.seen(body, at)
		if err != nil {
			t.Error(err)
		}
	}

	second := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	arrive(7, 0, "PickingUp", second(10))
	arrive(7, 0, "Assigned", second(14))
	arrive(7, 0, "Assigned", second(15)) // again
	arrive(7, 1, "Assigned", second(12))
	arrive(6, 1, "Delivered", second(15)) // again, of an earlier traffic
	arrive(7, 2, "Assigned", second(15))  // of no order
	arrive(7, 1, "Searching", second(15)) // of no webhook
	if got, want := traffic.counts(), (counts{Expected: 5, Received: 3, Duplicates: 2, Invalid: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}

	// Of partition 3 something arrives at 10 and 14, of partition 5 at 12.
	if gap := traffic.longestGap(span{second(9), second(15)}); gap != 4*time.Second {
		t.Errorf("gap %v", gap)
	}

	all := traffic.arrivals(span{second(9), second(13)})
	if want := map[int][]time.Time{3: {second(10)}, 5: {second(12)}}; !maps.EqualFunc(all, want, slices.Equal) {
		t.Errorf("arrived: %v", all)
	}

	// What has not arrived waits until now.
	if found := traffic.receipts(span{start, start.Add(time.Minute)}); len(found) != 5 {
		t.Errorf("%d receipts", len(found))
	}
}
