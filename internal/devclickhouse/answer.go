package devclickhouse

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/devclickhouse/libchdb"
)

// heldBack is how much of a result waits before the status is sent, as the
// server's buffer does: what fails within the first megabyte gets an honest
// status, and short results a Content-Length.
const heldBack = 1 << 20

// answer writes a result of any length in constant memory. It is used by one
// goroutine at a time.
type answer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration // see Options.Stall
	held    []byte
	started bool
	coding  flushWriter // between the result and w; nil: nothing
	blocks  bool        // coding makes ClickHouse's blocks
	tag     string      // marks the exception that follows a part of a result
}

// newAnswer prepares the answer to q; format is that of the rows.
func (f *front) newAnswer(w http.ResponseWriter, q *request, format string) (*answer, error) {
	a := &answer{w: w, control: http.NewResponseController(w), stall: f.stall, tag: strings.ToLower(rand.Text())[:16]}
	h := w.Header()
	switch {
	case q.compress:
		blocks, err := newBlockEncoder(q.method, paced{a})
		if err != nil {
			return nil, err
		}
		a.coding, a.blocks = blocks, true
	case q.httpCoding != "":
		h.Set("Content-Encoding", q.httpCoding)
		a.coding = encoder(q.httpCoding, paced{a})
	}
	h.Set("Vary", "Accept-Encoding")
	h.Set("Content-Type", contentType(format))
	h.Set("X-ClickHouse-Format", format)
	h.Set("X-ClickHouse-Exception-Tag", a.tag)
	return a, nil
}

// paced writes to the client, who must take something within the stall time.
type paced struct{ a *answer }

func (p paced) Write(b []byte) (int, error) {
	if err := p.a.control.SetWriteDeadline(time.Now().Add(p.a.stall)); err != nil {
		return 0, err
	}
	return p.a.w.Write(b)
}

func (a *answer) sink() io.Writer {
	if a.coding != nil {
		return a.coding
	}
	return paced{a}
}

// Write takes the next part of the result.
func (a *answer) Write(b []byte) (int, error) {
	if !a.started {
		if len(a.held)+len(b) <= heldBack {
			a.held = append(a.held, b...)
			return len(b), nil
		}
		a.started = true
		if _, err := a.sink().Write(a.held); err != nil {
			return 0, err
		}
		a.held = nil
	}
	return a.sink().Write(b)
}

// finish sends what is left of a complete result.
func (a *answer) finish() error {
	if !a.started {
		if len(a.held) == 0 {
			a.w.Header().Del("Content-Encoding") // an empty body is not compressed
			return nil                           // net/http adds Content-Length: 0, which clickhouse-go takes for "no rows"
		}
		if a.coding == nil {
			a.w.Header().Set("Content-Length", strconv.Itoa(len(a.held)))
		}
		if _, err := a.sink().Write(a.held); err != nil {
			return err
		}
	}
	if a.coding != nil {
		return a.coding.Close()
	}
	return nil
}

// fail tells the client of a failure. As long as nothing was sent that is a
// status and the text. After that the text follows the rows in the frame that
// the server uses, which clickhouse-go looks for, and the connection is cut:
// a cut answer is an error to every client, a short one would be believed.
func (a *answer) fail(e *libchdb.Exception) {
	if !a.started {
		refuse(a.w, e)
		return
	}
	if a.coding != nil && !a.blocks {
		_, _ = io.WriteString(a.coding, a.frame(e))
		_ = a.coding.Close() // the connection is cut in any case
	} else {
		if a.coding != nil {
			_ = a.coding.Flush()
		}
		// Not in a block: clickhouse-go searches what came over the wire.
		_, _ = io.WriteString(paced{a}, a.frame(e))
	}
	_ = a.control.Flush()
	panic(http.ErrAbortHandler)
}

func (a *answer) frame(e *libchdb.Exception) string {
	return fmt.Sprintf("\r\n__exception__\r\n%s\r\n%s\n%d %s\r\n__exception__\r\n", a.tag, e.Text, len(e.Text)+1, a.tag)
}

// refuse answers with an exception instead of a result.
func refuse(w http.ResponseWriter, err error) {
	e := asException(err)
	h := w.Header()
	h.Del("Content-Encoding")
	h.Set("Content-Type", "text/plain; charset=UTF-8")
	h.Set("X-ClickHouse-Exception-Code", strconv.Itoa(e.Code))
	if e.Code == codeTooManyQueries {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(httpStatus(e))
	_, _ = io.WriteString(w, e.Text+"\n") // who does not want to hear it has gone
}

// contentTypes by the beginning of the format's name; the longest one wins.
var contentTypes = []struct{ prefix, contentType string }{
	{"JSONEachRow", "application/x-ndjson; charset=UTF-8"},
	{"JSONCompactEachRow", "application/x-ndjson; charset=UTF-8"},
	{"JSONStringsEachRow", "application/x-ndjson; charset=UTF-8"},
	{"JSON", "application/json; charset=UTF-8"},
	{"CSV", "text/csv; charset=UTF-8; header=absent"},
	{"TabSeparated", "text/tab-separated-values; charset=UTF-8"},
	{"TSV", "text/tab-separated-values; charset=UTF-8"},
	{"XML", "application/xml; charset=UTF-8"},
	{"Native", "application/octet-stream"},
	{"RowBinary", "application/octet-stream"},
	{"Parquet", "application/octet-stream"},
	{"Arrow", "application/octet-stream"},
	{"ORC", "application/octet-stream"},
}

func contentType(format string) string {
	if strings.HasPrefix(format, "CSVWithNames") {
		return "text/csv; charset=UTF-8; header=present"
	}
	for _, c := range contentTypes {
		if strings.HasPrefix(format, c.prefix) {
			return c.contentType
		}
	}
	return "text/plain; charset=UTF-8"
}
