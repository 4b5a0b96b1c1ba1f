package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// isRun reports whether a process is this program, started to run the system, and
// has the lock's file open.
func isRun(pid int, lock string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	program, err := os.Readlink(filepath.Join(proc, "exe"))
	if err != nil || filepath.Base(strings.TrimSuffix(program, " (deleted)")) != "run" { // deleted: built again since
		return false
	}
	arguments, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil || slices.Contains(strings.Split(string(arguments), "\x00"), "-restore") {
		return false
	}
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	return err == nil && slices.ContainsFunc(files, func(f os.DirEntry) bool {
		opened, err := os.Readlink(filepath.Join(proc, "fd", f.Name()))
		return err == nil && opened == lock
	})
}
