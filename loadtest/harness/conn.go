package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// maxAnswer bounds an answer's body, in bytes. The largest one of the service,
// a page of jobs, is below 200 kB.
const maxAnswer = 1 << 20

// Conn is one keep-alive connection. One goroutine may send while another
// receives.
type Conn struct {
	conn   net.Conn
	reader *bufio.Reader
	body   []byte
}

// Dial connects to addr (host:port). Everything on the connection fails after
// deadline.
func Dial(ctx context.Context, addr string, deadline time.Time) (*Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &Conn{conn: conn, reader: newReader(conn)}, nil
}

func newReader(conn net.Conn) *bufio.Reader { return bufio.NewReaderSize(conn, 4<<10) }

// Close ends the connection; a Receive under way fails.
func (c *Conn) Close() { c.conn.Close() }

// Send writes one whole request.
func (c *Conn) Send(request []byte) error {
	_, err := c.conn.Write(request)
	return err
}

// Answer is what came back. Body is valid until the next Receive; Size is the
// answer's length in bytes, head and body; RetryAfter is the header of that name
// in seconds, 0 when absent or a date; Close: no further request is answered on
// this connection.
type Answer struct {
	Status     int
	Body       []byte
	Size       int
	RetryAfter int
	Close      bool
}

// Receive reads one answer. An answer without a Content-Length is an error,
// because its end could not be told.
func (c *Conn) Receive() (Answer, error) {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return Answer{}, fmt.Errorf("read an answer: %w", err)
	}
	a := Answer{Size: len(line)}
	if a.Status, err = parseStatus(line); err != nil {
		return Answer{}, err
	}
	length := -1
	for {
		if line, err = c.reader.ReadSlice('\n'); err != nil {
			return Answer{}, fmt.Errorf("read an answer's headers: %w", err)
		}
		a.Size += len(line)
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch value = bytes.TrimSpace(value); {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 || length > maxAnswer {
				return Answer{}, fmt.Errorf("an answer has the Content-Length %q", value)
			}
		case bytes.EqualFold(name, []byte("Retry-After")):
			a.RetryAfter, _ = strconv.Atoi(string(value))
		case bytes.EqualFold(name, []byte("Connection")):
			a.Close = bytes.EqualFold(value, []byte("close"))
		}
	}
	if length < 0 && a.Status != 204 {
		return Answer{}, fmt.Errorf("an answer %d has no Content-Length", a.Status)
	}
	a.Body, err = c.read(max(length, 0))
	a.Size += len(a.Body)
	return a, err
}

// parseStatus reads "HTTP/1.1 201 Created".
func parseStatus(line []byte) (int, error) {
	if !bytes.HasPrefix(line, []byte("HTTP/1.")) || len(line) < 12 {
		return 0, fmt.Errorf("an answer begins with %q", line)
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return 0, fmt.Errorf("an answer begins with %q", line)
	}
	return status, nil
}

func (c *Conn) read(n int) ([]byte, error) {
	if cap(c.body) < n {
		c.body = make([]byte, n)
	}
	c.body = c.body[:n]
	if _, err := io.ReadFull(c.reader, c.body); err != nil {
		return nil, fmt.Errorf("read an answer's body: %w", err)
	}
	return c.body, nil
}

// Exchange sends a request and reads its answer.
func (c *Conn) Exchange(request []byte) (Answer, error) {
	if err := c.Send(request); err != nil {
		return Answer{}, err
	}
	return c.Receive()
}
