package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestMain lets this binary hold the lock of a data directory, as a run does: it
// has no more to do with SIGINT than a run in the background of a script.
func TestMain(m *testing.M) {
	dir := os.Getenv("HOLD_LOCK_OF")
	if dir == "" {
		os.Exit(m.Run())
	}

	signal.Ignore(os.Interrupt)
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}

	if err == nil {
		_, err = lock.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	}

	if err != nil {
		os.Exit(1)
	}

	_, _ = os.Stdout.WriteString("held\n")
	<-terminated
}

// holder starts a program of the given name that holds the lock of dir.
func holder(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}

	// No process may be forked while the file is written: it would have the file open for writing until it has become
	// another program, and this one could not be started.
	syscall.ForkLock.RLock()
	err = os.WriteFile(program, binary, 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}

	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), "HOLD_LOCK_OF="+dir)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}

	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = c.Process.Kill() }) // it may have ended
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("%q, %v", line, err)
	}

	return c
}

// It runs beside no other test: a process that another one forks would share the lock for a moment.
func TestStopRun_EndsTheRunOfTheFolder(t *testing.T) {
	dir := t.TempDir()
	run := holder(t, dir, "run", "-die-with-parent", "-bin", "x")
	var said strings.Builder
	if err := stopRun(dir, &said); err != nil || !strings.HasSuffix(said.String(), "stopped\n") {
		t.Fatalf("%v, said %q", err, said.String())
	}
	if err := run.Wait(); err != nil {
		t.Errorf("the run ended with %v", err)
	}

	said.Reset()
	if err := stopRun(dir, &said); err != nil || !strings.HasPrefix(said.String(), "nothing runs on ") {
		t.Errorf("again: %v, said %q", err, said.String())
	}
}

func TestStopRun_SaysThatNothingRuns(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	if err := stopRun(filepath.Join(t.TempDir(), "none"), &said); err != nil || !strings.HasPrefix(said.String(), "nothing runs on ") {
		t.Errorf("%v, said %q", err, said.String())
	}
}

// What is no run keeps running: a restore, another program, and a process that
// got the id which a run has left in the lock.
//
//rule:make-run/other-programs-on-the-machine
func TestStopRun_LeavesOthersAlone(t *testing.T) {
	t.Parallel()

	for name, start := range map[string]func(t *testing.T, dir string){
		"a restore":       func(t *testing.T, dir string) { holder(t, dir, "run", "-bin", "x", "-restore", "y") },
		"another program": func(t *testing.T, dir string) { holder(t, dir, "runner") },
		"another's id": func(t *testing.T, dir string) {
			holder(t, dir, "run")
			other := holder(t, t.TempDir(), "run")
			if err := os.WriteFile(filepath.Join(dir, "lock"), []byte(strconv.Itoa(other.Process.Pid)), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"nobody's id": func(t *testing.T, dir string) {
			holder(t, dir, "run")
			if err := os.Truncate(filepath.Join(dir, "lock"), 0); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			start(t, dir)
			if err := stopRun(dir, io.Discard); err == nil || !strings.Contains(err.Error(), "nothing was stopped") {
				t.Errorf("%v", err)
			}
		})
	}
}
