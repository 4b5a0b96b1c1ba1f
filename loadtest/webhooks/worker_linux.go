package main

import "syscall"

// childAttributes makes the kernel kill the child when this process is gone,
// however it went; a Ctrl-C at the terminal reaches this process only.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
