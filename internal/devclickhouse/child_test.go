package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode"

	_ "time/tzdata" // clickhouse-go looks Europe/Istanbul up; not every machine has it

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"vendorapi/internal/devclickhouse/libchdb"
	"vendorapi/internal/testenv/testserver"
)

// The engine runs in a process of its own, in the tests as always: this test binary,
// started again with its arguments and this variable.
const childVariable = "ENGINE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		os.Exit(0)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	_, err := libchdb.Install(ctx, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests need the engine's library:", err)
		os.Exit(1)
	}

	code := m.Run()
	shared.stop()
	os.Exit(code)
}

// child is an engine under test.
type child struct {
	addr string
	cmd  *exec.Cmd
	log  *syncBuffer
	once sync.Once
	err  error // how it ended
}

// syncBuffer is a bytes.Buffer for two goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// childCommand is the engine on a free port, with its tables in dir.
func childCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{"-addr", "127.0.0.1:0", "-data", dir, "-grace", "5s", "-die-with-parent"}, args...)...)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	// Should this process be killed, the child stops by itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// launch starts an engine and returns when it answers.
func launch(dir string, args ...string) (*child, error) {
	c := &child{cmd: childCommand(dir, args...), log: &syncBuffer{}}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	c.cmd.Stderr = c.log
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}

	var url string
	if _, err := fmt.Fscanln(out, &url); err != nil {
		c.wait()
		return nil, fmt.Errorf("the engine did not start: %w\n%s", c.err, c.log)
	}

	c.addr = strings.TrimPrefix(url, "http://")

	return c, nil
}

// wait returns when the engine has ended.
func (c *child) wait() { c.once.Do(func() { c.err = c.cmd.Wait() }) }

func (c *child) kill() {
	_ = c.cmd.Process.Signal(syscall.SIGKILL)
	c.wait()
}

// stop asks the engine to end and waits until it has.
func (c *child) stop() {
	if c == nil || c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	c.wait()
}

// start is launch for a test.
func start(t testing.TB, dir string, args ...string) *child {
	t.Helper()
	c, err := launch(dir, args...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		c.stop()
		if t.Failed() {
			t.Logf("the engine's log:\n%s", c.log)
		}
		if strings.Contains(c.log.String(), "DATA RACE") || strings.Contains(c.log.String(), "panic") {
			t.Errorf("the engine's log:\n%s", c.log)
		}
	})

	return c
}

// sharedEngine serves the tests that disturb nobody; each has a database of its
// own.
type sharedEngine struct {
	once  sync.Once
	dir   string
	child *child
	err   error
}

var (
	shared    sharedEngine
	databases atomic.Int32 // for names that are new
)

func (s *sharedEngine) stop() {
	if s.child == nil {
		return
	}

	s.child.stop()
	_ = os.RemoveAll(s.dir)
	if s.child.err != nil || strings.Contains(s.child.log.String(), "DATA RACE") || strings.Contains(s.child.log.String(), "panic") {
		fmt.Fprintf(os.Stderr, "the shared engine ended with %v; its log:\n%s", s.child.err, s.child.log)
		os.Exit(1)
	}
}

// database makes a database on the shared engine.
func database(t testing.TB) (c *child, name string) {
	t.Helper()
	shared.once.Do(func() {
		shared.dir, shared.err = os.MkdirTemp("", "engine-test-")
		if shared.err == nil {
			shared.child, shared.err = launch(filepath.Join(shared.dir, "data"))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}

	name = fmt.Sprintf("t%d_", databases.Add(1)) + strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '_'
	}, t.Name())

	shared.child.must(t, "CREATE DATABASE "+name, nil)

	return shared.child, name
}

// reply is what an HTTP request came to.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // the body was cut off
}

// ask sends a statement as curl does.
func (c *child) ask(t testing.TB, sql string, values url.Values) reply {
	t.Helper()
	return c.send(t, http.MethodPost, values, strings.NewReader(sql), nil)
}

func (c *child) send(t testing.TB, method string, values url.Values, body io.Reader, header http.Header) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.addr+"/?"+values.Encode(), body)
	if err != nil {
		t.Fatal(err)
	}

	for name, value := range header {
		req.Header[name] = value
	}

	if host := header.Get("Host"); host != "" {
		req.Host = host
	}

	// Compression is for the test to undo.
	resp, err := (&http.Client{Transport: plainTransport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	content, err := io.ReadAll(resp.Body)

	return reply{resp.StatusCode, resp.Header, string(content), err}
}

var plainTransport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}

// must runs a statement that succeeds and returns its result.
func (c *child) must(t testing.TB, sql string, values url.Values) string {
	t.Helper()
	r := c.ask(t, sql, values)
	if r.status != http.StatusOK || r.err != nil {
		t.Fatalf("%.300s\n%d %s %v", sql, r.status, r.body, r.err)
	}
	return r.body
}

// connect opens clickhouse-go on a database.
func (c *child) connect(t testing.TB, name string, change ...func(*clickhouse.Options)) driver.Conn {
	t.Helper()
	o := &clickhouse.Options{Protocol: clickhouse.HTTP, Addr: []string{c.addr}, Auth: clickhouse.Auth{Database: name}}
	for _, f := range change {
		f(o)
	}

	conn, err := clickhouse.Open(o)
	noError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stream begins a statement and leaves its result to be read.
func (c *child) stream(t testing.TB, sql string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.addr, strings.NewReader(sql))
	noError(t, err)
	return plainTransport.RoundTrip(req)
}

// awaitRunning waits until the statement of that id runs.
func (c *child) awaitRunning(t testing.TB, id string) {
	t.Helper()
	testserver.Await(t, id+" runs", func() bool {
		return c.must(t, "SELECT count() FROM system.processes WHERE Settings['log_comment'] = '"+id+"'", nil) != "0\n"
	})
}
