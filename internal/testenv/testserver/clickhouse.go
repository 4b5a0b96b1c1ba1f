package testserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/stack"
)

// clickHouseVariable holds the URL of the run's ClickHouse.
const clickHouseVariable = "TESTSERVER_CLICKHOUSE_URL"

// ClickHouse is the embedded engine (internal/devclickhouse) in a process of its own.
// The methods of a dedicated one are for one goroutine at a time.
type ClickHouse struct {
	URL string // http://127.0.0.1:port; stays the same over Kill and Start

	addr, dir, program string
	cmd                *exec.Cmd // nil while it does not run, and for the run's
	log                buffer
}

// SharedClickHouse is the engine that the tests of a run share. It must not be
// stopped; NewDatabase gives each test its part.
func SharedClickHouse(t testing.TB) *ClickHouse {
	t.Helper()
	c, err := sharedClickHouse()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// DedicatedClickHouse starts an engine of the test's own, to be killed and started
// again on the same address and folder. It ends with the test.
func DedicatedClickHouse(t testing.TB) *ClickHouse {
	t.Helper()
	c := &ClickHouse{addr: "127.0.0.1:0", dir: filepath.Join(t.TempDir(), "data"), program: filepath.Join(Programs(t), "devclickhouse")}
	c.Start(t)
	t.Cleanup(func() {
		if err := c.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the engine's log:\n%s", &c.log)
		}
	})
	return c
}

// NewDatabase is the name of a database that is not there yet, and is dropped when
// the test ends.
func (c *ClickHouse) NewDatabase(t testing.TB) string {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text()[:10])
	t.Cleanup(func() {
		if c.dir == "" || c == ownClickHouse.engine { // a dedicated one takes its databases along
			c.Exec(t, "DROP DATABASE IF EXISTS "+name)
		}
	})
	return name
}

// Exec runs a statement as curl does and returns what it answers.
func (c *ClickHouse) Exec(t testing.TB, statement string) string {
	t.Helper()
	resp, err := http.Post(c.URL, "text/plain", strings.NewReader(statement))
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

// Start starts a stopped or killed engine again.
func (c *ClickHouse) Start(t testing.TB) {
	t.Helper()
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the engine with SIGKILL.
func (c *ClickHouse) Kill(t testing.TB) {
	t.Helper()
	if c.cmd == nil {
		t.Fatal("the engine does not run")
	}
	_ = c.cmd.Process.Kill() // it may have ended already
	_ = c.cmd.Wait()         // says "killed"
	c.cmd = nil
}

// Stop asks the engine to end and waits until it has.
func (c *ClickHouse) Stop(t testing.TB) {
	t.Helper()
	if err := c.stop(); err != nil {
		t.Fatal(err)
	}
}

// start launches the engine and returns when it answers. While it was down its
// port was free for others, so a port that is taken is asked for again.
func (c *ClickHouse) start() error {
	if c.cmd != nil {
		return errors.New("the engine runs already")
	}
	for deadline := time.Now().Add(Timeout); ; time.Sleep(100 * time.Millisecond) {
		err := c.launch()
		if err == nil || time.Now().After(deadline) || !strings.Contains(c.log.String(), "address already in use") {
			return err
		}
		c.log.reset()
	}
}

func (c *ClickHouse) launch() error {
	cmd := exec.Command(c.program, "-addr", c.addr, "-data", c.dir, "-grace", "5s", "-die-with-parent")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the tests; the engine follows them
	cmd.Stderr = &c.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := fmt.Fscanln(out, &c.URL); err != nil {
		err = errors.Join(err, cmd.Wait())
		return fmt.Errorf("the engine did not start: %w\n%s", err, &c.log)
	}
	c.cmd, c.addr = cmd, strings.TrimPrefix(c.URL, "http://")
	return nil
}

func (c *ClickHouse) stop() error {
	if c.cmd == nil {
		return nil
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	err := c.cmd.Wait()
	c.cmd = nil
	if said := c.log.String(); err != nil || strings.Contains(said, "panic:") {
		return fmt.Errorf("the engine ended with %w; its log:\n%s", err, said)
	}
	return nil
}

// ownClickHouse is the engine that this process started, because nobody handed it
// one.
var ownClickHouse struct {
	once   sync.Once
	engine *ClickHouse
	dir    string
	err    error
}

func sharedClickHouse() (*ClickHouse, error) {
	o := &ownClickHouse
	o.once.Do(func() {
		if given := os.Getenv(clickHouseVariable); given != "" {
			o.engine = &ClickHouse{URL: given}
			return
		}
		programs, err := builtPrograms()
		if err != nil {
			o.err = err
			return
		}
		if o.dir, o.err = os.MkdirTemp("", "testserver-"); o.err == nil {
			o.engine, o.err = StartClickHouse(filepath.Join(o.dir, "clickhouse"), programs)
		}
	})
	return o.engine, o.err
}

// StartClickHouse starts the engine that tests share, with its tables in dir; the
// folder programs holds devclickhouse. The engine's library is installed first, unless
// it is there.
func StartClickHouse(dir, programs string) (*ClickHouse, error) {
	c := &ClickHouse{addr: "127.0.0.1:0", dir: dir, program: filepath.Join(programs, "devclickhouse")}
	install := exec.Command(c.program, "install")
	install.Stdout, install.Stderr = os.Stderr, os.Stderr
	if err := install.Run(); err != nil {
		return nil, fmt.Errorf("devclickhouse install: %w", err)
	}
	return c, c.start()
}

// Close stops an engine that StartClickHouse has started.
func (c *ClickHouse) Close() error { return c.stop() }

// programsVariable names the folder of the run's programs.
const programsVariable = "TESTSERVER_PROGRAMS"

var ownPrograms struct {
	once sync.Once
	dir  string
	err  error
}

// Programs is the folder with all programs of a system, which are built once for a
// run, or once by this process when nobody has.
func Programs(t testing.TB) string {
	t.Helper()
	dir, err := builtPrograms()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func builtPrograms() (string, error) {
	if given := os.Getenv(programsVariable); given != "" {
		return given, nil
	}
	o := &ownPrograms
	o.once.Do(func() {
		if o.dir, o.err = os.MkdirTemp("", "testserver-"); o.err == nil {
			o.err = stack.Build(context.Background(), o.dir)
		}
	})
	return o.dir, o.err
}

// buffer is a bytes.Buffer for two goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *buffer) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}
