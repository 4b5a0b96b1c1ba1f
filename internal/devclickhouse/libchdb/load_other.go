//go:build !((linux || darwin) && (amd64 || arm64)) || noengine

package libchdb

import (
	"fmt"
	"runtime"
)

// Library never exists here: no build of the library runs on this platform, or
// this program was built with the tag noengine.
type Library struct{}

// Conn never exists here.
type Conn struct{}

// Insert never exists here.
type Insert struct{}

// Load fails with ErrNoLibrary.
func Load(string) (*Library, error) {
	if _, err := platformOf(runtime.GOOS, runtime.GOARCH); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: this program was built without the embedded engine (tag noengine); set CLICKHOUSE_URL to a ClickHouse server", ErrNoLibrary)
}

// Version is empty.
func (*Library) Version() string { return "" }

// Connect fails with ErrNoLibrary.
func (*Library) Connect(...string) (*Conn, error) { return nil, ErrNoLibrary }

// Close does nothing.
func (*Conn) Close() {}

// Classify fails with ErrNoLibrary.
func (*Conn) Classify(string) (Analysis, error) { return Analysis{}, ErrNoLibrary }

// Query fails with ErrNoLibrary.
func (*Conn) Query(string, string, Params) (Result, error) { return Result{}, ErrNoLibrary }

// Insert fails with ErrNoLibrary.
func (*Conn) Insert(string, string, Params) (*Insert, error) { return nil, ErrNoLibrary }

// Write fails with ErrNoLibrary.
func (*Insert) Write([]byte) (int, error) { return 0, ErrNoLibrary }

// Commit fails with ErrNoLibrary.
func (*Insert) Commit() (Progress, error) { return Progress{}, ErrNoLibrary }

// Cancel does nothing.
func (*Insert) Cancel() {}
