//go:build !long

package testserver

// Long reports whether the tests run with the tag long.
const Long = false
