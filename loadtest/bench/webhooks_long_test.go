//go:build long

package main

import (
	"bufio"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/webhook"
	"vendorapi/loadtest/harness"
)

const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// post sends one webhook to an endpoint as the worker would.
func post(t *testing.T, e *endpoint, key, event, eventID, body string) (status string) {
	t.Helper()
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	head := "POST /hook HTTP/1.1\r\nHost: " + e.addr + "\r\nX-Service-Event: " + event + "\r\nWebhook-Id: " + eventID +
		"\r\nX-Service-Signature: " + webhook.Sign(key, []byte(body)) + "\r\n"
	if _, err := conn.Write([]byte(head + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)); err != nil {
		t.Fatal(err)
	}

	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "none"
	}

	return strings.Fields(line)[1]
}

func newTestEndpoint(t *testing.T, how behaviour) *endpoint {
	t.Helper()
	e := newEndpoint(stack.FreeAddr(), how, new(atomic.Int64))
	e.secret = secret
	if err := e.listen(); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEndpoint_CountsWhatItCanVerify(t *testing.T) {
	t.Parallel()

	e := newTestEndpoint(t, answers)
	defer e.close()
	order := delivery.MakeOrderID(3, 20000, [delivery.OrderDigestSize]byte{1})
	id := func(version uint64) string { return delivery.EventID(order, version) }
	body := func(id string) string { return `{"eventId":"` + id + `","event":"delivery.status_changed"}` }
	now := time.Now()
	e.expect(change{order, 2}, now, now)
	e.expect(change{order, 3}, now.Add(-deliveryWindow-time.Second), now)
	e.expect(change{order, 4}, now.Add(-deliveryWindow-time.Second), now)
	const changed = "delivery.status_changed"
	for _, c := range []struct{ name, key, event, id, body, want string }{
		{"first", secret, changed, id(2), body(id(2)), "204"},
		{"again", secret, changed, id(2), body(id(2)), "204"},
		{"past its deadline", secret, changed, id(3), body(id(3)), "204"},
		{"another key", secret + "x", changed, id(2), body(id(2)), "401"},
		{"about another event than the header says", secret, changed, id(2), body(id(3)), "401"},
		{"an id that only begins alike", secret, changed, id(2)[:20], body(id(2)), "401"},
		{"never happened", secret, changed, id(9), body(id(9)), "204"},
		{"ping", secret, "webhook.test", "evt_ping", body("evt_ping"), "204"},
	} {
		if got := post(t, e, c.key, c.event, c.id, c.body); got != c.want {
			t.Errorf("%s: answered %s", c.name, got)
		}
	}

	want := counts{Expected: 3, Received: 2, Expired: 1, Duplicates: 1, Late: 1, Invalid: 4}
	if got := sumOf(&vendor{endpoint: e}); got != want || e.received.Load() != 2 {
		t.Errorf("%+v, want %+v; %d counted", got, want, e.received.Load())
	}
	if receipts := receiptsOf(now, &vendor{endpoint: e}); len(receipts) != 2 {
		t.Errorf("receipts %v", receipts)
	}
}

func TestEndpoint_SilentAnswersNothingAndEnds(t *testing.T) {
	t.Parallel()

	e := newTestEndpoint(t, silent)
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	if _, err := conn.Write([]byte("POST /hook HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a silent endpoint answers")
	}

	conn.Close()
	e.close()
	if _, err := net.Dial("tcp", e.addr); err == nil || sumOf(&vendor{endpoint: e}) != (counts{}) {
		t.Errorf("a closed endpoint takes connections, or counted %+v", sumOf(&vendor{endpoint: e}))
	}
}

func TestCalmest_IsChosenByWhatOthersTook(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name      string
		disturbed []float64 // round by round
		want      []float64
	}{
		{"calm", []float64{0.1, 0, 0.5}, []float64{1, 0, 2}},
		{"one disturbed", []float64{0.1, 1, 0.2, 0.05}, []float64{3, 0, 2}},
		{"all but one disturbed", []float64{1, 1, 0.2, 0.6}, []float64{2}},
		{"all disturbed", []float64{1, 0.9, 0.8, 0.7}, []float64{3, 2, 1}},
	} {
		measured := 0
		b := &bench{options: options{rounds: 3}, chosen: []measurement{{figures: []*figure{{Key: "n"}}}}}
		b.calmest(mostLeftOut, func(n int) round {
			measured++
			return round{figures: map[string]float64{"n": float64(n)}, disturbed: c.disturbed[n]}
		})

		if got := b.figure("n").Values; measured != len(c.disturbed) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v of %d", c.name, got, measured)
		}
	}
}

func TestTurn_LeavesOutWhatOthersDisturbed(t *testing.T) {
	t.Parallel()

	start := time.Now()
	var receipts []event
	for i := range 100 { // one every 100 ms, those about 3 s are slow
		took := 2 * time.Millisecond
		if i >= 30 && i <= 33 {
			took = 90 * time.Millisecond
		}
		issued := start.Add(time.Duration(i) * 100 * time.Millisecond)
		receipts = append(receipts, event{issued: issued, receipts: []time.Time{issued.Add(took)}})
	}

	got, err := newTurn(receipts, noise{start.Add(3105 * time.Millisecond)})
	if err != nil || harness.Quantile(got.waits, 1) != 2 || len(got.waits) != 96 {
		t.Errorf("%v of %d, %v", got.leftOut, len(got.waits), err)
	}
	got, err = newTurn(receipts, nil)
	if err != nil || len(got.waits) != 100 || got.leftOut != 0 || got.p99() != 90 {
		t.Errorf("calm: %v, %v", got, err)
	}

	var always noise
	for i := range 110 {
		always = append(always, start.Add(time.Duration(i)*100*time.Millisecond))
	}

	got, err = newTurn(receipts, always)
	if err != nil || len(got.waits) != 100 || got.leftOut != 1 {
		t.Errorf("all disturbed: %v, %v", got, err)
	}
	_, err = newTurn(nil, nil)
	if err == nil {
		t.Error("nothing was received, and that is no error")
	}
}
