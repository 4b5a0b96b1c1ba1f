//go:build !linux

package main

import "syscall"

// childAttributes: elsewhere than on Linux a child outlives a killed parent; an
// ordinary end stops it all the same.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
