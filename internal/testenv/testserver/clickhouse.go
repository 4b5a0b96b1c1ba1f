package testserver

import (
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

	program   *stack.Program // nil for the run's
	dedicated bool           // takes its databases along
}

// newClickHouse prepares an engine with its tables in dir; its log lies beside them.
func newClickHouse(dir, programs string) (*ClickHouse, error) {
	addr, err := stack.FreeAddr()
	if err != nil {
		return nil, err
	}
	url := "http://" + addr
	return &ClickHouse{URL: url, program: &stack.Program{
		Name: "clickhouse", Path: filepath.Join(programs, "devclickhouse"), Log: dir + ".log", Ready: url + "/ping",
		Args: []string{"-addr", addr, "-data", dir, "-grace", "5s", "-die-with-parent"},
	}}, nil
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
	c, err := newClickHouse(filepath.Join(t.TempDir(), "data"), Programs(t))
	if err != nil {
		t.Fatal(err)
	}
	c.dedicated = true
	c.Start(t)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log, _ := os.ReadFile(c.program.Log) // without it there is less to read
			t.Logf("the engine's log:\n%s", log)
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
		if !c.dedicated {
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
	if err := c.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// start returns when the engine answers. While it was down its port was free for others,
// so a port that is taken is asked for again.
func (c *ClickHouse) start(ctx context.Context) error {
	for deadline := time.Now().Add(Timeout); ; time.Sleep(100 * time.Millisecond) {
		err := c.program.Start(ctx)
		if err == nil || time.Now().After(deadline) || !strings.Contains(err.Error(), "address already in use") {
			return err
		}
	}
}

// Kill ends the engine with SIGKILL.
func (c *ClickHouse) Kill(t testing.TB) {
	t.Helper()
	c.program.Kill()
}

// Stop asks the engine to end and waits until it has.
func (c *ClickHouse) Stop(t testing.TB) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// Close stops the engine, unless it does not run, and tells what went wrong in it.
func (c *ClickHouse) Close() error {
	c.program.Stop()
	said, err := os.ReadFile(c.program.Log)
	if err == nil && strings.Contains(string(said), "panic:") {
		err = errors.New("panic")
	}
	if err != nil {
		return fmt.Errorf("the engine: %w; its log:\n%s", err, said)
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
	install := exec.Command(filepath.Join(programs, "devclickhouse"), "install")
	install.Stdout, install.Stderr = os.Stderr, os.Stderr
	if err := install.Run(); err != nil {
		return nil, fmt.Errorf("devclickhouse install: %w", err)
	}
	c, err := newClickHouse(dir, programs)
	if err == nil {
		err = c.start(context.Background())
	}
	return c, err
}

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
