package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// refusal starts an engine that must not start, and returns what it says.
func refusal(t *testing.T, o childOptions) string {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	o.DieWithParent = true
	cmd := childCommand(o)
	tooLong := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer tooLong.Stop()
	out, err := cmd.CombinedOutput()
	if err == nil || !tooLong.Stop() {
		t.Fatalf("it started: %s", out)
	}
	return string(out)
}

func TestStart_SaysWhatIsWrong(t *testing.T) {
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
		"remote address":  {childOptions{Addr: "0.0.0.0:0"}, "only loopback is served"},
		"every address":   {childOptions{Addr: ":0"}, "only loopback is served"},
		"no address":      {childOptions{Addr: "here"}, "missing port"},
		"data is a file":  {childOptions{DataDir: file}, "not a directory"},
		"no queries":      {childOptions{MaxQueries: -1}, "at least one is needed"},
		"no body":         {childOptions{MaxBody: 1}, "at least 1048576 are needed"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if said := refusal(t, c.o); !strings.Contains(said, "engine: ") || !strings.Contains(said, c.want) {
				t.Errorf("said %q", said)
			}
		})
	}
}

func TestStart_OneProcessPerFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := start(t, childOptions{DataDir: dir})
	c.must(t, "CREATE DATABASE d", nil)
	want := fmt.Sprintf("the data folder is in use: %s, by process %d", dir, c.cmd.Process.Pid)
	if said := refusal(t, childOptions{DataDir: dir}); !strings.Contains(said, want) {
		t.Errorf("said %q", said)
	}
	c.stop()
	if again := start(t, childOptions{DataDir: dir}); again.must(t, "EXISTS DATABASE d", nil) != "1\n" {
		t.Error("the database is gone")
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
	for c.must(t, "SELECT count() FROM system.processes WHERE Settings['log_comment'] = 'last'", nil) == "0\n" {
		time.Sleep(10 * time.Millisecond)
	}
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
	for c.must(t, "SELECT count() FROM system.processes WHERE Settings['log_comment'] = 'endless'", nil) == "0\n" {
		time.Sleep(10 * time.Millisecond)
	}
	began := time.Now()
	c.stop()
	if c.err != nil || time.Since(began) > 8*time.Second {
		t.Errorf("ended after %v with %v\n%s", time.Since(began), c.err, c.log)
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
		resp, err := plainTransport.RoundTrip(post(t, c, sql))
		noError(t, err)
		_, err = resp.Body.Read(make([]byte, 100))
		noError(t, err)
		resp.Body.Close()
	}
	deadline := time.Now().Add(10 * time.Second)
	for c.must(t, "SELECT count() FROM system.processes", nil) != "1\n" || pipes() > before {
		if time.Now().After(deadline) {
			t.Fatalf("%d pipes, %d before; running: %s", pipes(), before, c.must(t, "SELECT query FROM system.processes", nil))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func post(t *testing.T, c *child, sql string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.addr, strings.NewReader(sql))
	noError(t, err)
	return req
}

// Who neither sends nor takes anything for the stall time is given up; who
// only pauses between requests is not.
func TestStall(t *testing.T) {
	t.Parallel()
	const stall = 500 * time.Millisecond
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
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(c.log.String(), "client had gone"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a query whose client takes nothing goes on")
		}
	}

	alive := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	for range 3 {
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
	parent := shell(t, engine, "\"$0\" -test.run='^$' & echo $!; wait")
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
	for deadline := time.Now().Add(10 * time.Second); !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the engine outlives its parent")
		}
	}
}
