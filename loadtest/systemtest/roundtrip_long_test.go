//go:build long

package systemtest

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
)

// Accepting an order is one client command: beside it there is nothing that grows
// with the orders.
func TestCreateOrder_IsOneRedisCommand(t *testing.T) {
	t.Parallel()

	s := startStack(t, stack.Options{Courier: "manual"})
	v := s.Vendor(t, stack.Unlimited)
	v.Create(t, nil) // whatever is done only once is done
	s.Worker.Stop()  // its feeds would be in the way
	m := newMonitor(t, s.Redis)
	const orders = 250
	for range orders {
		v.Create(t, nil)
	}

	kinds := map[string]int{}
	for _, command := range m.take(t) {
		words := strings.Fields(command)
		kind := words[0]
		if kind == `"fcall"` {
			kind += words[1]
		}
		kinds[kind]++
	}

	created := 0
	for kind, n := range kinds {
		if strings.HasPrefix(kind, `"fcall""create_order`) {
			created += n
		} else if n >= orders/2 {
			t.Errorf("%d times %s for %d orders", n, kind, orders)
		}
	}

	if created != orders {
		t.Errorf("%d creations for %d orders: %v", created, orders, kinds)
	}
}

// monitor is a connection that sees every command that Redis is sent.
type monitor struct {
	watch, send net.Conn
	lines       *bufio.Reader
	marks       int
}

func newMonitor(t *testing.T, server *stack.Redis) *monitor {
	t.Helper()
	m := &monitor{}
	operator, err := url.Parse(server.URL)
	must(t, err)
	password, _ := operator.User.Password()
	for _, conn := range []*net.Conn{&m.watch, &m.send} {
		c, err := net.Dial("tcp", server.Addr)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		_, err = fmt.Fprintf(c, "AUTH %s %s\r\n", operator.User.Username(), password)
		must(t, err)
		*conn = c
	}

	_, err = fmt.Fprint(m.watch, "MONITOR\r\n")
	must(t, err)
	m.lines = bufio.NewReader(m.watch)
	for range 2 {
		if line, err := m.lines.ReadString('\n'); err != nil || line != "+OK\r\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}

	return m
}

// take returns the commands that connections have sent since the last call,
// without those that ran inside scripts. A command of its own marks the end.
func (m *monitor) take(t *testing.T) (commands []string) {
	t.Helper()
	m.marks++
	mark := fmt.Sprintf("mark-%d", m.marks)
	_, err := fmt.Fprintf(m.send, "ECHO %s\r\n", mark)
	must(t, err)
	must(t, m.watch.SetReadDeadline(time.Now().Add(time.Minute)))
	for {
		// +1700000000.123456 [0 127.0.0.1:5555] "fcall" "…"
		line, err := m.lines.ReadString('\n')
		must(t, err)
		_, rest, _ := strings.Cut(strings.TrimSpace(line), "[")
		source, command, _ := strings.Cut(rest, "] ")
		switch {
		case strings.Contains(command, `"`+mark+`"`):
			return commands
		case !strings.HasSuffix(source, " lua"):
			commands = append(commands, command)
		}
	}
}
