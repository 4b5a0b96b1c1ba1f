package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// connections is how many vendors' connections the load keeps open, each with
// one request at a time.
const connections = 64

// loadBody is an order as a point-of-sale sends it, with every field that an
// order has; the digits are replaced by the order's number.
const loadBody = `{"externalStoreId":"kadikoy-1","externalOrderId":"POS-000000000000","orderedAt":"2026-11-21T12:30:00+03:00",` +
	`"recipient":{"name":"Ayşe Yılmaz","phone":"05321234567"},` +
	`"dropoff":{"text":"Caferağa Mah. Moda Cad. No:12 D:5","latitude":40.98713,"longitude":29.02761,"buildingNo":"12","doorNo":"5","floor":"2"},` +
	`"packageNote":"Kapıya bırakın","orderAmount":349.90,"payment":{"type":"Card","collectionAmount":349.90}}`

// loadNumber is the place holder of the order's number.
const loadNumber = "000000000000"

// load is a set of vendors who send orders as fast as they are answered. It
// allocates nothing for a request, so that what a measurement counts is the
// server's.
type load struct {
	callers []*caller
	number  atomic.Int64 // of the last order
}

// caller is one connection. Its request is written once; only the order's
// number changes in it.
type caller struct {
	conn    net.Conn
	request []byte
	numbers [][]byte // the parts of request that hold the order's number
	want    int      // the status that every answer must have
	reply   [4096]byte
}

// newLoad connects to the server at addr; caller i carries the i-th token, and
// tokens are used in turn.
func newLoad(t testing.TB, addr string, want int, tokens []string) *load {
	t.Helper()
	l := new(load)
	for i := range connections {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = conn.Close() })
		// Bounds every read and write of the whole load.
		if err := conn.SetDeadline(time.Now().Add(10 * time.Minute)); err != nil {
			t.Fatal(err)
		}

		l.callers = append(l.callers, newCaller(conn, want, tokens[i%len(tokens)]))
	}

	return l
}

func newCaller(conn net.Conn, want int, token string) *caller {
	c := &caller{conn: conn, want: want}
	c.request = fmt.Appendf(nil, "POST /api/vendor/v1/orders HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: pos/4.2\r\nAccept: application/json\r\n"+
		"Authorization: Bearer %s\r\nContent-Type: application/json\r\nX-Idempotency-Key: POS-%s\r\nContent-Length: %d\r\n\r\n%s",
		token, loadNumber, len(loadBody), loadBody)
	for rest := c.request; ; {
		at := bytes.Index(rest, []byte("POS-"+loadNumber))
		if at < 0 {
			return c
		}
		rest = rest[at+len("POS-"):]
		c.numbers = append(c.numbers, rest[:len(loadNumber)])
	}
}

// orders sends n orders over all connections and returns when every one is
// answered. began is called when everything is in place. An answer other than
// the wanted one ends its connection's share and is the error.
func (l *load) orders(n int, began func()) error {
	last := l.number.Load() + int64(n)
	start := make(chan struct{})
	faults := make([]error, len(l.callers))
	var calling sync.WaitGroup
	for i, c := range l.callers {
		calling.Go(func() {
			<-start
			for number := l.number.Add(1); number <= last; number = l.number.Add(1) {
				faults[i] = c.order(number)
				if faults[i] != nil {
					return
				}
			}
		})
	}

	began()
	close(start)
	calling.Wait()

	return errors.Join(faults...)
}

// order sends one order and reads its answer.
func (c *caller) order(number int64) error {
	for _, digits := range c.numbers {
		for i, rest := len(digits)-1, number; i >= 0; i, rest = i-1, rest/10 {
			digits[i] = '0' + byte(rest%10)
		}
	}

	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}

	read, whole := 0, 0
	for whole == 0 || read < whole {
		if read == len(c.reply) {
			return fmt.Errorf("the answer has more than %d bytes", read)
		}

		n, err := c.conn.Read(c.reply[read:])
		if err != nil {
			return err
		}

		read += n
		whole = wholeAnswer(c.reply[:read])
	}

	if status := statusOf(c.reply[:read]); status != c.want || read != whole {
		return fmt.Errorf("answered %d instead of %d: %s", status, c.want, c.reply[:read])
	}

	return nil
}

var (
	headerEnd    = []byte("\r\n\r\n")
	headerLength = []byte("\r\nContent-Length: ")
)

// wholeAnswer is the length of the answer that b begins with; 0 as long as its
// headers are not complete.
func wholeAnswer(b []byte) int {
	end := bytes.Index(b, headerEnd)
	if end < 0 {
		return 0
	}

	length := 0
	if at := bytes.Index(b[:end], headerLength); at >= 0 {
		for _, digit := range b[at+len(headerLength) : end] {
			if digit < '0' || digit > '9' {
				break
			}
			length = length*10 + int(digit-'0')
		}
	}

	return end + len(headerEnd) + length
}

// statusOf is the status of an answer that begins "HTTP/1.1 201".
func statusOf(b []byte) int {
	if len(b) < len("HTTP/1.1 201") {
		return 0
	}
	return int(b[9]-'0')*100 + int(b[10]-'0')*10 + int(b[11]-'0')
}
