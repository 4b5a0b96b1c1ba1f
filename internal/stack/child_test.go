package stack

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary plays a parent that starts a child and says its pid.
func TestMain(m *testing.M) {
	if os.Getenv("CHILD_TEST_PARENT") == "" {
		os.Exit(m.Run())
	}

	cmd := exec.Command("sleep", "300")
	if err := StartChild(cmd); err != nil {
		os.Exit(1)
	}

	os.Stdout.WriteString(strconv.Itoa(cmd.Process.Pid) + "\n")
	time.Sleep(5 * time.Minute)
}

func TestStartChild_EndsWithAKilledParent(t *testing.T) {
	t.Parallel()

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	parent := exec.CommandContext(t.Context(), self)
	parent.Env = append(os.Environ(), "CHILD_TEST_PARENT=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}

	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	_ = parent.Wait() // it was killed

	for over := time.Now().Add(2 * time.Minute); !gone(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(over) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the child outlived its parent")
		}
	}
}

// gone reports that a process is gone, or waits to be reaped by init.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(status), ") Z ")
}

func TestStartChild_ReportsWhatCannotBeStarted(t *testing.T) {
	t.Parallel()
	if err := StartChild(exec.Command("/nowhere/at/all")); err == nil {
		t.Error("started what is not there")
	}
}
