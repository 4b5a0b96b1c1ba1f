// Package libchdb is the ClickHouse engine as a shared library: it installs the
// pinned build with npm, loads it into this process, and gives its C interface
// Go types: connections, statements, streamed inserts, exceptions.
//
// It owns the version. 26.5.3, npm's "latest", resets the process's signal
// handlers at every connect, after which a nil pointer in Go kills the process
// instead of panicking; 26.7.3 leaves them alone. It owns the memory that
// crosses the border: nothing it returns points into the library.
//
// It refuses HTTP, policy (which statements are wise) and cgo: the library is
// opened at run time, so that the programs build without a C compiler and run
// without the library for whoever has a ClickHouse server. Opening a library
// takes the system's loader, though: on Linux such a program is linked to glibc
// at run time. Built with the tag noengine it is static, as for an image that
// has nothing else in it, and Load fails.
//
// One process can open one data folder, and only once at a time: that is how
// the engine is made.
package libchdb
