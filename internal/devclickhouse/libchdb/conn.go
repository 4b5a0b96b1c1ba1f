// Package libchdb is the ClickHouse engine as a shared library: it installs the pinned
// build with npm, loads it into this process without cgo, and gives its C interface Go
// types: connections, statements, streamed inserts, exceptions. Nothing it returns
// points into the library. A process can open one data folder, once at a time.
//
// 26.5.3, npm's "latest", resets the process's signal handlers at every connect, after
// which a nil pointer in Go kills the process instead of panicking; 26.7.3 does not.
package libchdb

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"unsafe"

	"github.com/ebitengine/purego"
)

// success is chdb_state's value for it.
const success = 0

// Conn is a connection: a session of its own, with its own current database and
// settings. It runs one statement at a time; different connections run
// alongside each other.
type Conn struct {
	library *Library
	owner   unsafe.Pointer // what chdb_connect returned: a pointer to the handle
}

// Connect opens a connection. The first one starts the engine with the given
// arguments, such as "--path=/data", and each further one needs the same path;
// closing the last one stops the engine. It takes 0.3 ms, the first one 80 ms
// and the loading of the tables.
func (l *Library) Connect(args ...string) (*Conn, error) {
	args = append([]string{"clickhouse"}, args...)
	var pins runtime.Pinner
	defer pins.Unpin()
	argv := make([]unsafe.Pointer, len(args)+1) // ends with NULL, as in C
	for i, arg := range args {
		argv[i] = pinned(&pins, arg)
	}

	owner := l.connect(int32(len(args)), first(&pins, argv))
	if owner == nil {
		return nil, errors.New("the engine did not open its data; it says why on standard error")
	}

	return &Conn{library: l, owner: owner}, nil
}

// handle is what the calls want: the pointer at which owner points.
func (c *Conn) handle() unsafe.Pointer { return *(*unsafe.Pointer)(c.owner) }

// Close ends the session. What it was running is cancelled.
func (c *Conn) Close() {
	if c.owner != nil {
		c.library.closeConn(c.owner)
		c.owner = nil
	}
}

// Classify parses sql with the settings of this session and runs nothing.
func (c *Conn) Classify(sql string) (Analysis, error) {
	// chdb_query_analysis_v1
	report := struct{ size, statements, flags, class uint32 }{size: 16}
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&report)
	if c.library.classify(c.handle(), pinned(&pins, sql), uintptr(len(sql)), nil, 0, unsafe.Pointer(&report)) != success {
		return Analysis{}, errors.New("libchdb refused to classify a statement")
	}
	return Analysis{Statements: int(report.statements), Class: Class(report.class)}, nil
}

// Query runs sql and returns its rows as a whole, in format unless the text
// names another one. Errors of the engine are of type *Exception.
//
// The text goes through ClickHouse's client code, which has habits that a
// server has not: several statements run one after the other, data after an
// INSERT ends at the first blank line and what follows is run as SQL, `exit`
// does nothing and succeeds. The caller must rule these out.
func (c *Conn) Query(sql, format string, params Params) ([]byte, error) {
	result := c.call(c.library.query, sql, format, params)
	defer c.library.destroyResult(result)
	if err := exceptionFrom(c.library.resultError(result)); err != nil {
		return nil, err
	}
	return slices.Clone(c.library.data(result)), nil
}

// Stream runs sql, a SELECT, as Query does and hands its result over in parts, each of
// them a document of its own in the format. The engine waits while take works; an error
// of take ends the statement and is returned.
func (c *Conn) Stream(sql, format string, params Params, take func(part []byte) error) error {
	stream := c.call(c.library.stream, sql, format, params)
	defer c.library.destroyResult(stream)
	if err := exceptionFrom(c.library.resultError(stream)); err != nil {
		return err
	}

	for {
		part := c.library.fetch(c.handle(), stream)
		data, err := c.library.data(part), exceptionFrom(c.library.resultError(part))
		more := err == nil && len(data) > 0
		if more {
			err = take(data)
			if err != nil {
				c.library.cancelStream(c.handle(), stream)
			}
		}

		c.library.destroyResult(part)
		if !more || err != nil {
			return err
		}
	}
}

// statementCall is how the library takes a statement: its text, a format, and its named
// parameters in parallel arrays, each text with its length.
type statementCall func(conn, sql unsafe.Pointer, n uintptr, format unsafe.Pointer, formatLen uintptr,
	names, nameLens, values, valueLens unsafe.Pointer, count uintptr) unsafe.Pointer

func (c *Conn) call(f statementCall, sql, format string, params Params) unsafe.Pointer {
	var pins runtime.Pinner
	defer pins.Unpin()
	var names, values []unsafe.Pointer
	var nameLens, valueLens []uintptr
	for name, value := range params {
		names, nameLens = append(names, pinned(&pins, name)), append(nameLens, uintptr(len(name)))
		values, valueLens = append(values, pinned(&pins, value)), append(valueLens, uintptr(len(value)))
	}

	return f(c.handle(), pinned(&pins, sql), uintptr(len(sql)), pinned(&pins, format), uintptr(len(format)),
		first(&pins, names), first(&pins, nameLens), first(&pins, values), first(&pins, valueLens), uintptr(len(params)))
}

// pinned is the address of a copy of text that stays where it is until the
// pins are lifted. It is never NULL, which the library takes for an error.
func pinned(pins *runtime.Pinner, text string) unsafe.Pointer {
	return first(pins, append([]byte(text), 0))
}

// first is the address of an array, which stays where it is; NULL for an empty one.
func first[T any](pins *runtime.Pinner, array []T) unsafe.Pointer {
	if len(array) == 0 {
		return nil
	}
	pins.Pin(&array[0])
	return unsafe.Pointer(&array[0])
}

// data is valid until the result is destroyed.
func (l *Library) data(result unsafe.Pointer) []byte {
	return unsafe.Slice((*byte)(l.resultBuffer(result)), l.resultLength(result))
}

// Insert begins an insert whose data follows. head is the statement up to its
// data, without a FORMAT clause. Nothing but an INSERT with data is accepted,
// and nothing else is run. Exactly one of Commit and Cancel must end it, before
// the connection is used again.
func (c *Conn) Insert(head, format string, params Params) (*Insert, error) {
	stream := c.call(c.library.insert, head, format, params)
	if err := exceptionFrom(c.library.insertError(stream)); err != nil {
		c.library.destroyInsert(stream)
		return nil, err
	}
	return &Insert{library: c.library, stream: stream}, nil
}

// Insert is an insert in progress. The engine parses in a thread of its own and
// takes up to 16 writes ahead.
type Insert struct {
	library *Library
	stream  unsafe.Pointer
}

// Write hands over a piece of the data, which may end anywhere. It blocks while
// the engine is behind. After an error the insert can only be cancelled.
func (i *Insert) Write(data []byte) (int, error) {
	var pins runtime.Pinner
	defer pins.Unpin()
	if len(data) == 0 || i.library.insertAppend(i.stream, first(&pins, data), uintptr(len(data))) == success {
		return len(data), nil
	}

	err := exceptionFrom(i.library.insertError(i.stream))
	if err == nil {
		err = NewException(unknownException, "UNKNOWN_EXCEPTION", "the insert ended before its data")
	}

	return 0, fmt.Errorf("append: %w", err)
}

// Commit says that the data is complete and waits until it is stored.
func (i *Insert) Commit() error {
	result := i.library.insertDone(i.stream)
	defer i.library.destroyInsert(i.stream)
	defer i.library.destroyResult(result)
	return exceptionFrom(i.library.resultError(result))
}

// Cancel gives the insert up. What the engine has not stored by then, it
// forgets: it stores in blocks of about a million rows or 256 MB
// (min_insert_block_size_rows, min_insert_block_size_bytes).
func (i *Insert) Cancel() {
	i.library.insertCancel(i.stream)
	i.library.destroyInsert(i.stream)
}

// Library is the loaded library (see Load): its functions by their symbols, as chdb.h of
// the pinned release declares them. The variants ending in _n take lengths, so a NUL byte
// is data like any other. chdb_connection and the results are opaque pointers.
type Library struct {
	signalHandlers func(enabled int32)                         `symbol:"chdb_set_signal_handlers_enabled"`
	connect        func(argc int32, argv pointer) pointer      `symbol:"chdb_connect"`
	closeConn      func(conn pointer)                          `symbol:"chdb_close_conn"`
	classify       classifyCall                                `symbol:"chdb_classify_query_n"`
	query          statementCall                               `symbol:"chdb_query_with_params_n"`
	resultBuffer   func(result pointer) pointer                `symbol:"chdb_result_buffer"`
	resultLength   func(result pointer) uintptr                `symbol:"chdb_result_length"`
	resultError    func(result pointer) string                 `symbol:"chdb_result_error"`
	destroyResult  func(result pointer)                        `symbol:"chdb_destroy_query_result"`
	stream         statementCall                               `symbol:"chdb_stream_query_with_params_n"`
	fetch          func(conn, stream pointer) pointer          `symbol:"chdb_stream_fetch_result"`
	cancelStream   func(conn, stream pointer)                  `symbol:"chdb_stream_cancel_query"`
	insert         statementCall                               `symbol:"chdb_stream_insert_with_params_n"`
	insertAppend   func(stream, data pointer, n uintptr) int32 `symbol:"chdb_stream_append"`
	insertDone     func(stream pointer) pointer                `symbol:"chdb_stream_done"`
	insertCancel   func(stream pointer)                        `symbol:"chdb_stream_cancel_insert"`
	insertError    func(stream pointer) string                 `symbol:"chdb_stream_insert_error"`
	destroyInsert  func(stream pointer)                        `symbol:"chdb_destroy_insert_stream"`
}

type pointer = unsafe.Pointer

type classifyCall func(conn, sql pointer, n uintptr, database pointer, databaseLen uintptr, analysis pointer) int32

// Load opens the library at path. Loading takes 40 ms when the file is in the
// page cache, about 0.4 s when it is not. A process loads it once.
func Load(path string) (*Library, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load libchdb: %w", err)
	}

	l := &Library{}
	functions := reflect.ValueOf(l).Elem()
	for i := range functions.NumField() {
		symbol, err := purego.Dlsym(handle, functions.Type().Field(i).Tag.Get("symbol"))
		if err != nil {
			return nil, fmt.Errorf("load libchdb: %s is not libchdb %s: %w", path, Version, err)
		}
		call := functions.Field(i)
		purego.RegisterFunc(reflect.NewAt(call.Type(), call.Addr().UnsafePointer()).Interface(), symbol)
	}

	// Before the first connection: SIGSEGV and its kin belong to Go, which
	// turns a nil pointer into a panic of one request.
	l.signalHandlers(0)

	return l, nil
}
