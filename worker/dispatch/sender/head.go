package sender

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// maxHeadLine is how many bytes of a line of an answer's head are kept. A status line and a
// Retry-After are much shorter; of a longer line the rest is dropped.
const maxHeadLine = 256

// headState is how far the head of an answer has been read.
//
//	headBeforeRequest -> headStatusLine                      the request is written
//	headBeforeRequest -> headRemains                         something arrived before that
//	headStatusLine -> headInterim -> headStatusLine    a 1xx, which is no answer yet
//	headStatusLine -> headFields -> headOver
//	headStatusLine -> headOver                         no status line of HTTP
type headState int

const (
	headOver          headState = iota // nothing more is looked at, until the next request
	headBeforeRequest                  // a kept connection waits for its next request to be written
	headRemains                        // no request may be written: remains of the former answer came, or may come
	headStatusLine                     // the next line should be a status line
	headInterim                        // in the fields of a 1xx
	headFields                         // in the fields of the final answer
)

// An answerHead is the status and the Retry-After of an HTTP/1 answer, picked from the bytes
// of a connection. net/http refuses an answer whose fields break a rule, and then tells nothing
// of its status; the receiver has said by it that it has stored the event, or that it has not.
type answerHead struct {
	mu    sync.Mutex
	state headState

	// hasArrived is set once a byte has arrived since the request was written.
	hasArrived bool

	line    [maxHeadLine]byte // the beginning of the line that is being read
	lineLen int

	firstLine  string // the answer's, if that is no status line
	status     int    // 0 until the status line of a final answer was read
	retryAfter string
}

// begin forgets the answer before: a request is about to use the connection. state is
// headStatusLine on a new connection, headBeforeRequest on a kept one, and headRemains on one that
// may not be used.
func (h *answerHead) begin(state headState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = state
	h.hasArrived = false
	h.lineLen, h.firstLine, h.status, h.retryAfter = 0, "", 0, ""
}

// awaitsRequest reports that a kept connection's next request has not been written.
func (h *answerHead) awaitsRequest() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state == headBeforeRequest
}

// beginRequest notes that a part of the request is about to be written, and reports whether it
// may be.
func (h *answerHead) beginRequest() (mayWrite bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == headBeforeRequest {
		h.state = headStatusLine
	}
	return h.state != headRemains
}

// isAnswering reports that something has arrived since the request was written.
func (h *answerHead) isAnswering() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hasArrived
}

// needsMore reports that an answer has begun and its final status line has not ended.
func (h *answerHead) needsMore() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hasArrived && (h.state == headStatusLine || h.state == headInterim)
}

// read takes note of the bytes that arrived next.
func (h *answerHead) read(arrived []byte) {
	if len(arrived) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == headBeforeRequest {
		h.state = headRemains
	}
	if h.state == headRemains {
		return
	}

	h.hasArrived = true
	for h.state != headOver && len(arrived) > 0 {
		part, rest, ended := bytes.Cut(arrived, []byte{'\n'})
		h.lineLen += copy(h.line[h.lineLen:], part)
		arrived = rest
		if ended {
			h.endLine(bytes.TrimSuffix(h.line[:h.lineLen], []byte{'\r'}))
			h.lineLen = 0
		}
	}
}

// endLine decides by a whole line what follows it.
func (h *answerHead) endLine(line []byte) {
	if h.state != headStatusLine {
		h.endField(line)
		return
	}
	if len(line) == 0 {
		return // some servers end a body with one line break too many
	}

	status, ok := parseStatusLine(string(line))
	switch {
	case !ok:
		h.firstLine = string(line)
		h.state = headOver
	case isInterim(status):
		h.state = headInterim
	default:
		h.status = status
		h.state = headFields
	}
}

// endField takes a Retry-After, the first of several, and leaves the head at an empty line.
func (h *answerHead) endField(line []byte) {
	if len(line) == 0 {
		after := headOver
		if h.state == headInterim {
			after = headStatusLine
		}
		h.state = after
		return
	}

	name, value, isField := strings.Cut(string(line), ":")
	isRetryAfter := isField && strings.EqualFold(strings.TrimSpace(name), "Retry-After")
	if h.state == headFields && isRetryAfter && h.retryAfter == "" {
		h.retryAfter = strings.TrimSpace(value)
	}
}

// answered returns the status and the Retry-After; a zero status stands for an answer
// without a status line, of which beginning is what it begins with. A status line that the
// connection's end cut off behind the status counts.
func (h *answerHead) answered() (status int, retryAfter, beginning string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	beginning = h.firstLine
	if beginning == "" {
		beginning = string(h.line[:h.lineLen])
	}

	status = h.status
	if h.state == headStatusLine {
		cutOff, ok := parseStatusLine(strings.TrimSuffix(beginning, "\r"))
		if ok && !isInterim(cutOff) {
			status = cutOff
		}
	}
	return status, h.retryAfter, beginning
}

// isInterim reports whether another answer follows the one with this status.
func isInterim(status int) bool {
	return status >= 100 && status <= 199 && status != http.StatusSwitchingProtocols
}

// parseStatusLine reads "HTTP/1.1 200 OK", without a reason too.
func parseStatusLine(line string) (status int, ok bool) {
	protocol, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	if _, _, isHTTP := http.ParseHTTPVersion(protocol); !isHTTP || len(code) != 3 {
		return 0, false
	}
	parsed, err := strconv.ParseUint(code, 10, 16)
	return int(parsed), err == nil
}

// unreadable describes an answer without a status line, in words of the service's own and a
// few characters of the answer. They are quoted as they came, since a mark or a blank that
// nobody sees may be what is wrong.
func unreadable(beginning string) string {
	const what = "the answer cannot be read: "
	if beginning == "" {
		return what + "it has no status line of HTTP"
	}
	return what + "it does not begin with a status line of HTTP, but with " + quoteBeginning(beginning)
}

// quoteBeginning quotes the beginning of a text: at most 40 characters, and at most 80 bytes with
// quotes and escapes. What it returns can be printed, and ends with … if the text is cut.
func quoteBeginning(text string) string {
	const maxRunes, maxQuoted = 40, 80
	end := 0
	for runes := 0; end < len(text); runes++ {
		_, size := utf8.DecodeRuneInString(text[end:])
		if runes == maxRunes || len(strconv.Quote(text[:end+size])) > maxQuoted {
			return strconv.Quote(text[:end]) + "…"
		}
		end += size
	}
	return strconv.Quote(text)
}

// errRemains is why a request is not written to a kept connection: what will be read there
// first belongs to the answer before. http.Transport takes another connection then, since
// nothing of the request was written.
var errRemains = errors.New("the connection holds remains of the former answer")

// watched is an HTTP/1 connection, in plain text, whose answers' heads are noted.
type watched struct {
	net.Conn
	head answerHead

	// socket is of the TCP connection below; nil for none, which tests have.
	socket *socket

	// ahead has been read behind what the last Read returned, and noted by head. Only Read uses it.
	ahead []byte

	// starting is the exchange whose request was given the connection, until its first part is written.
	starting atomic.Pointer[exchange]
}

// Read goes on reading until the final status line has been read, into p and then into ahead. Otherwise
// net/http may close the connection at an empty line or a bad 1xx before it, and nobody would read the
// status that follows.
func (c *watched) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}

	n, err := c.readNoted(p)
	for err == nil && n < len(p) && c.head.needsMore() {
		var more int
		more, err = c.readNoted(p[n:])
		n += more
	}
	if err == nil && c.head.needsMore() {
		c.readAhead()
	}
	return n, err
}

// readAhead reads what follows a full buffer until the final status line, but no more than net/http would
// read of a header. After an error the next Read meets it again.
func (c *watched) readAhead() {
	const step = 4 << 10
	c.ahead = nil
	for len(c.ahead) < maxHeaderBytes && c.head.needsMore() {
		c.ahead = slices.Grow(c.ahead, step)
		n, err := c.readNoted(c.ahead[len(c.ahead) : len(c.ahead)+step])
		c.ahead = c.ahead[:len(c.ahead)+n]
		if err != nil {
			return
		}
	}
}

func (c *watched) readNoted(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.head.read(p[:n])
	return n, err
}

// Write refuses a request if something has arrived on a kept connection since its last answer:
// it would be taken for the answer to this request. It refuses a request that may not begin.
func (c *watched) Write(p []byte) (int, error) {
	if c.head.awaitsRequest() && c.socket.hasBytesWaiting() {
		return 0, errRemains
	}
	if !c.head.beginRequest() {
		return 0, errRemains
	}
	starting := c.starting.Swap(nil)
	if starting != nil && !starting.mayBegin() {
		return 0, errNotBegun
	}
	return c.Conn.Write(p)
}

// A socket looks at a TCP connection below TLS. It is used by one goroutine at a time.
type socket struct {
	raw syscall.RawConn

	// look sets isWaiting if something has been received that nobody has read. It is kept, since
	// making it for each request would take memory, and so is the byte that it looks at.
	look      func(fd uintptr)
	peeked    [1]byte
	isWaiting bool
}

// socketOf returns the socket of a connection; nil for one that has none.
func socketOf(conn net.Conn) *socket {
	withSocket, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := withSocket.SyscallConn()
	if err != nil {
		return nil
	}

	s := &socket{raw: raw}
	s.look = func(fd uintptr) {
		n, _, err := unix.Recvfrom(int(fd), s.peeked[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		s.isWaiting = err == nil && n > 0
	}
	return s
}

// hasBytesWaiting reports, without blocking, whether something has been received that nobody
// has read. After an error, and for nil, it returns false: the request meets the error itself.
func (s *socket) hasBytesWaiting() bool {
	if s == nil {
		return false
	}
	s.isWaiting = false
	_ = s.raw.Control(s.look) // needs no turn among the readers, one of whom waits for the next byte
	return s.isWaiting
}
