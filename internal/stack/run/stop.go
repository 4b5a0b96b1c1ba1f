package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	path := filepath.Join(dir, "lock")
	lock, err := os.Open(path)
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
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	holder := strings.TrimSpace(string(content))
	pid, err := strconv.Atoi(holder)
	if err != nil || !isRun(pid, path) {
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

// free reports whether nobody has the lock; then this process has it until the
// file is closed.
func free(lock *os.File) bool {
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
