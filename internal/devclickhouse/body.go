package devclickhouse

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/devclickhouse/libchdb"
)

// maxStatement bounds a statement's text, in bytes. Data of an INSERT does not
// count. ClickHouse's own bound, max_query_size, is 256 kB unless a setting
// raises it.
const maxStatement = 1 << 20

// openBody is the request's body as plain bytes, not longer than maxBody, and
// moving.
func (f *front) openBody(w http.ResponseWriter, r *http.Request, q *request) (io.Reader, error) {
	if r.ContentLength > f.maxBody {
		return nil, tooLarge(f.maxBody)
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		return nil, notImplemented("external tables are not supported: the body must be the statement or its data")
	}
	var body io.Reader = &movingBody{body: r.Body, control: http.NewResponseController(w), stall: f.stall}
	body, err := decoder(r.Header.Get("Content-Encoding"), body)
	if err != nil {
		return nil, unreadable(err)
	}
	if q.decompress {
		body = blockDecoder(body)
	}
	return &boundedBody{body: body, left: f.maxBody, limit: f.maxBody}, nil
}

func tooLarge(limit int64) error {
	return libchdb.NewException(codeTooLarge, "QUERY_IS_TOO_LARGE", "The request's body is larger than %d bytes", limit)
}

// unreadable makes an exception of a body that ended early or is damaged.
func unreadable(err error) error {
	var e *libchdb.Exception
	if errors.As(err, &e) {
		return e
	}
	return libchdb.NewException(codeCannotReadAllData, "CANNOT_READ_ALL_DATA", "The request's body cannot be read: %v", err)
}

// movingBody gives up a client that sends nothing for the stall time.
type movingBody struct {
	body    io.Reader
	control *http.ResponseController
	stall   time.Duration
}

func (m *movingBody) Read(p []byte) (int, error) {
	if err := m.control.SetReadDeadline(time.Now().Add(m.stall)); err != nil {
		return 0, err
	}
	n, err := m.body.Read(p)
	if errors.Is(err, io.EOF) {
		// From here on the connection is watched for the client's leaving,
		// for as long as the statement takes.
		if err := m.control.SetReadDeadline(time.Time{}); err != nil {
			return n, err
		}
	}
	return n, err
}

// boundedBody fails once more than limit bytes were read.
type boundedBody struct {
	body        io.Reader
	left, limit int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return 0, tooLarge(b.limit)
	}
	return n, err
}

// text is what a request has to say: the URL's query, then a line break and the
// body, as ClickHouse joins them.
type text struct {
	known string    // the beginning, with the statement in it
	rest  io.Reader // what follows; nil: nothing
	inURL bool      // known is the URL's query alone
}

// readText reads as much of the body as a statement may have, and nothing of
// it when the URL has an INSERT for which it is the data.
func readText(q *request, body io.Reader) (text, error) {
	if _, isInsert, err := parseInsert(q.query); isInsert || err != nil {
		return text{known: q.query, rest: body, inURL: true}, err
	}
	window := make([]byte, 0, 4<<10)
	for len(window) <= maxStatement {
		window = slices.Grow(window, 1)
		n, err := body.Read(window[len(window):cap(window)])
		window = window[:len(window)+n]
		if errors.Is(err, io.EOF) {
			return text{known: joinText(q.query, string(window))}, nil
		}
		if err != nil {
			return text{}, unreadable(err)
		}
	}
	return text{known: joinText(q.query, string(window)), rest: body}, nil
}

func joinText(query, body string) string {
	if query == "" || body == "" {
		return query + body
	}
	return query + "\n" + body
}

// statement is the whole text, which must not be longer than a statement may be.
func (t text) statement() (string, error) {
	if t.rest != nil || len(t.known) > maxStatement {
		return "", libchdb.NewException(codeTooLarge, "QUERY_IS_TOO_LARGE", "The statement is longer than %d bytes", maxStatement)
	}
	return t.known, nil
}

// data is the text from a byte of its known part on.
func (t text) data(from int) io.Reader {
	known := t.known[from:]
	if t.rest == nil {
		return strings.NewReader(known)
	}
	if t.inURL && known != "" {
		known += "\n"
	}
	return io.MultiReader(strings.NewReader(known), t.rest)
}
