//go:build long

package systemtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/system"
)

// The page for integrators leads from nothing to a delivered and a cancelled
// order, as pasted: its commands are played in a shell against make run's demo.
func TestTenMinutes_WorkAsPasted(t *testing.T) {
	t.Parallel()
	root, err := stack.ModuleDir()
	must(t, err)
	var page strings.Builder
	page.WriteString("set -eu\n")
	for _, block := range shellBlock.FindAllStringSubmatch(system.Read(t, "gateway/openapi/TEN_MINUTES.md"), -1) {
		page.WriteString(block[1])
	}
	dir := t.TempDir()
	d := startDriver(t, dir, append(ownAddrs(t), "COURIER_STEP=1s")...)
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
