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
	"testing"
	"time"

	"vendorapi/internal/stack"
)

// ClickHouse is the embedded engine (internal/devclickhouse) in a process of its own.
// The methods of a dedicated one are for one goroutine at a time.
type ClickHouse struct {
	URL string // http://127.0.0.1:port; stays the same over Kill and Start

	program *stack.Program // nil: the shared one
	args    []string       // the program's, to which StartAs adds
}

// newClickHouse starts an engine with its tables in dir; its log is beside them. The
// folder programs holds devclickhouse.
func newClickHouse(ctx context.Context, dir, programs string) (*ClickHouse, error) {
	addr := stack.FreeAddr()
	url := "http://" + addr
	c := &ClickHouse{URL: url, program: &stack.Program{
		Name: "clickhouse", Path: filepath.Join(programs, "devclickhouse"), Log: dir + ".log", Ready: url + "/ping",
		Args: []string{"-addr", addr, "-data", dir, "-grace", "5s", "-die-with-parent"},
	}}
	c.args = c.program.Args
	return c, c.start(ctx)
}

// sharedClickHouse is the engine's URL. The engine's library is installed first, unless it is there.
var sharedClickHouse = shared(clickHouseVariable, func(dir string) (string, func() error, error) {
	programs, err := builtPrograms()
	if err != nil {
		return "", nil, err
	}

	install := exec.Command(filepath.Join(programs, "devclickhouse"), "install")
	install.Stdout, install.Stderr = os.Stderr, os.Stderr
	if err := install.Run(); err != nil {
		return "", nil, fmt.Errorf("devclickhouse install: %w", err)
	}

	c, err := newClickHouse(context.Background(), dir, programs)

	return c.URL, c.Close, err
})

// SharedClickHouse is the engine that the tests of a run share. It must not be
// stopped; NewDatabase gives each test its part.
func SharedClickHouse(t testing.TB) *ClickHouse {
	t.Helper()
	url, err := sharedClickHouse()
	must(t, err)
	return &ClickHouse{URL: url}
}

// DedicatedClickHouse starts an engine of the test's own, to be killed and started
// again on the same address and folder. It ends with the test.
func DedicatedClickHouse(t testing.TB) *ClickHouse {
	t.Helper()
	c, err := newClickHouse(t.Context(), filepath.Join(t.TempDir(), "data"), Programs(t))
	must(t, err)
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
	name := DatabaseName()
	t.Cleanup(func() {
		if !c.IsShared() {
			return // a dedicated one takes its databases along
		}
		c.DropDatabase(t, name)
	})

	return name
}

// DatabaseName returns a name that no database has. What has it must be dropped.
func DatabaseName() string { return "test_" + strings.ToLower(rand.Text()[:10]) }

// DropDatabase drops a database with its views for finance, if there is one.
func (c *ClickHouse) DropDatabase(t testing.TB, name string) {
	t.Helper()
	c.Exec(t, "DROP DATABASE IF EXISTS "+name)
	c.Exec(t, "DROP DATABASE IF EXISTS "+name+"_finance")
}

// IsShared reports whether other tests use the engine, too.
func (c *ClickHouse) IsShared() bool { return c.program == nil }

// Exec runs a statement as curl does and returns what it answers.
func (c *ClickHouse) Exec(t testing.TB, statement string) string {
	t.Helper()
	resp, err := http.Post(c.URL, "text/plain", strings.NewReader(statement))
	must(t, err)
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
	must(t, c.start(t.Context()))
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
func (c *ClickHouse) Kill(testing.TB) { c.program.Kill() }

// Close stops the engine, unless it does not run. A panic in it is an error.
func (c *ClickHouse) Close() error {
	c.program.Stop()
	log, err := os.ReadFile(c.program.Log)
	if err == nil && strings.Contains(string(log), "panic:") {
		err = errors.New("panic")
	}

	if err != nil {
		return fmt.Errorf("the engine: %w; its log:\n%s", err, log)
	}
	return nil
}
