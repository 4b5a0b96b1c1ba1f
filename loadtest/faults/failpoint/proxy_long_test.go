//go:build long

package failpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
)

// lineServer answers every line with "re " and the line, and keeps what it was
// sent.
type lineServer struct {
	addr string
	mu   sync.Mutex
	got  strings.Builder
}

// Write keeps what has been read.
func (s *lineServer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(p)
}

func (s *lineServer) saw() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

// await returns when the server has seen exactly that.
func (s *lineServer) await(t *testing.T, want string) {
	t.Helper()
	testserver.Await(t, fmt.Sprintf("the server has %q", want), func() bool { return s.saw() == want })
}

func newLineServer(t *testing.T) *lineServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { l.Close() })
	s := &lineServer{addr: l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()

	return s
}

func (s *lineServer) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(io.TeeReader(conn, s))
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, "re "+line); err != nil {
			return
		}
	}
}

func newProxyTo(t *testing.T, s *lineServer) *Proxy {
	p, err := NewProxy(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Refuse)
	return p
}

// caller is a program on the near side of a proxy.
type caller struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *caller {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &caller{t, conn, bufio.NewReader(conn)}
}

func (c *caller) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatal(err)
	}
}

func (c *caller) expect(want string) {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(testserver.Timeout))
	if got, err := c.in.ReadString('\n'); got != want || err != nil {
		c.t.Fatalf("%q, %v, want %q", got, err, want)
	}
}

// expectNothing fails unless the connection ends without another answer.
func (c *caller) expectNothing() {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(testserver.Timeout))
	if got, err := c.in.ReadString('\n'); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("%q, %v, want the end of the connection", got, err)
	}
}

func TestTrap_LosesWhatItsMomentSays(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		moment Moment
		server string // what it has seen in the end, besides both hellos
	}{
		{Before, ""}, {Within, "do thi"}, {After, "do this now\n"},
	} {
		t.Run(string(c.moment), func(t *testing.T) {
			t.Parallel()

			s := newLineServer(t)
			p := newProxyTo(t, s)
			program, neighbour := dial(t, p), dial(t, p)
			for _, c := range []*caller{program, neighbour} { // before that, the proxy may not have them yet
				c.send("hello\n")
				c.expect("re hello\n")
			}

			trap := p.Set("do this", c.moment)
			program.send("do this now\n")
			if err := trap.Await(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := trap.Release(); err != nil {
				t.Fatal(err)
			}

			s.await(t, "hello\nhello\n"+c.server)
			program.expectNothing()
			neighbour.expectNothing()
			fresh := dial(t, p)
			fresh.send("do this again\n")
			fresh.expect("re do this again\n")
		})
	}
}

func TestTrap_MarkerAcrossTwoWrites(t *testing.T) {
	t.Parallel()

	s := newLineServer(t)
	p := newProxyTo(t, s)
	program := dial(t, p)
	trap := p.Set("create_order_", Before)
	program.send("fcall create_")
	s.await(t, "fcall create_")
	program.send("order_1234\n")
	if err := trap.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTrap_LateArrivesAfterItsSenderHasLeft(t *testing.T) {
	t.Parallel()

	s := newLineServer(t)
	p := newProxyTo(t, s)
	program, neighbour := dial(t, p), dial(t, p)
	trap := p.Set("late", Late)
	program.send("late\n")
	if err := trap.Await(t.Context()); err != nil {
		t.Fatal(err)
	}

	program.conn.Close()
	neighbour.send("hello\n")
	neighbour.expect("re hello\n")
	s.await(t, "hello\nlate\n")
}

func TestTrap_GivesUp(t *testing.T) {
	t.Parallel()

	p := newProxyTo(t, newLineServer(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Set("never", After).Await(ctx); err == nil || !strings.Contains(err.Error(), "never") {
		t.Errorf("%v", err)
	}

	program := dial(t, p)
	program.send("never\n")
	program.expect("re never\n")
}

// A trap that another fault removes, by healing or with its own trap, ends the wait.
func TestTrap_Removed(t *testing.T) {
	t.Parallel()

	p := newProxyTo(t, newLineServer(t))
	for name, remove := range map[string]func(){
		"by healing": func() {
			if err := p.Heal(); err != nil {
				t.Error(err)
			}
		},
		"by another trap": func() { p.Set("something else", Before) },
	} {
		trap := p.Set("never comes", Before)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		remove()
		if err := trap.Await(over); err == nil {
			t.Errorf("%s: Await returned as if a request had gone by", name)
		}
		if err := trap.Await(t.Context()); !errors.Is(err, ErrRemoved) {
			t.Errorf("%s: %v, want ErrRemoved", name, err)
		}
	}
}

func TestProxy_DamagesAndHeals(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		damage  func(*Proxy)
		arrives string // what the server has of what was sent meanwhile
	}{
		"refuse":  {(*Proxy).Refuse, ""},
		"swallow": {(*Proxy).Swallow, ""},
		"mute":    {(*Proxy).Mute, "two\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := newLineServer(t)
			p := newProxyTo(t, s)
			program := dial(t, p)
			program.send("one\n")
			program.expect("re one\n")
			c.damage(p)
			_, _ = io.WriteString(program.conn, "two\n") // the connection may be gone
			s.await(t, "one\n"+c.arrives)
			if err := p.Heal(); err != nil {
				t.Fatal(err)
			}

			program.expectNothing()
			fresh := dial(t, p)
			fresh.send("three\n")
			fresh.expect("re three\n")
			s.await(t, "one\n"+c.arrives+"three\n")
		})
	}
}

// A slow or partitioned proxy works again after Heal, however much traffic it has.
func TestProxy_HealsUnderTraffic(t *testing.T) {
	t.Parallel()

	p := newProxyTo(t, newLineServer(t))
	for _, damage := range []func(){func() { p.Delay(100*time.Millisecond, 50*time.Millisecond) }, p.Swallow, p.Mute} {
		damage()
		for range 20 {
			busy := dial(t, p)
			for range 50 {
				_, _ = io.WriteString(busy.conn, "more\n") // the answers are not read
			}
		}

		if err := p.Heal(); err != nil {
			t.Fatal(err)
		}

		fresh := dial(t, p)
		fresh.send("two\n")
		fresh.expect("re two\n")
	}
}

func TestProxy_Delays(t *testing.T) {
	t.Parallel()

	p := newProxyTo(t, newLineServer(t))
	p.Delay(200*time.Millisecond, 0)
	program, began := dial(t, p), time.Now()
	program.send("one\n")
	program.expect("re one\n")
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("answered after %s", took)
	}
	if err := p.Heal(); err != nil {
		t.Fatal(err)
	}

	fresh := dial(t, p)
	fresh.send("two\n")
	fresh.expect("re two\n")
}
