package libchdb

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Params are the values of a statement's named parameters, {name:Type}, in
// ClickHouse's text form with tabs, newlines and backslashes escaped, as its
// HTTP interface takes them.
type Params map[string]string

// Class says what a statement does, as the engine's own parser sees it.
type Class uint32

// The classes of chdb.h, the least restricted first.
const (
	ReadOnly       Class = iota // SELECT, SHOW, DESCRIBE, EXPLAIN, EXISTS, CHECK
	Mutating                    // INSERT, CREATE, ALTER, DROP, OPTIMIZE, …
	MutatingGlobal              // functions, users, named collections
	Control                     // USE, SET, SYSTEM, KILL, ATTACH, BACKUP, INTO OUTFILE, …
	Unknown                     // does not parse
)

// Analysis is the engine's reading of a text without running it.
type Analysis struct {
	Statements int // 0 when the text does not parse
	Class      Class
}

// Exception is the engine's refusal of a statement.
type Exception struct {
	Code int    // ClickHouse's error code, 1 or higher
	Text string // "Code: 60. DB::Exception: … (UNKNOWN_TABLE)"
}

func (e *Exception) Error() string { return e.Text }

// NewException makes an exception of this program's own, in the engine's form.
func NewException(code int, name, format string, args ...any) *Exception {
	return &Exception{Code: code, Text: fmt.Sprintf("Code: %d. DB::Exception: %s. (%s)", code, fmt.Sprintf(format, args...), name)}
}

var codePrefix = regexp.MustCompile(`^(?:Error: )?Code: (\d+)\. `)

// unknownException is ClickHouse's code for what is not its own exception.
const unknownException = 1002

// exceptionFrom reads what the library says of a failure; nil for an empty
// text. The stack trace that inserts add is of no use to a caller.
func exceptionFrom(text string) error {
	if text == "" {
		return nil
	}

	text, _, _ = strings.Cut(text, "\nStack trace:")
	text, _, _ = strings.Cut(strings.TrimSpace(text), ", Stack trace (when copying this message")
	match := codePrefix.FindStringSubmatch(text)
	if match == nil {
		return NewException(unknownException, "UNKNOWN_EXCEPTION", "%s", text)
	}

	code, _ := strconv.Atoi(match[1]) // digits only

	return &Exception{Code: code, Text: strings.TrimPrefix(text, "Error: ")}
}
