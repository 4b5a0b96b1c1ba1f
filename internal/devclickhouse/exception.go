package devclickhouse

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"vendorapi/internal/devclickhouse/libchdb"
)

// ClickHouse's error codes of what the front itself refuses.
const (
	codeCannotReadAllData = 33
	codeNotImplemented    = 48
	codeSyntaxError       = 62
	codeUnknownFormat     = 73
	codeUnknownSetting    = 115
	codeReadOnly          = 164
	codeTooManyQueries    = 202
	codeSameQueryID       = 216
	codeTooLarge          = 229
	codeCancelled         = 394
	codeAuthentication    = 516
	codeUnknown           = 1002
)

// statusOf, malformed and missing give ClickHouse's error codes an HTTP status,
// as its server does; the rest is 500. Clients read the code.
var statusOf = map[int]int{
	codeNotImplemented: http.StatusNotImplemented,
	159:                http.StatusRequestTimeout, // TIMEOUT_EXCEEDED
	codeReadOnly:       http.StatusForbidden,      // the server says 500; a GET was used for a change
	codeTooManyQueries: http.StatusServiceUnavailable,
	codeTooLarge:       http.StatusRequestEntityTooLarge,
	codeAuthentication: http.StatusForbidden,
	497:                http.StatusForbidden, // ACCESS_DENIED
}

// malformed are the codes of a text or of data that cannot be read or does not
// fit; missing, of names that stand for nothing.
var (
	malformed = []int{
		6,   // CANNOT_PARSE_TEXT
		15,  // DUPLICATE_COLUMN
		16,  // NO_SUCH_COLUMN_IN_TABLE
		25,  // CANNOT_PARSE_ESCAPE_SEQUENCE
		26,  // CANNOT_PARSE_QUOTED_STRING
		27,  // CANNOT_PARSE_INPUT_ASSERTION_FAILED
		32,  // ATTEMPT_TO_READ_AFTER_EOF
		33,  // CANNOT_READ_ALL_DATA
		36,  // BAD_ARGUMENTS
		38,  // CANNOT_PARSE_DATE
		40,  // CHECKSUM_DOESNT_MATCH
		41,  // CANNOT_PARSE_DATETIME
		42,  // NUMBER_OF_ARGUMENTS_DOESNT_MATCH
		43,  // ILLEGAL_TYPE_OF_ARGUMENT
		44,  // ILLEGAL_COLUMN
		53,  // TYPE_MISMATCH
		62,  // SYNTAX_ERROR
		69,  // ARGUMENT_OUT_OF_BOUND
		72,  // CANNOT_PARSE_NUMBER
		117, // INCORRECT_DATA
		130, // CANNOT_READ_ARRAY_FROM_TEXT
		131, // TOO_LARGE_STRING_SIZE
		167, // TOO_DEEP_AST
		168, // TOO_BIG_AST
		271, // CANNOT_DECOMPRESS
		321, // VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
		349, // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
		376, // CANNOT_PARSE_UUID
		407, // DECIMAL_OVERFLOW
		456, // UNKNOWN_QUERY_PARAMETER
		457, // BAD_QUERY_PARAMETER
		467, // CANNOT_PARSE_BOOL
		691, // UNKNOWN_ELEMENT_OF_ENUM
	}
	missing = []int{
		46,  // UNKNOWN_FUNCTION
		47,  // UNKNOWN_IDENTIFIER
		50,  // UNKNOWN_TYPE
		56,  // UNKNOWN_STORAGE
		60,  // UNKNOWN_TABLE
		63,  // UNKNOWN_AGGREGATE_FUNCTION
		73,  // UNKNOWN_FORMAT
		78,  // UNKNOWN_TYPE_OF_QUERY
		81,  // UNKNOWN_DATABASE
		115, // UNKNOWN_SETTING
	}
)

func httpStatus(e *libchdb.Exception) int {
	if status, ok := statusOf[e.Code]; ok {
		return status
	}
	switch {
	case slices.Contains(malformed, e.Code):
		return http.StatusBadRequest
	case slices.Contains(missing, e.Code):
		return http.StatusNotFound
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
	var e *libchdb.Exception
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled):
		return libchdb.NewException(codeCancelled, "QUERY_WAS_CANCELLED", "Query was cancelled")
	}
	return libchdb.NewException(codeUnknown, "UNKNOWN_EXCEPTION", "%v", err)
}
