package libchdb

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Library is the loaded library (see Load): its functions by their symbols, as chdb.h of
// the pinned release declares them. The variants ending in _n take lengths, so a NUL byte
// is data like any other. chdb_connection and the results are opaque pointers.
type Library struct {
	signalHandlers  func(enabled int32)                         `symbol:"chdb_set_signal_handlers_enabled"`
	connect         func(argc int32, argv pointer) pointer      `symbol:"chdb_connect"`
	closeConn       func(conn pointer)                          `symbol:"chdb_close_conn"`
	classify        classifyCall                                `symbol:"chdb_classify_query_n"`
	query           statementCall                               `symbol:"chdb_query_with_params_n"`
	resultBuffer    func(result pointer) pointer                `symbol:"chdb_result_buffer"`
	resultLength    func(result pointer) uintptr                `symbol:"chdb_result_length"`
	resultError     func(result pointer) string                 `symbol:"chdb_result_error"`
	resultReadRows  func(result pointer) uint64                 `symbol:"chdb_result_storage_rows_read"`
	resultReadBytes func(result pointer) uint64                 `symbol:"chdb_result_storage_bytes_read"`
	resultRows      func(result pointer) uint64                 `symbol:"chdb_result_rows_written"`
	resultBytes     func(result pointer) uint64                 `symbol:"chdb_result_bytes_written"`
	destroyResult   func(result pointer)                        `symbol:"chdb_destroy_query_result"`
	stream          statementCall                               `symbol:"chdb_stream_query_with_params_n"`
	fetch           func(conn, stream pointer) pointer          `symbol:"chdb_stream_fetch_result"`
	cancelStream    func(conn, stream pointer)                  `symbol:"chdb_stream_cancel_query"`
	insert          statementCall                               `symbol:"chdb_stream_insert_with_params_n"`
	insertAppend    func(stream, data pointer, n uintptr) int32 `symbol:"chdb_stream_append"`
	insertDone      func(stream pointer) pointer                `symbol:"chdb_stream_done"`
	insertCancel    func(stream pointer)                        `symbol:"chdb_stream_cancel_insert"`
	insertError     func(stream pointer) string                 `symbol:"chdb_stream_insert_error"`
	destroyInsert   func(stream pointer)                        `symbol:"chdb_destroy_insert_stream"`
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
