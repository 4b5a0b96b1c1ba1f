//go:build long

package systemtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/stack"
)

// A request that has begun when the gateway is told to end is answered, and
// what was answered is there afterwards. One story, told in order.
func TestGatewayShutdown_FinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	s := start(t, stack.Options{Courier: "manual"})
	v := newHouse(t, s).vendor(t, raised)

	body, err := json.Marshal(v.order(nil))
	must(t, err)
	slow := v.beginRequest(t, s, body[:20], len(body))
	// Meanwhile others order as fast as they can, until nobody answers.
	var mu sync.Mutex
	answered := map[string]string{} // idempotency key -> answer
	bodies := map[string][]byte{}
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("c%d-%d", client, i)
				b, err := json.Marshal(v.order(nil))
				if err != nil {
					t.Error(err)
					return
				}
				a, err := v.Do(t.Context(), http.MethodPost, "/orders", b, "X-Idempotency-Key", key)
				if err != nil {
					return // the gateway is gone
				}
				if !a.OK() {
					t.Errorf("answered %s", a.Raw)
					return
				}
				mu.Lock()
				answered[key], bodies[key] = string(a.Raw), b
				mu.Unlock()
			}
		})
	}
	eventually(t, 10*time.Second, "orders flow", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(answered) > 200
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.Gateway.Stop()
	}()
	wg.Wait() // the listener is closed
	if _, err := slow.Write(body[20:]); err != nil {
		t.Fatalf("the request in flight was cut off: %v", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(slow), nil)
	if err != nil {
		t.Fatalf("the request in flight was not answered: %v", err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Errorf("the request in flight was answered %d", resp.StatusCode)
	}
	select {
	case <-stopped:
	case <-time.After(20 * time.Second):
		t.Fatal("the gateway does not end")
	}
	must(t, s.Gateway.Start(t.Context()))
	for key, want := range answered {
		a, err := v.Do(t.Context(), http.MethodPost, "/orders", bodies[key], "X-Idempotency-Key", key)
		must(t, err)
		if string(a.Raw) != want || a.Header.Get("Idempotent-Replayed") != "true" {
			t.Fatalf("order %s is not what was answered: %s, %s", key, a.Raw, want)
		}
	}
}

// beginRequest sends a creation's headers and the beginning of its body.
func (v *vendor) beginRequest(t *testing.T, s *stack.Stack, begin []byte, length int) net.Conn {
	t.Helper()
	host := strings.TrimPrefix(s.Demo.BaseURL, "http://")
	conn, err := net.Dial("tcp", host)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		host, v.Bearer, length, begin)
	must(t, err)
	return conn
}

// When one of the programs dies, the whole ends and says which and why.
func TestStack_EndsWhenAProgramDies(t *testing.T) {
	t.Parallel()
	s := start(t, stack.Options{})
	waited := make(chan error, 1)
	go func() { waited <- s.Wait(t.Context()) }()
	killFromOutside(t, s.Worker.PID())
	select {
	case err := <-waited:
		if err == nil || !strings.Contains(err.Error(), "worker ended: signal: killed") || !strings.Contains(err.Error(), "worker.log") {
			t.Errorf("Wait says: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nobody noticed that the worker died")
	}
}

func killFromOutside(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	must(t, err)
	must(t, p.Kill())
}

// A second run on the same data directory, and a port that is taken, are
// refused with a message that says what to do.
//
//rule:make-run/other-programs-on-the-machine
func TestStack_RefusesWhatIsTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, stack.Options{DataDir: dir})
	for name, c := range map[string]struct {
		o    stack.Options
		want []string
	}{
		"data directory": {stack.Options{DataDir: dir}, []string{"in use by another run", "DATA_DIR"}},
		"gateway port":   {stack.Options{DataDir: t.TempDir(), GatewayAddr: strings.TrimPrefix(s.Demo.BaseURL, "http://")}, []string{"address already in use", "GATEWAY_ADDR"}},
		"ops port":       {stack.Options{DataDir: t.TempDir(), OpsAddr: strings.TrimPrefix(s.Demo.OpsURL, "http://")}, []string{"address already in use", "OPS_ADDR"}},
		"panel port":     {stack.Options{DataDir: t.TempDir(), Reporting: true, PanelAddr: strings.TrimPrefix(s.Demo.BaseURL, "http://")}, []string{"address already in use", "PANEL_ADDR"}},
		"engine port":    {stack.Options{DataDir: t.TempDir(), Reporting: true, ClickHouseAddr: strings.TrimPrefix(s.Demo.BaseURL, "http://")}, []string{"address already in use", "CLICKHOUSE_ADDR"}},
		"nothing":        {stack.Options{}, []string{"no data directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.BinDir = binaries
			second, err := stack.Start(t.Context(), c.o)
			if err == nil {
				second.Stop()
				t.Fatal("started")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
		})
	}
}
