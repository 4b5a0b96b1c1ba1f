package libchdb

import (
	"errors"
	"testing"
)

func TestExceptionFrom(t *testing.T) {
	for said, want := range map[string]Exception{
		"Code: 60. DB::Exception: Unknown table. (UNKNOWN_TABLE)":                       {60, "Code: 60. DB::Exception: Unknown table. (UNKNOWN_TABLE)"},
		"Error: Code: 27. DB::Exception: x. (Y)\nStack trace:\n\n0. f":                  {27, "Code: 27. DB::Exception: x. (Y)"},
		"Code: 27. DB::Exception: x, Stack trace (when copying this message, …):\n\n0.": {27, "Code: 27. DB::Exception: x"},
		"Invalid or closed connection":                                                  {1002, "Code: 1002. DB::Exception: Invalid or closed connection. (UNKNOWN_EXCEPTION)"},
	} {
		var got *Exception
		if err := exceptionFrom(said); !errors.As(err, &got) || *got != want {
			t.Errorf("%q: %v", said, err)
		}
	}

	if err := exceptionFrom(""); err != nil {
		t.Error(err)
	}
}
