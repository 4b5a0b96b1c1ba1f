//go:build long

package testserver

// Long tells whether the tests run with the tag long.
const Long = true
