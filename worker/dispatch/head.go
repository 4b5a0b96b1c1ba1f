package dispatch

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"vendorapi/internal/delivery"
)

// maxHeadLine is how many bytes of a line of an answer's head are kept. A status line and a
// Retry-After are much shorter; of a longer line the rest is dropped.
const maxHeadLine = 256

// headState is how far the head of an answer has been read.
//
//	headStatusLine -> headInterim -> headStatusLine    a 1xx, which is no answer yet
//	headStatusLine -> headFields -> headOver
//	headStatusLine -> headOver                         no status line of HTTP
type headState int

const (
	headOver       headState = iota // nothing more is looked at, until the next request
	headStatusLine                  // the next line should be a status line
	headInterim                     // in the fields of a 1xx
	headFields                      // in the fields of the final answer
)

// An answerHead is the status and the Retry-After of an HTTP/1 answer, picked from the bytes
// of a connection. net/http refuses an answer whose fields break a rule, and then tells nothing
// of its status; the receiver has said by it that it has stored the event, or that it has not.
type answerHead struct {
	mu    sync.Mutex
	state headState

	line    [maxHeadLine]byte // the beginning of the line that is being read
	lineLen int

	firstLine  string // the answer's, if that is no status line
	status     int    // 0 until the status line of a final answer was read
	retryAfter string
}

// begin forgets the answer before: a request is about to use the connection.
func (h *answerHead) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = headStatusLine
	h.lineLen, h.firstLine, h.status, h.retryAfter = 0, "", 0, ""
}

// read takes note of the bytes that arrived next.
func (h *answerHead) read(arrived []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
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
	isInterim := status >= 100 && status <= 199 && status != http.StatusSwitchingProtocols
	switch {
	case !ok:
		h.firstLine = string(line)
		h.state = headOver
	case isInterim:
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
// without a status line, of which beginning is what it begins with.
func (h *answerHead) answered() (status int, retryAfter, beginning string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	beginning = h.firstLine
	if beginning == "" {
		beginning = string(h.line[:h.lineLen])
	}
	return h.status, h.retryAfter, beginning
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
// few characters of the answer.
func unreadable(beginning string) string {
	const what = "the answer cannot be read: "
	const shown = 40
	quoted := delivery.Excerpt(beginning, shown)
	if quoted == "" {
		return what + "it has no status line of HTTP"
	}
	return what + "it does not begin with a status line of HTTP, but with " + strconv.Quote(quoted)
}

// watched is an HTTP/1 connection, in plain text, whose answers' heads are noted.
type watched struct {
	net.Conn
	head answerHead
}

func (c *watched) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.head.read(p[:n])
	return n, err
}
