package systemtest

import (
	"context"
	"io"
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

// stackEnv is the whole system: the programs as they are shipped, as processes, seen from
// their three APIs. What is sent through it is held against the OpenAPI documents, and when
// the test ends nothing may have been denied to a program in Redis.
type stackEnv struct {
	*stack.Stack
	apis         *stack.APIs
	Admin, Fleet *client.Client
}

// startStack brings up a system that ends with the test. Where empty, BinDir
// and DataDir are set here.
func startStack(t *testing.T, o stack.Options) *stackEnv {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}

	if o.BinDir == "" {
		o.BinDir = testserver.Programs(t)
	}

	o.Out = echo{t}
	s, err := stack.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(s.Stop)
	e := newStackEnv(t, s)
	t.Cleanup(func() { e.NothingDenied(t) })

	return e
}

// newStackEnv is a system that runs already.
func newStackEnv(t *testing.T, s *stack.Stack) *stackEnv {
	t.Helper()
	c := client.New("", 64)
	apis, err := s.Demo.Connect(t.Context(), c)
	must(t, err)
	return &stackEnv{Stack: s, apis: apis, Admin: apis.Admin, Fleet: apis.Fleet}
}

// query returns what ClickHouse answers to a statement, as lines of tab-separated values.
func (e *stackEnv) query(t *testing.T, sql string) string {
	t.Helper()
	answer, err := http.Post(e.ClickHouseURL(), "text/plain", strings.NewReader(sql))
	must(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", sql, text)
	}

	return string(text)
}

// LoginFleet is the fleet API of a fleet.
func (e *stackEnv) LoginFleet(t *testing.T, fleet stack.DemoFleet) *client.Client {
	t.Helper()
	c, err := e.Admin.As(e.Demo.OpsURL+"/api/fleet/v1", "").Login(t.Context(), "/token", fleet.ClientID, fleet.ClientSecret)
	must(t, err)
	return c
}

// StatusOf is an order's status as the demo's fleet sees it.
func (e *stackEnv) StatusOf(t *testing.T, order string) string {
	t.Helper()
	var job struct{ Status string }
	must(t, e.Fleet.Call(t.Context(), http.MethodGet, "/jobs/"+order, nil, &job))
	return job.Status
}

// AwaitStatus waits until the order is in the status.
func (e *stackEnv) AwaitStatus(t *testing.T, order, status string) {
	t.Helper()
	testserver.Await(t, "the order is "+status, func() bool { return e.StatusOf(t, order) == status })
}

// Accept reports that a courier of the demo's fleet takes the order.
func (e *stackEnv) Accept(t *testing.T, order string) {
	t.Helper()
	must(t, e.Fleet.Call(t.Context(), http.MethodPost, "/jobs/"+order+"/accept", map[string]any{"courier": courierBody("Mehmet Yılmaz")}, nil))
}

// courierBody is the body of a courier.
func courierBody(name string) map[string]string {
	return map[string]string{"name": name, "phone": "5551112233", "vehicleType": "Motorcycle"}
}

// Report reports a status, with a reason where it is Failed, and waits until the
// order is in it.
func (e *stackEnv) Report(t *testing.T, order, status, reason string) {
	t.Helper()
	body := map[string]any{"status": status}
	if reason != "" {
		body["failureReason"] = reason
	}
	must(t, e.Fleet.Call(t.Context(), http.MethodPost, "/jobs/"+order+"/status", body, nil))
	e.AwaitStatus(t, order, status)
}

// Command runs a command of reporting against the system as one of Redis's
// users, as `make report` and `make backup` do.
func (e *stackEnv) Command(t *testing.T, user string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(testserver.Programs(t), "reporting"), args...)
	cmd.Dir = filepath.Dir(moduleFile(t, "go.mod"))
	cmd.Env = append(os.Environ(), "REDIS_URL="+e.RedisURL(user), "CLICKHOUSE_URL="+e.ClickHouseURL(), "ENVIRONMENT=sandbox")
	out, err := cmd.CombinedOutput()

	return string(out), err
}

// checkGone fails the test while anything of a stopped system listens.
func checkGone(t *testing.T, demo stack.Demo) {
	t.Helper()
	for _, origin := range []string{demo.BaseURL, demo.OpsURL, demo.PanelURL, demo.ClickHouseURL, demo.Webhook.URL} {
		u, err := url.Parse(origin)
		must(t, err)
		if conn, err := net.Dial("tcp", u.Host); err == nil && u.Host != "" {
			conn.Close()
			t.Errorf("%s still listens", origin)
		}
	}
}

// moduleFile is the path of a file of the project.
func moduleFile(t *testing.T, name string) string {
	t.Helper()
	root, err := stack.ModuleDir()
	must(t, err)
	return filepath.Join(root, name)
}

// readFile is the content of a file of the project.
func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(moduleFile(t, name))
	must(t, err)
	return string(content)
}

// NothingDenied fails the test if a program has tried what its user in Redis may
// not do. startStack looks when the test ends; a test that stops the system by itself
// looks before.
func (e *stackEnv) NothingDenied(t *testing.T) {
	t.Helper()
	if e.Redis == nil {
		return
	}

	ctx := context.WithoutCancel(t.Context())
	if _, err := e.Redis.Command(ctx, "PING"); err != nil {
		return // the test has left it stopped
	}

	must(t, testserver.Denied(ctx, e.Redis))
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
