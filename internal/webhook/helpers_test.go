package webhook

import (
	"testing"

	"vendorapi/internal/testenv/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// tester is a testing.TB or a *rapid.T.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// check fails the test unless the condition holds; require also ends it.
func check(t tester, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, args...)
	}
}

func require(t tester, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, args...)
	}
}
