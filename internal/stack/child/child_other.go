//go:build !linux

package child

import "syscall"

// Elsewhere than on Linux a child outlives a killed parent; an ordinary end
// stops it all the same.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
