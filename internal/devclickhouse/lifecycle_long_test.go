//go:build long

package devclickhouse

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
)

func TestStart_SaysWhatItLacks(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	t.Cleanup(func() { taken.Close() })
	notALibrary := filepath.Join(t.TempDir(), "libchdb.so")
	noError(t, os.WriteFile(notALibrary, []byte("not a library"), 0o600))
	file := filepath.Join(t.TempDir(), "file")
	noError(t, os.WriteFile(file, nil, 0o600))
	for what, c := range map[string]struct {
		o    childOptions
		want string
	}{
		"no library":      {childOptions{Library: "/nowhere/libchdb.so"}, "load libchdb: /nowhere/libchdb.so: cannot open shared object file"},
		"no real library": {childOptions{Library: notALibrary}, "load libchdb: " + notALibrary},
		"another library": {childOptions{Library: "libc.so.6"}, "is not libchdb"},
		"taken address":   {childOptions{Addr: taken.Addr().String()}, "address already in use"},
		"data is a file":  {childOptions{DataDir: file}, "not a directory"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if said := refusal(t, c.o); !strings.Contains(said, "engine: ") || !strings.Contains(said, c.want) {
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
	cmd := childCommand(childOptions{DataDir: filepath.Join(dir, "data"), DieWithParent: true})
	cmd.Dir = dir
	c := &child{cmd: cmd, log: &syncBuffer{}}
	out, err := cmd.StdoutPipe()
	noError(t, err)
	noError(t, cmd.Start())
	defer c.stop()
	_, err = fmt.Fscanln(out, &c.addr)
	noError(t, err)
	if got := c.must(t, "SELECT value = '12345' FROM system.server_settings WHERE name = 'mark_cache_size'", nil); got != "0\n" {
		t.Error("config.xml of the working folder is in force")
	}
}

func TestStop_LetsStatementsFinish(t *testing.T) {
	t.Parallel()
	c := start(t, childOptions{Grace: 20 * time.Second})
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
	c := start(t, childOptions{Grace: 200 * time.Millisecond})
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
	c := start(t, childOptions{})
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

// Who neither sends nor takes anything for the stall time is given up; who
// only pauses between requests is not.
func TestStall(t *testing.T) {
	t.Parallel()
	const stall = 2 * time.Second
	c := start(t, childOptions{Stall: stall})
	c.must(t, "CREATE DATABASE d", nil)
	c.must(t, "CREATE TABLE d.t (a Int32) ENGINE = MergeTree ORDER BY a", nil)

	sending, err := net.Dial("tcp", c.addr)
	noError(t, err)
	defer sending.Close()
	fmt.Fprintf(sending, "POST /?query=INSERT+INTO+d.t+FORMAT+CSV HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n1\n")
	answer, err := io.ReadAll(sending)
	noError(t, err)
	if !strings.Contains(string(answer), "CANNOT_READ_ALL_DATA") {
		t.Errorf("a stalled insert is answered %q", answer)
	}

	taking, err := net.Dial("tcp", c.addr)
	noError(t, err)
	defer taking.Close()
	fmt.Fprintf(taking, "GET /?query=SELECT+number+FROM+numbers(1000000000) HTTP/1.1\r\nHost: localhost\r\n\r\n")
	testserver.Await(t, "the query whose client takes nothing is given up", func() bool { return strings.Contains(c.log.String(), "client had gone") })

	alive := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	for range 2 {
		for path, want := range map[string]string{"/?query=SELECT+1": "1\n", "/ping": "Ok.\n"} {
			resp, err := alive.Get("http://" + c.addr + path)
			noError(t, err)
			body, err := io.ReadAll(resp.Body)
			noError(t, err)
			resp.Body.Close()
			if string(body) != want {
				t.Errorf("%s: %q", path, body)
			}
			time.Sleep(stall + 50*time.Millisecond)
		}
	}
	if got := c.must(t, "SELECT count() FROM d.t", nil); got != "0\n" {
		t.Errorf("%s rows of a stalled insert", got)
	}
}

// An engine whose parent was killed stops by itself. The parent is a shell,
// which is killed like `make run` might be.
func TestOrphan_StopsByItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	engine := childCommand(childOptions{DataDir: dir, DieWithParent: true})
	parent := exec.Command("sh", "-c", "\"$0\" -test.run='^$' & echo $!; wait", engine.Path)
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
