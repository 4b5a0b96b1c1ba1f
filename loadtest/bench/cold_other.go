//go:build !linux

package main

// coldMeans says what dropPages achieves.
const coldMeans = "cold: the engine started again; its tables' files may still be in the page cache"

// dropPages does nothing: only Linux has a way that needs no privileges.
func dropPages(string) error { return nil }
