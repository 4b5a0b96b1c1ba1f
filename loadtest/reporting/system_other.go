//go:build !linux

package main

import "syscall"

// childAttributes: elsewhere than on Linux a child outlives a killed parent; an
// ordinary end stops it all the same.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// coldMeans says what forget achieves.
const coldMeans = "cold: the engine started again; its tables' files may still be in the page cache"

// forget does nothing: only Linux has a way that needs no privileges.
func forget(string) error { return nil }
