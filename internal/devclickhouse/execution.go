package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"vendorapi/internal/devclickhouse/libchdb"
)

type execution struct {
	conn *libchdb.Conn // its own session
	q    *request
	w    http.ResponseWriter
	mark string // see front.watch
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

	text = strings.TrimRight(text, "; \t\r\n")
	analysis, err := e.conn.Classify(text)
	if err != nil {
		return err
	}

	if analysis.Statements == 0 {
		return e.explain(text)
	}
	if analysis.Class == libchdb.Control && intoOutfile.MatchString(text) {
		return notImplemented("INTO OUTFILE is not allowed")
	}
	if err := e.q.check(analysis); err != nil {
		return err
	}

	return e.answer(text, analysis.Class == libchdb.ReadOnly)
}

var (
	intoOutfile = regexp.MustCompile(`(?is)\bINTO\b.*\bOUTFILE\b`)
	// formatClause is what ends most statements that name a format.
	formatClause = regexp.MustCompile(`(?i)\bFORMAT\b(?:\s|/\*.*?\*/)*([A-Za-z0-9]+)(?:\s+SETTINGS\s[^']*)?$`)
	// inParts are the formats in which the parts of a result, one after the other, are the
	// result: they have no header and no footer.
	inParts = regexp.MustCompile(`(?i)^(Native|RowBinary|CSV|(TSV|TabSeparated)(Raw)?|Values|JSON(Compact|Strings)?EachRow)$`)
)

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
	l := &lexer{text: sql}
	l.next()
	return sql[:l.at] + " " + e.mark + sql[l.at:]
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

// pieceSize is what is handed over of an insert's data at once. The engine keeps up to
// 16 pieces waiting.
const pieceSize = 256 << 10

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

	pieces := bufio.NewWriterSize(insert, pieceSize)
	_, err = io.Copy(pieces, data)
	if err == nil { // a body that was cut off is io.ErrUnexpectedEOF, which is no end
		err = pieces.Flush()
	}

	if err != nil {
		insert.Cancel()
		return unreadable(err)
	}

	return insert.Commit() // nil: 200 with an empty body
}

// answer runs a statement that is no INSERT with data. The rows of a SELECT in a format
// without header and footer are sent as they come, in constant memory, and the engine
// waits when the client is slow. The library puts header and footer around each part, so
// a result in another format is held as a whole.
func (e *execution) answer(sql string, reads bool) error {
	format := e.q.format
	if clause := formatClause.FindStringSubmatch(sql); clause != nil {
		format = clause[1]
	}

	a := newAnswer(e.w, e.q, format)
	var err error
	verb := strings.ToUpper((&lexer{text: sql}).next())
	if reads && (verb == "SELECT" || verb == "WITH") && inParts.MatchString(format) {
		err = e.conn.Stream(e.marked(sql), e.q.format, e.q.params, a.write)
	} else {
		var rows []byte
		rows, err = e.conn.Query(e.marked(sql), e.q.format, e.q.params)
		if err == nil {
			err = a.write(rows)
		}
	}

	switch {
	case a.gone:
		panic(http.ErrAbortHandler) // nobody is there to be answered
	case err != nil:
		a.fail(asException(err))
	default:
		_ = a.flush() // a client that has gone needs none
	}

	return nil
}

// killInterval is the time between two attempts to kill a statement. The first may come
// before the engine knows of it.
const killInterval = 50 * time.Millisecond

// watch kills the statement that carries mark when ctx ends before finished is called,
// which returns once nothing more is done to it. The library gives queries ids of its
// own that nobody learns, so each statement carries a mark, a comment, by which it is
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
