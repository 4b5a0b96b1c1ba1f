//go:build long

package systemtest

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv/testserver"
)

// runningDriver is `make run` without make.
type runningDriver struct {
	cmd  *exec.Cmd
	said *bufio.Scanner
	dir  string // DATA_DIR is dir/.data
}

// ownAddrs gives a make run other addresses than the usual ones, where others of this
// machine run theirs.
func ownAddrs(t *testing.T) (env []string) {
	t.Helper()
	for _, variable := range []string{"GATEWAY_ADDR", "OPS_ADDR", "WORKER_OPS_ADDR", "RECEIVER_ADDR", "REPORTING_OPS_ADDR", "PANEL_ADDR", "CLICKHOUSE_ADDR"} {
		env = append(env, variable+"="+stack.FreeAddr())
	}
	return env
}

func startDriver(t *testing.T, dir string, env ...string) *runningDriver {
	t.Helper()
	root, err := stack.ModuleDir()
	must(t, err)
	cmd := exec.Command(filepath.Join(testserver.Programs(t), "run"), "-bin", testserver.Programs(t))
	cmd.Dir = root
	cmd.Env = append(append(os.Environ(), "DATA_DIR="+filepath.Join(dir, ".data")), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // ended already, if all went well
	d := &runningDriver{cmd, bufio.NewScanner(out), dir}
	d.until(t, "Ready after")
	d.until(t, "curl -s ")

	return d
}

func (d *runningDriver) until(t *testing.T, prefix string) string {
	t.Helper()
	for d.said.Scan() {
		if line := strings.TrimSpace(d.said.Text()); strings.HasPrefix(line, prefix) {
			return line
		}
	}

	t.Fatalf("make run never said %q: %v", prefix, d.said.Err())
	return ""
}

// interrupt is Ctrl-C.
func (d *runningDriver) interrupt(t *testing.T) {
	t.Helper()
	must(t, d.cmd.Process.Signal(syscall.SIGINT))
	for d.said.Scan() { // until it closes its output
	}
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}

func (d *runningDriver) demo(t *testing.T) (demo stack.Demo) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(d.dir, ".data", "demo.json"))
	must(t, err)
	must(t, json.Unmarshal(content, &demo))
	return demo
}

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// paste plays the shell blocks of a document as they stand there.
func (d *runningDriver) paste(t *testing.T, document, dir string, env []string, want ...string) {
	t.Helper()
	text := "set -eu\n"
	for _, block := range shellBlock.FindAllStringSubmatch(readFile(t, document), -1) {
		text += block[1]
	}

	cmd := exec.CommandContext(t.Context(), "sh", "-c", text)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "DATA_DIR="+filepath.Join(d.dir, ".data")), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", document, err, out)
	}

	for _, shown := range want {
		if !strings.Contains(string(out), shown) {
			t.Errorf("%s does not show %s:\n%s", document, shown, out)
		}
	}
}

// awaitLog waits until the receiver has logged every text.
func (d *runningDriver) awaitLog(t *testing.T, texts ...string) {
	t.Helper()
	await(t, "the receiver's log has "+strings.Join(texts, ", "), func() bool {
		log, err := os.ReadFile(filepath.Join(d.dir, ".data", "logs", "receive.log"))
		must(t, err)
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(string(log), text) })
	})
}

func (d *runningDriver) login(t *testing.T) *client.Client {
	t.Helper()
	demo := d.demo(t)
	v, err := client.New(demo.BaseURL+"/api/vendor/v1", 1).Login(t.Context(), "/token", demo.Account.ClientID, demo.Account.ClientSecret)
	must(t, err)
	return v
}

// The shell blocks of the documents work as pasted against `make run`, those of
// README.md also after a restart. Who removes the
// demo's webhook takes the receiver's secret along; the next start registers it
// again.
//
//rule:make-run/DATA_DIR make-run/COURIER make-run/COURIER_STEP make-run/when-all-is-ready-it make-run/ctrl-c-stops-everything-cleanly-started
func TestMakeRun_DocumentsWorkAsPasted(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	env := append(ownAddrs(t), "COURIER_STEP=1s")
	addr := stack.FreeAddr()

	d := startDriver(t, dir, env...)
	d.paste(t, "README.md", dir, nil, `"status":"Active"`, `"externalOrderId":"A-1001","status":"Searching"`,
		`"events":[{"status":"Searching"`, "order A-1001  Delivered")
	d.paste(t, "docs/operations.md", dir, nil, `"count":1200`)
	d.paste(t, "reporting/REPORTS.md", dir, nil, `"line":"order-ledger"`)
	d.paste(t, "gateway/openapi/TEN_MINUTES.md", filepath.Dir(moduleFile(t, "go.mod")),
		[]string{"TMPDIR=" + dir, "PORT=" + addr[strings.LastIndexByte(addr, ':')+1:]},
		"ven_", `"secret":"whsec_`, `204 {"eventId":"evt_`, `"availableFleets":[{"fleetId":"`, `"status":"AwaitingFleetApproval"`,
		`"event":"store.activated"`, `"externalOrderId":"T-1","status":"Searching"`, "Idempotent-Replayed: true",
		`"externalOrderId":"T-1","status":"Delivered"`, `"events":[{"status":"Searching"`, `"externalOrderId":"T-2","status":"Cancelled"`)

	before := d.demo(t)
	d.interrupt(t)
	checkGone(t, before)

	d = startDriver(t, dir, env...)
	if demo := d.demo(t); demo.Account != before.Account || demo.Fleet != before.Fleet || demo.Webhook.Secret != before.Webhook.Secret {
		t.Errorf("demo.json changed over a restart:\n%+v\n%+v", before, demo)
	}

	d.paste(t, "README.md", dir, nil)
	must(t, d.login(t).Call(t.Context(), http.MethodDelete, "/webhook", nil, nil))
	d.interrupt(t)

	d = startDriver(t, dir, env...)
	if after := d.demo(t); after.Webhook.Secret == before.Webhook.Secret || after.Account != before.Account {
		t.Errorf("%+v, before %+v", after, before)
	}

	must(t, d.login(t).Call(t.Context(), http.MethodPost, "/webhook/test", nil, nil))
	d.awaitLog(t, "webhook.test")
	d.interrupt(t)
}
