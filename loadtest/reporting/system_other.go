//go:build !linux

package main

// coldMeans says what forget achieves.
const coldMeans = "cold: the engine started again; its tables' files may still be in the page cache"

// forget does nothing: only Linux has a way that needs no privileges.
func forget(string) error { return nil }
