//go:build long

package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"vendorapi/internal/devclickhouse/libchdb"
	"vendorapi/internal/testenv/testserver"
)

func TestStart_SaysWhatItLacks(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	t.Cleanup(func() { taken.Close() })
	notALibrary := filepath.Join(t.TempDir(), "libchdb.so")
	noError(t, os.WriteFile(notALibrary, []byte("not a library"), 0o600))
	file := filepath.Join(t.TempDir(), "file")
	noError(t, os.WriteFile(file, nil, 0o600))
	for what, c := range map[string]struct {
		library, dir, addr string
		want               string
	}{
		"no real library": {library: notALibrary, want: "load libchdb: " + notALibrary},
		"taken address":   {addr: taken.Addr().String(), want: "address already in use"},
		"data is a file":  {dir: file, want: "not a directory"},
	} {
		t.Run(what, func(t *testing.T) {
			if c.library != "" {
				t.Setenv(libchdb.PathVariable, c.library)
			}
			said := refusal(t, cmp.Or(c.dir, t.TempDir()), "-addr", cmp.Or(c.addr, "127.0.0.1:0"))
			if !strings.Contains(said, "devclickhouse: ") || !strings.Contains(said, c.want) {
				t.Errorf("said %q", said)
			}
		})
	}
}

// A stray configuration of another ClickHouse does not reach the engine.
func TestStart_IgnoresStrayConfiguration(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	stray := []byte("<clickhouse><default_database>stray</default_database><mark_cache_size>12345</mark_cache_size></clickhouse>")
	noError(t, os.WriteFile(filepath.Join(dir, "config.xml"), stray, 0o600))
	cmd := childCommand(filepath.Join(dir, "data"))
	cmd.Dir = dir
	c := &child{cmd: cmd, log: &syncBuffer{}}
	out, err := cmd.StdoutPipe()
	noError(t, err)
	noError(t, cmd.Start())
	defer c.stop()
	_, err = fmt.Fscanf(out, "http://%s\n", &c.addr)
	noError(t, err)
	if got := c.must(t, "SELECT value = '12345' FROM system.server_settings WHERE name = 'mark_cache_size'", nil); got != "0\n" {
		t.Error("config.xml of the working folder is in force")
	}
}

func TestStop_LetsStatementsFinish(t *testing.T) {
	t.Parallel()

	c := start(t, t.TempDir(), "-grace", "20s")
	answers := make(chan reply, 1)
	go func() { answers <- c.ask(t, "SELECT sleep(1.5)", params("query_id", "last")) }()
	c.awaitRunning(t, "last")
	noError(t, c.cmd.Process.Signal(syscall.SIGTERM))
	if r := <-answers; r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}

	c.wait()
	if c.err != nil || !strings.Contains(c.log.String(), "the engine has stopped") {
		t.Errorf("%v\n%s", c.err, c.log)
	}
}

func TestStop_KillsWhatDoesNotFinish(t *testing.T) {
	t.Parallel()

	c := start(t, t.TempDir(), "-grace", "200ms")
	answered := make(chan error, 1)
	go func() {
		resp, err := http.Post("http://"+c.addr+"/?query_id=endless", "text/plain", strings.NewReader("SELECT count() FROM numbers(10000000000000) WHERE NOT ignore(sipHash64(number))"))
		if err == nil {
			resp.Body.Close()
		}
		answered <- err
	}()

	c.awaitRunning(t, "endless")
	c.stop()
	if c.err != nil {
		t.Errorf("ended with %v\n%s", c.err, c.log)
	}

	if err := <-answered; err == nil {
		t.Error("the endless query was answered")
	}
}

// A client that takes the first rows and goes leaves nothing behind, neither a
// query nor a pipe.
func TestClientGoes_EngineStops(t *testing.T) {
	t.Parallel()

	c := start(t, t.TempDir())
	pipes := func() (n int) { // other descriptors belong to the engine's threads
		dir := fmt.Sprintf("/proc/%d/fd/", c.cmd.Process.Pid)
		entries, err := os.ReadDir(dir)
		noError(t, err)
		for _, e := range entries {
			if target, err := os.Readlink(dir + e.Name()); err == nil && strings.HasPrefix(target, "pipe:") {
				n++
			}
		}
		return n
	}

	c.must(t, "SELECT 1", nil)
	before := pipes()
	for i := range 10 {
		sql := "SELECT number, toString(number) FROM numbers(100000000000)"
		if i%2 == 0 {
			sql += " SETTINGS log_comment = 'so it is not found'"
		}

		resp, err := c.stream(t, sql)
		noError(t, err)
		_, err = resp.Body.Read(make([]byte, 100))
		noError(t, err)
		resp.Body.Close()
	}

	testserver.Await(t, "no statement runs, and no pipe is left", func() bool {
		return c.must(t, "SELECT count() FROM system.processes", nil) == "1\n" && pipes() <= before
	})
}

// An engine whose parent was killed stops by itself. The parent is a shell,
// which is killed like `make run` might be.
func TestOrphan_StopsByItself(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	engine := childCommand(dir)
	parent := exec.Command("sh", append([]string{"-c", "\"$0\" \"$@\" & echo $!; wait"}, engine.Args...)...)
	parent.Env = engine.Env
	out, err := parent.StdoutPipe()
	noError(t, err)
	noError(t, parent.Start())
	var pid int
	var addr string
	_, err = fmt.Fscanln(out, &pid)
	noError(t, err)
	_, err = fmt.Fscanln(out, &addr)
	noError(t, err)
	noError(t, parent.Process.Kill())
	_ = parent.Process.Release()
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }() // should it outlive its parent
	testserver.Await(t, "the engine has ended", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}
