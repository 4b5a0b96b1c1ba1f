package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	chcompress "github.com/ClickHouse/ch-go/compress"

	"vendorapi/internal/devclickhouse/libchdb"
)

// heldBack is how much of a result waits before the status is sent, as the server's
// buffer does: what fails within the first megabyte gets the status of its failure.
const heldBack = 1 << 20

// answer writes a result of any length in constant memory, unless the client wants it
// whole. It is used by one goroutine at a time.
type answer struct {
	w       http.ResponseWriter
	limit   int // of what is held back, in bytes
	held    []byte
	started bool
	gone    bool               // the client did not take what was sent
	blocks  *chcompress.Writer // nil: the result is not compressed
	tag     string             // marks the exception that follows a part of a result
}

func newAnswer(w http.ResponseWriter, q *request, format string) *answer {
	a := &answer{w: w, limit: heldBack, tag: strings.ToLower(rand.Text())[:16]}
	if q.wait {
		a.limit = math.MaxInt
	}

	if q.compress {
		a.blocks = chcompress.NewWriter(chcompress.LevelZero, chcompress.LZ4)
	}

	h := w.Header()
	h.Set("Content-Type", contentType(format))
	h.Set("X-ClickHouse-Format", format)
	h.Set("X-ClickHouse-Exception-Tag", a.tag)

	return a
}

func contentType(format string) string {
	switch {
	case strings.HasPrefix(format, "JSON"):
		return "application/json; charset=UTF-8"
	case strings.HasPrefix(format, "CSV"):
		return "text/csv; charset=UTF-8"
	case format == "Native":
		return "application/octet-stream"
	}
	return "text/plain; charset=UTF-8"
}

func (a *answer) write(part []byte) error {
	a.held = append(a.held, part...)
	if !a.started && len(a.held) <= a.limit {
		return nil
	}
	return a.flush()
}

func (a *answer) flush() error {
	if len(a.held) == 0 {
		return nil // net/http adds Content-Length: 0, which clickhouse-go takes for "no rows"
	}

	a.started = true
	for block := range slices.Chunk(a.held, blockSize) {
		if a.blocks != nil {
			if err := a.blocks.Compress(block); err != nil {
				return fmt.Errorf("compress a block: %w", err)
			}
			block = a.blocks.Data
		}

		if _, err := a.w.Write(block); err != nil {
			a.gone = true
			return err
		}
	}

	a.held = a.held[:0]

	return nil
}

// fail reports a failure to the client. As long as nothing was sent that is a status and
// the text. After that the text follows the rows in the frame that the server uses,
// which clickhouse-go looks for, and the connection is cut: a cut answer is an error to
// every client, a short one would be believed.
func (a *answer) fail(e *libchdb.Exception) {
	if !a.started {
		refuse(a.w, e)
		return
	}

	// Not in a block: clickhouse-go searches what came over the wire.
	fmt.Fprintf(a.w, "\r\n__exception__\r\n%s\r\n%s\n%d %s\r\n__exception__\r\n", a.tag, e.Text, len(e.Text)+1, a.tag)
	_ = http.NewResponseController(a.w).Flush() // the connection is cut in any case
	panic(http.ErrAbortHandler)
}

// blockSize bounds what goes into one compressed block, as the server has it.
const blockSize = 1 << 20

func refuse(w http.ResponseWriter, e *libchdb.Exception) {
	w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
	w.Header().Set("X-ClickHouse-Exception-Code", strconv.Itoa(e.Code))
	w.WriteHeader(httpStatus(e.Code))
	_, _ = io.WriteString(w, e.Text+"\n") // who has gone needs no answer
}

// ClickHouse's error codes of what the front itself refuses.
const (
	codeCannotReadAllData = 33
	codeNotImplemented    = 48
	codeSyntaxError       = 62
	codeUnknownFormat     = 73
	codeUnknownSetting    = 115
	codeReadOnly          = 164
	codeTooLarge          = 229
	codeCancelled         = 394
	codeAuthentication    = 516
	codeUnknown           = 1002
)

// httpStatus gives ClickHouse's error codes a status, nearly as its server does.
// Clients read the code.
func httpStatus(code int) int {
	switch code {
	case codeReadOnly, codeAuthentication, 497: // ACCESS_DENIED
		return http.StatusForbidden
	case codeNotImplemented:
		return http.StatusNotImplemented
	case codeTooLarge:
		return http.StatusRequestEntityTooLarge
	case 159: // TIMEOUT_EXCEEDED
		return http.StatusRequestTimeout
	case 46, 47, 50, 56, 60, 63, codeUnknownFormat, 78, 81, codeUnknownSetting: // names that stand for nothing
		return http.StatusNotFound
	case 6, 15, 16, 25, 26, 27, 32, codeCannotReadAllData, 36, 38, 40, 41, 42, 43, 44, 53, codeSyntaxError, 69, 72, 117,
		130, 131, 167, 168, 271, 321, 349, 376, 407, 456, 457, 467, 691: // text or data that cannot be read or does not fit
		return http.StatusBadRequest
	}

	return http.StatusInternalServerError
}

func syntaxError(format string, args ...any) error {
	return libchdb.NewException(codeSyntaxError, "SYNTAX_ERROR", format, args...)
}

func notImplemented(format string, args ...any) error {
	return libchdb.NewException(codeNotImplemented, "NOT_IMPLEMENTED", format, args...)
}

// asException makes every error one that clients can read by its code.
func asException(err error) *libchdb.Exception {
	if e, ok := errors.AsType[*libchdb.Exception](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) {
		return libchdb.NewException(codeCancelled, "QUERY_WAS_CANCELLED", "Query was cancelled")
	}
	return libchdb.NewException(codeUnknown, "UNKNOWN_EXCEPTION", "%v", err)
}
