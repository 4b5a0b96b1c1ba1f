package sender

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// readBuffer is how much of an answer is read at once.
const readBuffer = 4 << 10

// A connection of HTTP/1.1 carries one request after another. It has no goroutine: whoever has it writes its
// request, and reads the answer.
type connection struct {
	net.Conn
	reader *bufio.Reader // nil between requests: what is idle takes no room

	// below is what TLS reads from; nil without TLS. socket is of the TCP connection; nil for none, which
	// tests have.
	below  *below
	socket looker

	idleSince time.Time // while it is in the pool
}

// mayHoldRemains reports that something was received since the last answer, or that the receiver has closed the
// connection. What is read next is not the answer to a request that is written now.
func (c *connection) mayHoldRemains() bool {
	if c.below != nil && c.below.buffered() > 0 {
		return true
	}
	return c.socket != nil && c.socket.hasBytesWaiting()
}

// A looker tells whether something was received on a connection that nobody has read.
type looker interface{ hasBytesWaiting() bool }

// An outcome is what one request on one connection has come to.
type outcome struct {
	answer Answer // if it has a status
	err    error  // why there was no whole head of an answer; beside a status it counts only if the time is over

	statusAt time.Time // when the head was read; zero if it was not

	hasBegun  bool   // something has arrived
	beginning string // of what has arrived, if it has no status
	isKept    bool   // the connection can take another request
}

// roundTrip writes a request and reads its answer until the deadline. ctx ends it earlier.
func (c *connection) roundTrip(ctx context.Context, x *exchange, t *target, request Request, deadline time.Time) (o outcome) {
	c.reader = readerOf(c.Conn)
	defer func() {
		hasRemains := c.reader.Buffered() > 0 // behind the answer, for which nobody has asked
		if hasRemains {
			o.isKept = false
		}
		c.reader.Reset(nil)
		readers.Put(c.reader)
		c.reader = nil
	}()

	_ = c.SetDeadline(deadline)
	stopWatching := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		// If ctx has ended, its deadline may be set at any moment, also for the next request.
		if !stopWatching() {
			o.isKept = false
		}
	}()

	failedWrite := c.write(x, t, request)
	isUntouched := errors.Is(failedWrite, errNotBegun) || errors.Is(failedWrite, errInvalidHeader)
	if isUntouched {
		return outcome{err: failedWrite, isKept: true}
	}

	// A receiver may have answered, and have hung up, before it has read the whole request.
	var head answerHead
	for head.state != headOver && o.err == nil {
		o.err = head.readFrom(c.reader)
	}

	if failedWrite != nil && !isAlert(o.err) {
		o.err = failedWrite
	}

	status, retryAfter, beginning := head.answered()
	o.hasBegun, o.beginning = head.bytes > 0, beginning
	if status == 0 {
		if o.err == nil {
			o.err = errNoStatusLine
		}
		return o
	}

	o.answer = judged(status, retryAfter)
	if o.err != nil || head.isMalformed {
		return o
	}

	o.statusAt = time.Now()
	body, hasBody := c.body(&head)
	if !hasBody {
		o.isKept = !head.closes
		return o
	}

	end := o.statusAt.Add(answerTimeout)
	if end.Before(deadline) {
		_ = c.SetReadDeadline(end)
	}

	o.answer.Body = readAnswer(body)
	o.isKept = body.isWhole() && !head.closes

	return o
}

// readers are used by one request after another.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, readBuffer) }}

func readerOf(conn net.Conn) *bufio.Reader {
	reader := readers.Get().(*bufio.Reader)
	reader.Reset(conn)
	return reader
}

var (
	errNoStatusLine = errors.New("the answer has no status line")
	errHeadTooLong  = errors.New("the answer's header is too long")

	errInvalidHeader = errors.New("the request's header is invalid")
)

var requestBuffers = sync.Pool{New: func() any { return new([]byte) }}

// write writes the whole request at once.
func (c *connection) write(x *exchange, t *target, request Request) error {
	buffer := requestBuffers.Get().(*[]byte)
	defer requestBuffers.Put(buffer)
	text, err := appendRequest((*buffer)[:0], t, request)
	*buffer = text
	if err != nil {
		return err
	}

	if !x.mayBegin() {
		return errNotBegun
	}

	_, err = c.Write(text)

	return err
}

func appendRequest(text []byte, t *target, request Request) ([]byte, error) {
	text = append(text, t.method()...)
	text = append(text, ' ')
	text = append(text, t.path...)
	text = append(text, " HTTP/1.1\r\nHost: "...)
	text = append(text, t.host...)
	for name, values := range request.Header {
		for _, value := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
				return text, errInvalidHeader
			}
			text = append(text, "\r\n"...)
			text = append(text, name...)
			text = append(text, ": "...)
			text = append(text, value...)
		}
	}

	text = append(text, "\r\nContent-Length: "...)
	text = strconv.AppendInt(text, int64(len(request.Body)), 10)
	text = append(text, "\r\n\r\n"...)

	return append(text, request.Body...), nil
}

// An answerBody is the body of an answer.
type answerBody interface {
	io.Reader
	isWhole() bool // it has been read to its end, behind which the connection goes on
}

// body returns the body of the answer with this head, if it has one.
func (c *connection) body(head *answerHead) (body answerBody, hasBody bool) {
	switch {
	case head.status == http.StatusSwitchingProtocols:
		head.closes = true
		return nil, false
	case head.status == http.StatusNoContent, head.status == http.StatusNotModified:
		return nil, false
	case head.isChunked:
		head.closes = head.closes || head.hasLength // which is an attack, or a mistake
		return &chunks{Reader: httputil.NewChunkedReader(c.reader), reader: c.reader}, true
	case head.hasLength && head.length == 0:
		return nil, false
	case head.hasLength:
		return &limited{io.LimitedReader{R: c.reader, N: head.length}}, true
	}

	return &unlimited{c.reader}, true
}

// limited is a body with a length.
type limited struct{ io.LimitedReader }

func (l *limited) isWhole() bool { return l.N == 0 }

// unlimited is a body that ends with its connection.
type unlimited struct{ io.Reader }

func (*unlimited) isWhole() bool { return false }

// chunks is a body in chunks.
type chunks struct {
	io.Reader
	reader *bufio.Reader // below it
	ended  bool          // the last chunk has been read
}

func (c *chunks) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.ended = err == io.EOF
	return n, err
}

// isWhole reads the empty trailer. A connection with another one is not kept.
func (c *chunks) isWhole() bool {
	if !c.ended {
		return false
	}

	end, err := c.reader.Peek(2)
	if err != nil || string(end) != "\r\n" {
		return false
	}

	_, _ = c.reader.Discard(2)

	return true
}

// below is a connection below TLS. It hands TLS no more than the record that it reads, so that what
// was received behind an answer is known, and it can be made to write nothing more (see mayBegin).
type below struct {
	net.Conn
	reader *bufio.Reader
	rest   int  // of the record that is being read
	isFree bool // HTTP/2: TLS may read what it likes

	isBroken atomic.Bool
}

const recordHeader = 5

func (b *below) Read(p []byte) (int, error) {
	if b.isFree {
		return b.reader.Read(p)
	}

	if b.rest == 0 {
		header, err := b.reader.Peek(recordHeader)
		if err != nil && len(header) > 0 {
			return b.reader.Read(p) // TLS knows what an end means there
		}
		if err != nil {
			return 0, err
		}
		b.rest = recordHeader + int(binary.BigEndian.Uint16(header[3:]))
	}

	n, err := b.reader.Read(p[:min(len(p), b.rest)])
	b.rest -= n

	return n, err
}

// buffered returns how many bytes were received that TLS has not read.
func (b *below) buffered() int { return b.reader.Buffered() }

func (b *below) Write(p []byte) (int, error) {
	if b.isBroken.Load() {
		return 0, errNotBegun
	}
	return b.Conn.Write(p)
}

// belowOf returns what is below a connection of TLS; nil for another one.
func belowOf(conn net.Conn) *below {
	secured, isTLS := conn.(*tls.Conn)
	if !isTLS {
		return nil
	}
	b, _ := secured.NetConn().(*below)
	return b
}
