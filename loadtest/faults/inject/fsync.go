package inject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// SlowDisk delays every fsync of one process: a tracer holds it at the call.
type SlowDisk struct {
	cmd  *exec.Cmd
	said *notes
	done chan struct{}
}

// attachPatience bounds how long a tracer may take to take hold of a process.
const attachPatience = 10 * time.Second

// SlowFsync begins to delay the fsyncs of the process and returns when the
// tracer has hold of it. It fails where strace is not installed or the machine
// forbids tracing. The delay ends with Stop or with the process.
func SlowFsync(ctx context.Context, pid int, delay time.Duration) (*SlowDisk, error) {
	path, err := exec.LookPath("strace")
	if err != nil {
		return nil, fmt.Errorf("slow fsync: %w (`make deps` installs it)", err)
	}
	s := &SlowDisk{said: &notes{attached: make(chan struct{})}, done: make(chan struct{})}
	// Every call but the two passes untouched (--seccomp-bpf would need a start
	// under the tracer). -f: the server syncs in a thread of its own, too.
	s.cmd = exec.Command(path, "-f", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", //nolint:noctx // Stop ends it in its own way
		"-e", "inject=fdatasync,fsync:delay_enter="+strconv.FormatInt(delay.Microseconds(), 10), "-p", strconv.Itoa(pid))
	s.cmd.Stderr = s.said
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the suite
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("slow fsync: %w", err)
	}
	go func() {
		_ = s.cmd.Wait() // how it ended is in what it said
		close(s.done)
	}()
	timeout := time.NewTimer(attachPatience)
	defer timeout.Stop()
	select {
	case <-s.said.attached:
		return s, nil
	case <-s.done:
		return nil, fmt.Errorf("slow fsync: strace: %s", s.said)
	case <-timeout.C:
		s.Stop()
		return nil, errors.New("slow fsync: strace did not take hold in time")
	case <-ctx.Done():
		s.Stop()
		return nil, context.Cause(ctx)
	}
}

// Stop lets go of the process and waits until the tracer has ended.
func (s *SlowDisk) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended with the process
	select {
	case <-s.done:
	case <-time.After(5 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.done
	}
}

// notes keeps the first words of a tracer and tells when it has taken hold.
type notes struct {
	mu       sync.Mutex
	text     []byte
	once     sync.Once
	attached chan struct{}
}

func (n *notes) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.text) < 4<<10 {
		n.text = append(n.text, b...)
	}
	if bytes.Contains(n.text, []byte("attached")) {
		n.once.Do(func() { close(n.attached) })
	}
	return len(b), nil
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return string(bytes.TrimSpace(n.text))
}
