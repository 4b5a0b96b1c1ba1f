package testbed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Engine is an embedded ClickHouse. Its methods are for one test at a time,
// NewDatabase and Exec excepted.
type Engine struct {
	URL string // http://127.0.0.1:port; stays the same over Kill and Start

	addr, dir string
	cmd       *exec.Cmd // nil while it does not run
	log       log
}

// StartEngine starts an engine of the test's own, which ends with the test.
func StartEngine(t testing.TB) *Engine {
	t.Helper()
	e := &Engine{addr: "127.0.0.1:0", dir: filepath.Join(t.TempDir(), "data")}
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the engine's log:\n%s", &e.log)
		}
	})
	return e
}

// Start starts a stopped or killed engine again: same address, same folder.
func (e *Engine) Start(t testing.TB) {
	t.Helper()
	if err := e.start(); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the engine with SIGKILL.
func (e *Engine) Kill(t testing.TB) {
	t.Helper()
	if e.cmd == nil {
		t.Fatal("the engine does not run")
	}
	_ = e.cmd.Process.Kill() // an engine that has ended already is dead enough
	_ = e.cmd.Wait()         // says "killed"
	e.cmd = nil
}

// Stop asks the engine to end and waits until it has.
func (e *Engine) Stop(t testing.TB) {
	t.Helper()
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
}

// start launches the engine and returns when it answers. Between an end and a
// start the port is free for others, so a port that is taken is asked for again.
func (e *Engine) start() error {
	if e.cmd != nil {
		return errors.New("the engine runs already")
	}
	for attempt := 0; ; attempt++ {
		err := e.launch()
		if err == nil || attempt == 50 || !strings.Contains(e.log.String(), "address already in use") {
			return err
		}
		time.Sleep(100 * time.Millisecond)
		e.log.reset()
	}
}

func (e *Engine) launch() error {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), addrVariable+"="+e.addr, dataVariable+"="+e.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the tests; the engine follows them
	cmd.Stderr = &e.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := fmt.Fscanln(out, &e.addr); err != nil {
		err = errors.Join(err, cmd.Wait())
		return fmt.Errorf("the engine did not start: %w\n%s", err, &e.log)
	}
	e.cmd, e.URL = cmd, "http://"+e.addr
	return nil
}

func (e *Engine) stop() error {
	if e.cmd == nil {
		return nil
	}
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	err := e.cmd.Wait()
	e.cmd = nil
	if said := e.log.String(); err != nil || strings.Contains(said, "panic:") || strings.Contains(said, "DATA RACE") {
		return fmt.Errorf("the engine ended with %w; its log:\n%s", err, said)
	}
	return nil
}

// Exec runs a statement as curl does and returns what it answers.
func (e *Engine) Exec(t testing.TB, statement string) string {
	t.Helper()
	resp, err := http.Post(e.URL, "text/plain", strings.NewReader(statement))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%.300s\n%d %s %v", statement, resp.StatusCode, body, err)
	}
	return string(body)
}

var databases atomic.Int32

// NewDatabase is the name of a database that is not there yet, and is dropped
// when the test ends.
func (e *Engine) NewDatabase(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test%d", databases.Add(1))
	t.Cleanup(func() {
		if e == shared.engine { // others take their databases along
			e.Exec(t, "DROP DATABASE IF EXISTS "+name)
		}
	})
	return name
}

// sharedEngine serves the tests that disturb nobody; each has a database of
// its own.
type sharedEngine struct {
	once   sync.Once
	dir    string
	engine *Engine
	err    error
}

var shared sharedEngine

// SharedEngine is the engine that all tests of the binary share. It must not be
// killed or stopped.
func SharedEngine(t testing.TB) *Engine {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "testbed-"); shared.err == nil {
			shared.engine = &Engine{addr: "127.0.0.1:0", dir: filepath.Join(shared.dir, "data")}
			shared.err = shared.engine.start()
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.engine
}

func (s *sharedEngine) stop() error {
	if s.engine == nil {
		return nil
	}
	return errors.Join(s.engine.stop(), os.RemoveAll(s.dir))
}

// log is what the engine said, for two goroutines.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *log) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}
