package main

import (
	"fmt"
	"syscall"
)

// dieWithParent asks the kernel for a SIGTERM when make is gone, even if make
// was killed and could not pass anything on.
func dieWithParent() error {
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0)
	if errno != 0 {
		return fmt.Errorf("follow the parent process: %w", errno)
	}
	return nil
}
