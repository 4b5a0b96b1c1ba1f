package systemtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/stack"
)

// The page for integrators leads from nothing to a delivered and a cancelled
// order, as pasted: its commands are played in a shell against make run's demo.
func TestTenMinutes_WorkAsPasted(t *testing.T) {
	t.Parallel()
	root, err := stack.ModuleDir()
	must(t, err)
	var page strings.Builder
	page.WriteString("set -eu\n")
	for _, block := range shellBlock.FindAllStringSubmatch(read(t, "gateway/openapi/TEN_MINUTES.md"), -1) {
		page.WriteString(block[1])
	}
	dir := t.TempDir()
	// Others run a demo of their own meanwhile, on the usual addresses.
	env := []string{"COURIER_STEP=1s"}
	for _, variable := range []string{"WORKER_OPS_ADDR", "RECEIVER_ADDR", "REPORTING_OPS_ADDR", "PANEL_ADDR", "CLICKHOUSE_ADDR"} {
		addr, err := stack.FreeAddr()
		must(t, err)
		env = append(env, variable+"="+addr)
	}
	d := startDriver(t, dir, env...)
	addr, err := stack.FreeAddr()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", page.String())
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "DATA_DIR="+filepath.Join(dir, ".data"), "TMPDIR="+dir, "PORT="+addr[strings.LastIndexByte(addr, ':')+1:])
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"ven_", `"secret":"whsec_`, `204 {"eventId":"evt_`, `"availableFleets":[{"fleetId":"`, `"status":"AwaitingFleetApproval"`,
		`"event":"store.activated"`, `"externalOrderId":"T-1","status":"Searching"`, "Idempotent-Replayed: true",
		`"externalOrderId":"T-1","status":"Delivered"`, `"events":[{"status":"Searching"`, `"externalOrderId":"T-2","status":"Cancelled"`,
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the page does not show %s:\n%s", want, out)
		}
	}
	d.interrupt(t)
}
