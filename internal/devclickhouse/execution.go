package devclickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"vendorapi/internal/devclickhouse/libchdb"
)

// execution is one statement on its way through the engine.
type execution struct {
	front *front
	conn  *libchdb.Conn // its own session
	q     *request
	w     http.ResponseWriter
	mark  string // see running
	// cancel gives the statement up: the engine is asked to kill it.
	cancel context.CancelFunc
}

// marked is the statement with its mark behind the first word. There the engine
// keeps it as part of the text, and errors found in parsing are already found.
func (e *execution) marked(sql string) string {
	at := endOfFirst(sql)
	return sql[:at] + " " + e.mark + sql[at:]
}

// run carries out what the text says. An error means that nothing was
// answered yet.
func (e *execution) run(t text) error {
	if err := e.prepare(); err != nil {
		return err
	}
	head, isInsert, err := parseInsert(t.known)
	if err != nil {
		return err
	}
	if isInsert {
		data := t.data(head.data)
		if strings.EqualFold(head.format, "Values") {
			data = &valuesData{data: data}
		}
		return e.insert(head, data)
	}
	sql, err := t.statement()
	if err != nil {
		return err
	}
	s, err := parseStatement(sql)
	if err != nil {
		return err
	}
	analysis, err := e.conn.Classify(s.text)
	if err != nil {
		return err
	}
	if analysis.Statements == 0 {
		return e.explain(s.text)
	}
	if err := s.judge(analysis, e.q); err != nil {
		return err
	}
	if analysis.Class == libchdb.ReadOnly {
		return e.read(s)
	}
	return e.execute(s)
}

// prepare gives the session its database and settings.
func (e *execution) prepare() error {
	if e.q.database != "" {
		if _, err := e.conn.Query("USE "+quoteName(e.q.database), "TSV", nil); err != nil {
			return err
		}
	}
	_, err := e.conn.Query(e.q.setStatement(), "TSV", nil)
	return err
}

// explain gets the engine's own words for what does not parse. Running such a
// text would run the statements before the mistake; beginning an insert only
// parses.
func (e *execution) explain(sql string) error {
	insert, err := e.conn.Insert(sql, "", nil)
	if err != nil {
		return err
	}
	insert.Cancel()
	return syntaxError("not a statement: %.100s", sql)
}

// piece is how much of an insert's data is handed over at once. The engine
// keeps up to 16 of them waiting.
const piece = 256 << 10

var pieces = sync.Pool{New: func() any { b := make([]byte, piece); return &b }}

// insert stores data. It answers only when the engine has stored all of it; a
// body that ends early or turns out damaged inserts nothing, as long as the
// data is not larger than the engine's blocks (see libchdb.Insert.Cancel).
func (e *execution) insert(head insertHead, data io.Reader) error {
	s := statement{first: "INSERT"}
	if err := s.judge(libchdb.Analysis{Statements: 1, Class: libchdb.Mutating}, e.q); err != nil {
		return err
	}
	insert, err := e.conn.Insert(e.marked(head.text), head.format, e.q.params)
	if err != nil {
		return err
	}
	buffer := pieces.Get().(*[]byte)
	defer pieces.Put(buffer)
	for {
		n, readErr := fill(data, *buffer)
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			insert.Cancel()
			return unreadable(readErr)
		}
		if _, err := insert.Write((*buffer)[:n]); err != nil {
			insert.Cancel()
			return err
		}
		if readErr != nil {
			break
		}
	}
	progress, err := insert.Commit()
	if err != nil {
		return err
	}
	e.summarize(progress)
	return nil // 200 with an empty body
}

// fill reads until p is full. Unlike io.ReadFull it keeps the end of the data
// (io.EOF) and a body that was cut off (io.ErrUnexpectedEOF) apart: the one
// commits, the other cancels.
func fill(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = r.Read(p[n:])
		n += k
	}
	return n, err
}

// execute runs a statement that changes something, whose result is small.
func (e *execution) execute(s statement) error {
	result, err := e.conn.Query(e.marked(s.text), e.q.format, e.q.params)
	if err != nil {
		return err
	}
	e.summarize(result.Progress)
	a, err := e.front.newAnswer(e.w, e.q, firstOf(s.format, e.q.format))
	if err != nil {
		return err
	}
	if _, err := a.Write(result.Data); err != nil {
		return nil // who has gone needs no answer
	}
	_ = a.finish()
	return nil
}

// read runs a statement that returns rows of any number and size.
//
// The library can return a result as a whole, which a report of millions of
// rows must not be, or in chunks; but each chunk is a document of its own in
// the format, with its own header, brackets and footer. So the engine is asked
// to write the result INTO OUTFILE, and the file is /dev/fd/N: the writing end
// of a pipe of this process (or, with wait_end_of_query, a file without a
// name). What comes out is one document in any format, in constant memory, and
// the engine waits when the client is slow.
func (e *execution) read(s statement) error {
	a, err := e.front.newAnswer(e.w, e.q, firstOf(s.format, e.q.format))
	if err != nil {
		return err
	}
	if e.q.wait {
		return e.readWhole(s, a)
	}
	from, to, err := newPipe()
	if err != nil {
		return fmt.Errorf("make a pipe for the result: %w", err)
	}
	defer from.Close()
	delivered := make(chan error, 1)
	go func() { delivered <- e.deliver(a, from) }()
	_, err = e.conn.Query(e.marked(s.into(to, e.q.format)), "TSV", e.q.params)
	closePipe(to) // the reader sees the end
	if lost := <-delivered; lost != nil {
		panic(http.ErrAbortHandler) // nobody is there to be told
	}
	if err != nil {
		a.fail(asException(err))
		return nil
	}
	_ = a.finish() // the client has gone at the last moment
	return nil
}

// deliver copies the result to the answer. When the client goes, or takes
// nothing for too long, the statement is killed, and what the engine still
// writes is taken off it, so that it does not hang in a full pipe. (A broken
// pipe would not end it: the engine notes the error and goes on to the end.)
func (e *execution) deliver(a *answer, from *os.File) error {
	_, err := io.Copy(struct{ io.Writer }{a}, struct{ io.Reader }{from})
	if err != nil {
		e.cancel()
		_, _ = io.Copy(io.Discard, from)
	}
	return err
}

// readWhole keeps the result in a file until it is complete, so that a failure
// at any row gets a status instead of a cut answer.
func (e *execution) readWhole(s statement, a *answer) error {
	file, err := os.CreateTemp(e.front.spool, "result-")
	if err != nil {
		return fmt.Errorf("keep the result: %w", err)
	}
	defer file.Close()
	if err := os.Remove(file.Name()); err != nil { // it lives until it is closed
		return fmt.Errorf("keep the result: %w", err)
	}
	if _, err := e.conn.Query(e.marked(s.into(int(file.Fd()), e.q.format)), "TSV", e.q.params); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read the result: %w", err)
	}
	if _, err := io.Copy(struct{ io.Writer }{a}, file); err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = a.finish()
	return nil
}

// into is the statement with its result going to a file descriptor of this
// process. The clause stands between the query and its FORMAT and SETTINGS.
func (s *statement) into(fd int, defaultFormat string) string {
	clause := "\nINTO OUTFILE '/dev/fd/" + strconv.Itoa(fd) + "' APPEND "
	if s.format == "" {
		clause += "FORMAT " + defaultFormat + " "
	}
	return s.text[:s.tail] + clause + s.text[s.tail:]
}

// summarize tells what was read and written, as the server does.
func (e *execution) summarize(p libchdb.Progress) {
	e.w.Header().Set("X-ClickHouse-Summary", fmt.Sprintf(
		`{"read_rows":"%d","read_bytes":"%d","written_rows":"%d","written_bytes":"%d"}`,
		p.ReadRows, p.ReadBytes, p.WrittenRows, p.WrittenBytes))
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
