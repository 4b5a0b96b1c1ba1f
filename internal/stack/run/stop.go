package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopTimeout bounds the wait for a run that stops; webhooks in flight have 10 s.
const stopTimeout = time.Minute

// stopRun is `make stop`: it asks the run that has the lock of a data directory
// to stop, and waits until the lock is free, which it is when the private Redis is
// gone, too. The lock says which process that is. A process that is no run, such
// as a restore, or one that got the id of a run that was killed, is left alone.
func stopRun(dir string, out io.Writer) error {
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if err == nil {
		defer lock.Close()
	}

	if errors.Is(err, os.ErrNotExist) || err == nil && free(lock) {
		fmt.Fprintf(out, "nothing runs on %s\n", dir)
		return nil
	}

	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}

	content, err := io.ReadAll(lock)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}

	holder := strings.TrimSpace(string(content))
	pid, err := strconv.Atoi(holder)
	if err != nil || !isRun(pid, lock) {
		return fmt.Errorf("%s is in use by process %q, which is no make run; nothing was stopped", dir, holder)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}

	fmt.Fprintf(out, "stopping process %d\n", pid)
	for deadline := time.Now().Add(stopTimeout); !free(lock); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d has not stopped after %s", pid, stopTimeout)
		}
	}

	fmt.Fprintln(out, "stopped")

	return nil
}

// isRun reports whether a process is this program, started to run the system, and has the
// lock's file open. That is known on Linux only; elsewhere a run is stopped by its process id.
func isRun(pid int, lock *os.File) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	program, err := os.Readlink(filepath.Join(proc, "exe"))
	if err != nil || filepath.Base(strings.TrimSuffix(program, " (deleted)")) != "run" { // deleted: built again since
		return false
	}
	arguments, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil || slices.Contains(strings.Split(string(arguments), "\x00"), "-restore") {
		return false
	}
	file, err := lock.Stat()
	if err != nil {
		return false
	}

	descriptors, err := os.ReadDir(filepath.Join(proc, "fd"))

	return err == nil && slices.ContainsFunc(descriptors, func(d os.DirEntry) bool {
		opened, err := os.Stat(filepath.Join(proc, "fd", d.Name()))
		return err == nil && os.SameFile(opened, file)
	})
}

// free reports whether nobody has the lock; then this process has it until the
// file is closed.
func free(lock *os.File) bool {
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
