package sender

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/sys/unix"
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
	headStatusLine headState = iota // the next line should be a status line
	headInterim                     // in the fields of a 1xx
	headFields                      // in the fields of the final answer
	headOver                        // nothing more belongs to the head
)

// An answerHead is what is read of the head of an HTTP/1 answer: its status, its Retry-After, and where its
// body ends. It takes whatever lines come: the receiver has said by the status alone that it has stored
// the event, or that it has not.
type answerHead struct {
	state headState
	bytes int // read so far

	line    [maxHeadLine]byte // the beginning of the line that is being read
	lineLen int

	firstLine  string // the answer's, if that is no status line
	status     int    // 0 until the status line of a final answer was read
	retryAfter string

	// length is the Content-Length; hasLength is set if there is one.
	length    int64
	hasLength bool
	isChunked bool
	// closes is set if the connection ends with the answer.
	closes bool
	// isMalformed is set if a field of the answer breaks a rule, so that it is unknown where the answer ends.
	isMalformed bool
}

// readFrom reads what has arrived, and waits for something if nothing has. It leaves what is behind the head.
func (h *answerHead) readFrom(r *bufio.Reader) error {
	if _, err := r.Peek(1); err != nil {
		return err
	}

	arrived, _ := r.Peek(r.Buffered())
	n := h.read(arrived)
	_, _ = r.Discard(n)
	if h.bytes > maxHeaderBytes && h.state != headOver {
		return errHeadTooLong
	}

	return nil
}

// read takes note of the bytes that arrived next, and returns how many of them belong to the head.
func (h *answerHead) read(arrived []byte) (n int) {
	rest := arrived
	for h.state != headOver && len(rest) > 0 {
		part, behind, ended := bytes.Cut(rest, []byte{'\n'})
		h.lineLen += copy(h.line[h.lineLen:], part)
		rest = behind
		if ended {
			h.endLine(bytes.TrimSuffix(h.line[:h.lineLen], []byte{'\r'}))
			h.lineLen = 0
		}
	}

	n = len(arrived) - len(rest)
	h.bytes += n

	return n
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
		h.closes = !bytes.HasPrefix(line, []byte("HTTP/1.1 "))
		h.state = headFields
	}
}

// endField takes a field, and leaves the head at an empty line.
func (h *answerHead) endField(line []byte) {
	switch {
	case len(line) == 0 && h.state == headInterim:
		h.state = headStatusLine
	case len(line) == 0:
		h.state = headOver
	case h.state == headFields:
		h.takeField(line)
	}
}

// takeField takes a field of the final answer. Of several Retry-After the first counts.
func (h *answerHead) takeField(line []byte) {
	name, value, isField := bytes.Cut(line, []byte{':'})
	value = bytes.TrimSpace(value)
	isValid := isField && httpguts.ValidHeaderFieldName(string(name)) && httpguts.ValidHeaderFieldValue(string(value))
	if !isValid {
		h.isMalformed = true
		name = bytes.TrimSpace(name) // "Retry-After : 30" says what it says
	}

	isCut := h.lineLen == maxHeadLine
	switch {
	case !isField:
	case isNamed(name, "Retry-After") && h.retryAfter == "":
		h.retryAfter = string(value)
	case isNamed(name, "Content-Length"):
		h.takeLength(string(value), isCut)
	case isNamed(name, "Transfer-Encoding"):
		isOneChunked := !h.isChunked && !isCut && strings.EqualFold(string(value), "chunked")
		h.isMalformed = h.isMalformed || !isOneChunked
		h.isChunked = true
	case isNamed(name, "Connection"):
		h.closes = h.closes || isCut || httpguts.HeaderValuesContainsToken([]string{string(value)}, "close")
	}
}

func isNamed(name []byte, wanted string) bool {
	return len(name) == len(wanted) && strings.EqualFold(string(name), wanted)
}

func (h *answerHead) takeLength(value string, isCut bool) {
	length, err := strconv.ParseUint(value, 10, 63)
	isOther := h.hasLength && int64(length) != h.length
	h.isMalformed = h.isMalformed || err != nil || isCut || isOther
	h.length, h.hasLength = int64(length), true
}

// answered returns the status and the Retry-After; a zero status stands for an answer
// without a status line, of which beginning is what it begins with. A status line that the
// connection's end cut off behind the status counts.
func (h *answerHead) answered() (status int, retryAfter, beginning string) {
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
func socketOf(conn net.Conn) looker {
	if l, isLooker := conn.(looker); isLooker {
		return l
	}

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
		s.isWaiting = err == nil || n > 0 // zero bytes are the connection's end
	}

	return s
}

// hasBytesWaiting reports, without blocking, whether something has been received that nobody
// has read, or the receiver has closed the connection. After an error, and for nil, it returns false: the
// request meets the error itself.
func (s *socket) hasBytesWaiting() bool {
	if s == nil {
		return false
	}
	s.isWaiting = false
	_ = s.raw.Control(s.look) // needs no turn among the readers, one of whom waits for the next byte
	return s.isWaiting
}
