package stack

import (
	"fmt"
	"syscall"
)

// attributes put a child into a process group of its own, so that a Ctrl-C at the
// terminal reaches this process only, and have the kernel kill it when this process is
// gone.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// DieWithParent asks the kernel for a SIGTERM when the parent process is gone, even if it
// was killed and could not pass anything on.
func DieWithParent() error {
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0)
	if errno != 0 {
		return fmt.Errorf("follow the parent process: %w", errno)
	}
	return nil
}
