// Package system gives tests the whole system: the programs as they are shipped, as
// processes, with a Redis of their own, seen from its three APIs. Whatever is sent
// through an Env is held against the OpenAPI documents, and when the test ends
// nothing may have been denied to a program in Redis.
package system

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv/testserver"
)

// Env is a running system as operators and the demo's fleet see it.
type Env struct {
	*stack.Stack
	Admin *client.Client
	Fleet *client.Client
}

// Start brings up a system that ends with the test. Where empty, BinDir
// and DataDir are set here.
func Start(t *testing.T, o stack.Options) *Env {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	present := o.BinDir == "" // another release has documents of its own
	if present {
		o.BinDir = testserver.Programs(t)
	}
	o.Out = echo{t}
	s, err := stack.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	e := newEnv(t, s, present)
	t.Cleanup(func() { e.NothingDenied(t) })
	return e
}

// Of is an Env of a system that runs already; what the documents do not allow
// fails t.
func Of(t *testing.T, s *stack.Stack) *Env {
	t.Helper()
	return newEnv(t, s, true)
}

func newEnv(t *testing.T, s *stack.Stack, asDocumented bool) *Env {
	t.Helper()
	c := client.New("", 64)
	if asDocumented {
		c.HTTP.Transport = documented{t, c.HTTP.Transport}
	}
	e := &Env{Stack: s, Admin: c.As(s.Demo.OpsURL+"/api/admin/v1", s.Demo.AdminKey)}
	e.Fleet = e.LoginFleet(t, s.Demo.Fleet)
	return e
}

// LoginFleet is the fleet API of a fleet.
func (e *Env) LoginFleet(t *testing.T, fleet stack.DemoFleet) *client.Client {
	t.Helper()
	c, err := e.Admin.As(e.Demo.OpsURL+"/api/fleet/v1", "").Login(t.Context(), "/token", fleet.ClientID, fleet.ClientSecret)
	Must(t, err)
	return c
}

// StatusOf is an order's status as the demo's fleet sees it.
func (e *Env) StatusOf(t *testing.T, order string) string {
	t.Helper()
	var job struct{ Status string }
	Must(t, e.Fleet.Call(t.Context(), http.MethodGet, "/jobs/"+order, nil, &job))
	return job.Status
}

// AwaitStatus waits until the order is in the status.
func (e *Env) AwaitStatus(t *testing.T, order, status string) {
	t.Helper()
	testserver.Await(t, "the order is "+status, func() bool { return e.StatusOf(t, order) == status })
}

// Accept reports that a courier of the demo's fleet takes the order.
func (e *Env) Accept(t *testing.T, order string) {
	t.Helper()
	Must(t, e.Fleet.Call(t.Context(), http.MethodPost, "/jobs/"+order+"/accept", map[string]any{"courier": Courier("Mehmet Yılmaz")}, nil))
}

// Courier is the body of a courier.
func Courier(name string) map[string]string {
	return map[string]string{"name": name, "phone": "5551112233", "vehicleType": "Motorcycle"}
}

// Report reports a status, with a reason where it is Failed, and waits until the
// order is in it.
func (e *Env) Report(t *testing.T, order, status, reason string) {
	t.Helper()
	body := map[string]any{"status": status}
	if reason != "" {
		body["failureReason"] = reason
	}
	Must(t, e.Fleet.Call(t.Context(), http.MethodPost, "/jobs/"+order+"/status", body, nil))
	e.AwaitStatus(t, order, status)
}

// Command runs a command of reporting against the system as one of Redis's
// users, as `make report` and `make backup` do.
func (e *Env) Command(t *testing.T, user string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(testserver.Programs(t), "reporting"), args...)
	cmd.Dir = filepath.Dir(ModuleFile(t, "go.mod"))
	cmd.Env = append(os.Environ(), "REDIS_URL="+e.RedisURL(user), "CLICKHOUSE_URL="+e.ClickHouseURL(), "ENVIRONMENT=sandbox")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Gone fails the test while anything of a stopped system listens.
func Gone(t *testing.T, demo stack.Demo) {
	t.Helper()
	origins := []string{demo.BaseURL, demo.OpsURL, demo.PanelURL, demo.ClickHouseURL}
	if demo.Webhook != nil {
		origins = append(origins, demo.Webhook.URL)
	}
	for _, origin := range origins {
		u, err := url.Parse(origin)
		Must(t, err)
		if conn, err := net.Dial("tcp", u.Host); err == nil && u.Host != "" {
			conn.Close()
			t.Errorf("%s still listens", origin)
		}
	}
}

// ModuleFile is the path of a file of the project.
func ModuleFile(t *testing.T, name string) string {
	t.Helper()
	root, err := stack.ModuleDir()
	Must(t, err)
	return filepath.Join(root, name)
}

// Read is the content of a file of the project.
func Read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(ModuleFile(t, name))
	Must(t, err)
	return string(content)
}

// Must ends the test on an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// NothingDenied fails the test if a program has tried what its user in Redis may
// not do. Start looks when the test ends; a test that stops the system by itself
// looks before.
func (e *Env) NothingDenied(t *testing.T) {
	t.Helper()
	if e.Redis == nil {
		return
	}
	ctx := context.WithoutCancel(t.Context())
	if _, err := e.Redis.Command(ctx, "PING"); err != nil {
		return // the test has left it stopped
	}
	Must(t, testserver.Denied(ctx, e.Redis))
}

// echo shows the programs' errors in the test's log. A stack outlives its test by
// the length of its shutdown, so it is quiet once the test is over.
type echo struct{ t *testing.T }

func (e echo) Write(b []byte) (int, error) {
	if e.t.Context().Err() == nil {
		e.t.Logf("%s", strings.TrimRight(string(b), "\n"))
	}
	return len(b), nil
}
