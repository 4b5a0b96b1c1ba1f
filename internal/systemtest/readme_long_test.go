//go:build long

package systemtest

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/system"
	"vendorapi/internal/testenv/testserver"
)

// runningDriver is `make run` without make.
type runningDriver struct {
	cmd  *exec.Cmd
	said *bufio.Scanner
	dir  string // DATA_DIR is dir/.data
}

// ownAddrs keeps a make run away from the usual addresses, where others of this
// machine run theirs.
func ownAddrs(t *testing.T) (env []string) {
	t.Helper()
	for _, variable := range []string{"GATEWAY_ADDR", "OPS_ADDR", "WORKER_OPS_ADDR", "RECEIVER_ADDR", "REPORTING_OPS_ADDR", "PANEL_ADDR", "CLICKHOUSE_ADDR"} {
		addr, err := stack.FreeAddr()
		must(t, err)
		env = append(env, variable+"="+addr)
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

// The walk through the API in README.md works as pasted, and a second time
// after a restart.
//
//rule:make-run/DATA_DIR make-run/COURIER make-run/COURIER_STEP make-run/when-all-is-ready-it make-run/ctrl-c-stops-everything-cleanly-started
func TestReadme_WalkWorksAsPasted(t *testing.T) {
	t.Parallel()
	var walk strings.Builder
	walk.WriteString("set -eu\n")
	blocks := shellBlock.FindAllStringSubmatch(system.Read(t, "README.md"), -1)
	for _, block := range blocks {
		walk.WriteString(block[1])
	}
	dir := t.TempDir()
	var before stack.Demo
	for range 2 {
		d := startDriver(t, dir, append(ownAddrs(t), "COURIER_STEP=1s")...)
		cmd := exec.CommandContext(t.Context(), "sh", "-c", walk.String())
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range []string{
			`"availableFleets":[{"fleetId":"`, `"status":"AwaitingFleetApproval"`, `"status":"Active"`,
			`"externalOrderId":"A-1001","status":"Searching"`, `"events":[{"status":"Searching"`,
			`"externalOrderId":"A-1002","status":"Cancelled"`, `"url":"http://127.0.0.1:`, `"eventId":"`,
			`"line":"order-ledger"`,
		} {
			if before.BaseURL == "" && !strings.Contains(string(out), want) {
				t.Errorf("the walk does not show %s:\n%s", want, out)
			}
		}
		demo := d.demo(t)
		if before.BaseURL != "" && (demo.Account != before.Account || demo.Fleet != before.Fleet || demo.Webhook.Secret != before.Webhook.Secret) {
			t.Errorf("demo.json changed over a restart:\n%+v\n%+v", before, demo)
		}
		before = demo
		receiverLog := filepath.Join(dir, ".data", "logs", "receive.log")
		await(t, "the receiver logs the delivered order", func() bool {
			log, err := os.ReadFile(receiverLog)
			must(t, err)
			return strings.Contains(string(log), "order A-1001  Delivered") && strings.Contains(string(log), "order A-1002  Cancelled")
		})
		d.interrupt(t)
		gone(t, demo)
	}
}

// gone: after Ctrl-C nothing listens any more.
func gone(t *testing.T, demo stack.Demo) {
	t.Helper()
	for _, url := range []string{demo.BaseURL, demo.OpsURL, demo.Webhook.URL, demo.PanelURL, demo.ClickHouseURL} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		must(t, err)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("%s still answers", url)
		}
		cancel()
	}
}
