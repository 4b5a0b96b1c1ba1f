package download

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

const (
	// holdBack is how many bytes wait until it is known that they may go.
	holdBack = 256 << 10
	// step is how many bytes a client must take within the stall time.
	step = 64 << 10
)

// transfer is the body of an answer. Until more than holdBack bytes have come nothing is
// sent, and an error can still become another answer; a shorter body has its length.
//
// To a client of HTTP/1.0, such as some proxies, the end of a body and a cut connection look
// alike. It gets everything with its length, from a file.
type transfer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	header  func(http.Header) // sets what the body is, just before it begins

	held  []byte
	file  *os.File // instead of sending; nil unless spooled
	begun bool     // the status is out
	bytes int64    // given to the client
	err   error    // of giving; the first one
}

// newTransfer prepares one; spool keeps all of it in a file until the end.
func newTransfer(w http.ResponseWriter, stall time.Duration, spool bool, header func(http.Header)) (*transfer, error) {
	t := &transfer{w: w, control: http.NewResponseController(w), stall: stall, header: header}
	if !spool {
		return t, nil
	}
	file, err := os.CreateTemp("", "report-*")
	if err != nil {
		return nil, fmt.Errorf("keep a report: %w", err)
	}
	t.file = file
	// Without a name it goes with this process, whatever ends it.
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close() // the first error says more
		return nil, fmt.Errorf("keep a report: %w", err)
	}
	return t, nil
}

// Write takes a piece of the body.
func (t *transfer) Write(p []byte) (int, error) {
	switch {
	case t.err != nil:
		return 0, t.err
	case t.begun:
		return t.send(p)
	case len(t.held)+len(p) <= holdBack:
		t.held = append(t.held, p...)
		return len(p), nil
	}
	if err := t.release(); err != nil {
		return 0, err
	}
	return t.send(p)
}

// release lets what is held go.
func (t *transfer) release() error {
	held := t.held
	t.held = nil
	if t.file == nil {
		t.begin()
	}
	_, err := t.send(held)
	return err
}

func (t *transfer) begin() {
	t.begun = true
	t.header(t.w.Header())
	t.w.WriteHeader(http.StatusOK)
}

// send gives the client a piece, each part of it within the stall time.
func (t *transfer) send(p []byte) (n int, err error) {
	for n < len(p) && t.err == nil {
		part := p[n:min(n+step, len(p))]
		var took int
		if t.file != nil && !t.begun {
			took, t.err = t.file.Write(part)
		} else {
			took, t.err = t.give(part)
			t.bytes += int64(took)
		}
		n += took
	}
	return n, t.err
}

func (t *transfer) give(part []byte) (int, error) {
	if err := t.control.SetWriteDeadline(time.Now().Add(t.stall)); err != nil {
		return 0, fmt.Errorf("bound a write: %w", err)
	}
	return t.w.Write(part)
}

// finish sends what is left, with its length if nothing has been sent.
func (t *transfer) finish() error {
	switch {
	case t.err != nil || t.begun:
	case t.file == nil:
		t.w.Header().Set("Content-Length", strconv.Itoa(len(t.held)))
		_ = t.release() // the error is kept
	default:
		t.finishFile()
	}
	if t.err == nil {
		// The last part, which net/http still has.
		t.err = t.control.SetWriteDeadline(time.Now().Add(t.stall))
	}
	return t.err
}

func (t *transfer) finishFile() {
	if t.release() != nil {
		return
	}
	size, err := t.file.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = t.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		t.err = fmt.Errorf("keep a report: %w", err)
		return
	}
	t.w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	t.begin()
	// Read and Write alone, so that nothing is sent past the stall time's back.
	_, err = io.CopyBuffer(struct{ io.Writer }{t}, struct{ io.Reader }{t.file}, make([]byte, step))
	if t.err == nil {
		t.err = err
	}
}

// close gives the file back. It may be called at any time.
func (t *transfer) close() {
	if t.file != nil {
		_ = t.file.Close() // nothing of it is wanted any more
	}
}
