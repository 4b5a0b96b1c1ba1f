package stack

import "syscall"

// attributes put a child into a process group of its own, so that a Ctrl-C at the
// terminal reaches this process only, and have the kernel kill it when this process is
// gone.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
