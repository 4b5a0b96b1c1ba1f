//go:build !linux

package main

// dieWithParent: elsewhere than on Linux the parent's signals have to do.
func dieWithParent() error { return nil }

// isRun is known on Linux only; elsewhere a run is stopped by its process id.
func isRun(int, string) bool { return false }
