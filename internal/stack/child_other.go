//go:build !linux

package stack

import "syscall"

// attributes: elsewhere than on Linux a child outlives a killed parent; an ordinary end
// stops it all the same.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// DieWithParent: elsewhere than on Linux the parent's signals have to do.
func DieWithParent() error { return nil }
