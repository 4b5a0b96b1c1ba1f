package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/engine/libchdb"
)

// The program is this test binary, started again.
const programVariable = "REPORTING_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
		return
	}
	testserver.Main(m)
}

// program is `reporting ARGS`, which is killed when it takes too long.
func program(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), programVariable+"=1"), env...)
	return cmd
}

func TestEngine_ServesUntilItIsAskedToStop(t *testing.T) {
	t.Parallel()
	if _, err := libchdb.Install(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	cmd := program(t, nil, "engine", "--addr", "127.0.0.1:0", "--data", t.TempDir(), "--die-with-parent")
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	url, err := lines.ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("%v\n%s", err, &log)
	}
	url = strings.TrimSpace(url)
	for path, want := range map[string]string{"/ping": "Ok.\n", "/?query=SELECT+40%2B2": "42\n"} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != want {
			t.Errorf("%s%s: %q", url, path, body)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(log.String(), "the engine has stopped") {
		t.Errorf("%v\n%s", err, &log)
	}
}

func TestProgram_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	without := []string{libchdb.PathVariable + "=", "XDG_CACHE_HOME=" + empty, "HOME=" + empty}
	for _, c := range []struct {
		env  []string
		args []string
		want string
	}{
		{nil, []string{"engine", "--no-such-flag"}, "reporting: unknown flag: --no-such-flag"},
		{nil, []string{"engine", "serve"}, `reporting: unknown command "serve" for "reporting engine"`},
		{nil, []string{"nothing"}, `reporting: unknown command "nothing"`},
		{nil, []string{"engine", "--log-format", "xml"}, `reporting: log.format: "xml"`},
		{nil, []string{"engine", "--addr", "0.0.0.0:8123", "--data", empty}, "only loopback is served"},
		{without, []string{"engine", "--data", empty}, "libchdb is not installed"},
		{without, []string{"engine", "--data", empty}, "`reporting engine install` fetches it"},
		{[]string{libchdb.PathVariable + "=/nowhere/libchdb.so"}, []string{"engine", "--data", empty}, "CHDB_LIBRARY: stat /nowhere/libchdb.so"},
		{append(without, "PATH="), []string{"engine", "install"}, "npm is missing"},
	} {
		out, err := program(t, c.env, c.args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: %v, said %q", c.args, err, out)
		}
	}
}

func TestProgram_Helps(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"engine", "--help"}} {
		out, err := program(t, nil, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Usage:") {
			t.Errorf("%q: %v %s", args, err, out)
		}
	}
	if out, _ := program(t, nil, "engine", "--help").CombinedOutput(); !strings.Contains(string(out), fmt.Sprint("$", libchdb.PathVariable)) {
		t.Errorf("%s", out)
	}
}
