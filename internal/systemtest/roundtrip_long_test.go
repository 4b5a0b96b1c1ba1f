//go:build long

package systemtest

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
)

// Accepting an order is one client command. What the gateway sends at rest (it
// watches the fleets) is known from a quiet time and left out.
func TestCreateOrder_IsOneRedisCommand(t *testing.T) {
	t.Parallel()
	s := start(t, stack.Options{Courier: "manual"})
	v := newHouse(t, s).vendor(t, raised)
	v.create(t, nil) // whatever is done only once is done
	s.Worker.Stop()  // its feeds would be in the way

	m := newMonitor(t, s.Redis)
	time.Sleep(2 * time.Second) // the quiet time
	quiet := map[string]bool{}
	for _, command := range m.take(t) {
		quiet[command] = true
	}
	const orders = 250
	for range orders {
		v.create(t, nil)
	}
	var sent []string
	for _, command := range m.take(t) {
		// A connection that joins the pool greets once, whatever it carries, and
		// every ten seconds a gateway adds up the minute.
		if !quiet[command] && !strings.HasPrefix(command, `"hello"`) && !countsMinutes.MatchString(command) {
			sent = append(sent, command)
		}
	}
	if len(sent) != orders {
		t.Errorf("%d commands for %d orders; quiet: %v; sent:\n%.2000s", len(sent), orders, quiet, strings.Join(sent, "\n"))
	}
	for _, command := range sent {
		if !strings.HasPrefix(command, `"fcall"`) {
			t.Errorf("not a script: %.200s", command)
		}
	}
}

// countsMinutes are the scripts that add up what happened in a minute.
var countsMinutes = regexp.MustCompile(`^"fcall" "count_(minutes|activity)_`)

// monitor is a connection that sees every command that Redis is sent.
type monitor struct {
	watch, speak net.Conn
	lines        *bufio.Reader
	marks        int
}

func newMonitor(t *testing.T, server *stack.Redis) *monitor {
	t.Helper()
	m := &monitor{}
	for _, conn := range []*net.Conn{&m.watch, &m.speak} {
		c, err := server.Dial(t.Context())
		must(t, err)
		t.Cleanup(func() { c.Close() })
		*conn = c
	}
	_, err := fmt.Fprint(m.watch, "MONITOR\r\n")
	must(t, err)
	m.lines = bufio.NewReader(m.watch)
	if _, err := m.lines.ReadString('\n'); err != nil { // +OK
		t.Fatal(err)
	}
	return m
}

// take returns the commands that connections have sent since the last call,
// without those that ran inside scripts. A command of its own marks the end.
func (m *monitor) take(t *testing.T) (commands []string) {
	t.Helper()
	m.marks++
	mark := fmt.Sprintf("mark-%d", m.marks)
	_, err := fmt.Fprintf(m.speak, "ECHO %s\r\n", mark)
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
