package libchdb

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Library is the loaded library (see Load): its functions, as chdb.h of the pinned
// release declares them. The variants ending in _n take lengths, so a NUL byte is data
// like any other. chdb_connection and the results are opaque pointers.
type Library struct {
	signalHandlers  func(enabled int32)
	connect         func(argc int32, argv unsafe.Pointer) unsafe.Pointer
	closeConn       func(conn unsafe.Pointer)
	classify        func(conn, sql unsafe.Pointer, n uintptr, database unsafe.Pointer, databaseLen uintptr, analysis unsafe.Pointer) int32
	query           statementCall
	resultBuffer    func(result unsafe.Pointer) unsafe.Pointer
	resultLength    func(result unsafe.Pointer) uintptr
	resultError     func(result unsafe.Pointer) string
	resultReadRows  func(result unsafe.Pointer) uint64
	resultReadBytes func(result unsafe.Pointer) uint64
	resultRows      func(result unsafe.Pointer) uint64
	resultBytes     func(result unsafe.Pointer) uint64
	destroyResult   func(result unsafe.Pointer)
	stream          statementCall
	fetch           func(conn, stream unsafe.Pointer) unsafe.Pointer
	cancelStream    func(conn, stream unsafe.Pointer)
	insert          statementCall
	insertAppend    func(stream, data unsafe.Pointer, n uintptr) int32
	insertDone      func(stream unsafe.Pointer) unsafe.Pointer
	insertCancel    func(stream unsafe.Pointer)
	insertError     func(stream unsafe.Pointer) string
	destroyInsert   func(stream unsafe.Pointer)
}

// symbols pairs each call with its name in the library.
func (l *Library) symbols() map[string]any {
	return map[string]any{
		"chdb_set_signal_handlers_enabled": &l.signalHandlers,
		"chdb_connect":                     &l.connect,
		"chdb_close_conn":                  &l.closeConn,
		"chdb_classify_query_n":            &l.classify,
		"chdb_query_with_params_n":         &l.query,
		"chdb_result_buffer":               &l.resultBuffer,
		"chdb_result_length":               &l.resultLength,
		"chdb_result_error":                &l.resultError,
		"chdb_result_storage_rows_read":    &l.resultReadRows,
		"chdb_result_storage_bytes_read":   &l.resultReadBytes,
		"chdb_result_rows_written":         &l.resultRows,
		"chdb_result_bytes_written":        &l.resultBytes,
		"chdb_destroy_query_result":        &l.destroyResult,
		"chdb_stream_query_with_params_n":  &l.stream,
		"chdb_stream_fetch_result":         &l.fetch,
		"chdb_stream_cancel_query":         &l.cancelStream,
		"chdb_stream_insert_with_params_n": &l.insert,
		"chdb_stream_append":               &l.insertAppend,
		"chdb_stream_done":                 &l.insertDone,
		"chdb_stream_cancel_insert":        &l.insertCancel,
		"chdb_stream_insert_error":         &l.insertError,
		"chdb_destroy_insert_stream":       &l.destroyInsert,
	}
}

// Load opens the library at path. Loading takes 40 ms when the file is in the
// page cache, about 0.4 s when it is not. A process loads it once.
func Load(path string) (*Library, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load libchdb: %w", err)
	}
	l := &Library{}
	for name, call := range l.symbols() {
		symbol, err := purego.Dlsym(handle, name)
		if err != nil {
			return nil, fmt.Errorf("load libchdb: %s is not libchdb %s: %w", path, Version, err)
		}
		purego.RegisterFunc(call, symbol)
	}
	// Before the first connection: SIGSEGV and its kin belong to Go, which
	// turns a nil pointer into a panic of one request.
	l.signalHandlers(0)
	return l, nil
}
