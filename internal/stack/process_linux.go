package stack

import "syscall"

// childAttributes makes the kernel kill the child when this process is gone,
// however it went.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
