package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"vendorapi/internal/devclickhouse/libchdb"
)

// execution is one statement on its way through the engine.
type execution struct {
	conn *libchdb.Conn // its own session
	q    *request
	w    http.ResponseWriter
	mark string // see front.watch
	// cancel gives the statement up: the engine is asked to kill it.
	cancel context.CancelFunc
}

// run carries out the text; rest is data that follows it. An error means that nothing
// was answered yet.
func (e *execution) run(text string, rest io.Reader) error {
	if e.q.database != "" {
		if _, err := e.conn.Query("USE `"+escape(e.q.database, "`")+"`", "TSV", nil); err != nil {
			return err
		}
	}
	if _, err := e.conn.Query(e.q.setStatement(), "TSV", nil); err != nil {
		return err
	}
	head, isInsert, err := parseInsert(text)
	if err != nil {
		return err
	}
	if isInsert {
		data := io.MultiReader(strings.NewReader(text[head.data:]), rest)
		if strings.EqualFold(head.format, "Values") {
			data = &valuesData{data: data}
		}
		return e.insert(head, data)
	}
	if len(text) > maxStatement {
		return libchdb.NewException(codeTooLarge, "QUERY_IS_TOO_LARGE", "The statement is longer than %d bytes", maxStatement)
	}
	s, err := parseStatement(text)
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
	if err := e.q.check(analysis); err != nil {
		return err
	}
	if analysis.Class == libchdb.ReadOnly {
		return e.read(s)
	}
	return e.execute(s)
}

// check refuses what must not run. analysis is the engine's own reading of the text.
func (q *request) check(analysis libchdb.Analysis) error {
	switch {
	case analysis.Statements > 1:
		return syntaxError("%d statements in one request: multi-statements are not allowed", analysis.Statements)
	case analysis.Class == libchdb.Unknown:
		return notImplemented("a statement of an unknown kind")
	case q.keyless && analysis.Class != libchdb.ReadOnly:
		return libchdb.NewException(codeReadOnly, "READONLY", "Cannot execute query in readonly mode: changes need the engine's key, as the password of the user default")
	case q.readOnly && analysis.Class != libchdb.ReadOnly:
		// As ClickHouse has it: a GET must not change anything.
		return libchdb.NewException(codeReadOnly, "READONLY", "Cannot execute query in readonly mode. For queries over HTTP, method GET implies readonly. You should use method POST for modifying queries")
	}
	return nil
}

// marked is the statement with its mark behind the first word. There the engine keeps
// it as part of the text, and errors found in parsing are already found.
func (e *execution) marked(sql string) string {
	at := (&lexer{text: sql}).next().to
	return sql[:at] + " " + e.mark + sql[at:]
}

// explain gets the engine's own words for what does not parse. Running such a text
// would run the statements before the mistake; beginning an insert only parses.
func (e *execution) explain(sql string) error {
	insert, err := e.conn.Insert(sql, "", nil)
	if err != nil {
		return err
	}
	insert.Cancel()
	return syntaxError("not a statement: %.100s", sql)
}

// pieces hold what is handed over of an insert's data at once. The engine keeps up to
// 16 of them waiting.
var pieces = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// insert stores data. It answers only when the engine has stored all of it; a body that
// ends early or turns out damaged inserts nothing, as long as the data is not larger
// than the engine's blocks (see libchdb.Insert.Cancel).
func (e *execution) insert(head insertHead, data io.Reader) error {
	if err := e.q.check(libchdb.Analysis{Statements: 1, Class: libchdb.Mutating}); err != nil {
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

// fill reads until p is full. Unlike io.ReadFull it keeps the end of the data (io.EOF)
// and a body that was cut off (io.ErrUnexpectedEOF) apart: the one commits, the other
// cancels.
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
	a := newAnswer(e.w, e.q, s.formatOr(e.q.format))
	_, _ = a.Write(result.Data) // it is held back, or the client has gone
	a.finish()
	return nil
}

// summarize tells what was read and written, as the server does.
func (e *execution) summarize(p libchdb.Progress) {
	e.w.Header().Set("X-ClickHouse-Summary", fmt.Sprintf(
		`{"read_rows":"%d","read_bytes":"%d","written_rows":"%d","written_bytes":"%d"}`,
		p.ReadRows, p.ReadBytes, p.WrittenRows, p.WrittenBytes))
}

// read runs a statement that returns rows of any number and size.
//
// The library can return a result as a whole, which a report of millions of rows must
// not be, or in chunks; but each chunk is a document of its own in the format, with its
// own header, brackets and footer. So the engine is asked to write the result INTO
// OUTFILE, and the file is /dev/fd/N: the writing end of a pipe of this process. What
// comes out is one document in any format, in constant memory, and the engine waits
// when the client is slow.
func (e *execution) read(s statement) error {
	a := newAnswer(e.w, e.q, s.formatOr(e.q.format))
	from, to, err := newPipe()
	if err != nil {
		return fmt.Errorf("make a pipe for the result: %w", err)
	}
	defer from.Close()
	delivered := make(chan error, 1)
	go func() { delivered <- e.deliver(a, from) }()
	_, err = e.conn.Query(e.marked(s.into(to, e.q.format)), "TSV", e.q.params)
	_ = syscall.Close(to) // the reader sees the end
	if lost := <-delivered; lost != nil {
		panic(http.ErrAbortHandler) // nobody is there to be told
	}
	if err != nil {
		a.fail(asException(err))
		return nil
	}
	a.finish()
	return nil
}

// deliver copies the result to the answer. When the client goes, the statement is
// killed, and what the engine still writes is taken off it, so that it does not hang in
// a full pipe. (A broken pipe would not end it: the engine notes the error and goes on
// to the end.)
func (e *execution) deliver(a *answer, from *os.File) error {
	_, err := io.Copy(struct{ io.Writer }{a}, struct{ io.Reader }{from})
	if err != nil {
		e.cancel()
		_, _ = io.Copy(io.Discard, from)
	}
	return err
}

// into is the statement with its result going to a file descriptor of this process. The
// clause stands between the query and its FORMAT and SETTINGS.
func (s *statement) into(fd int, defaultFormat string) string {
	clause := "\nINTO OUTFILE '/dev/fd/" + strconv.Itoa(fd) + "' APPEND "
	if s.format == "" {
		clause += "FORMAT " + defaultFormat + " "
	}
	return s.text[:s.tail] + clause + s.text[s.tail:]
}

// newPipe makes a pipe whose writing end is opened by the engine, as /dev/fd/N. That
// end must block: the engine takes a full pipe for an error otherwise (os.Pipe makes
// both ends non-blocking, and where /dev/fd/N is a duplicate the engine would inherit
// that).
func newPipe() (from *os.File, to int, err error) {
	var ends [2]int
	syscall.ForkLock.RLock()
	err = syscall.Pipe(ends[:])
	if err == nil {
		syscall.CloseOnExec(ends[0])
		syscall.CloseOnExec(ends[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, 0, err
	}
	if err := syscall.SetNonblock(ends[0], true); err != nil { // read through Go's poller
		_, _ = syscall.Close(ends[0]), syscall.Close(ends[1])
		return nil, 0, err
	}
	return os.NewFile(uintptr(ends[0]), "result"), ends[1], nil
}

// killInterval is the time between two attempts to kill a statement. The first may come
// before the engine knows of it.
const killInterval = 50 * time.Millisecond

// watch kills the statement that carries mark when ctx ends before finished is called,
// which returns once nothing more is done to it. The library gives queries ids of its
// own and tells nobody, so each statement carries a mark, a comment, by which it is
// found among the engine's processes.
func (f *front) watch(ctx context.Context, id string) (mark string, finished func()) {
	mark = "/* " + rand.Text() + " */"
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		select {
		case <-done:
		case <-ctx.Done():
			f.kill(id, mark, done)
		}
	})
	return mark, func() {
		close(done)
		ended.Wait()
	}
}

// kill asks the engine to kill the statement until it is done.
func (f *front) kill(id, mark string, done <-chan struct{}) {
	for {
		select {
		case <-done:
			f.log.Info("killed a query whose client had gone", "id", id)
			return
		case <-time.After(killInterval):
		}
		f.turn.Lock()
		// The KILL carries the mark, too, and must not find itself.
		_, err := f.keeper.Query("KILL QUERY WHERE query NOT LIKE 'KILL%' AND position(query, '"+mark+"') > 0 ASYNC", "Null", nil)
		f.turn.Unlock()
		if err != nil {
			f.log.Warn("cannot kill a query", "id", id, "error", err)
		}
	}
}
