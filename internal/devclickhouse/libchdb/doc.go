// Package libchdb is the ClickHouse engine as a shared library: it installs the pinned
// build with npm, loads it into this process without cgo, and gives its C interface Go
// types: connections, statements, streamed inserts, exceptions. Nothing it returns
// points into the library. A process can open one data folder, once at a time.
//
// 26.5.3, npm's "latest", resets the process's signal handlers at every connect, after
// which a nil pointer in Go kills the process instead of panicking; 26.7.3 does not.
package libchdb
