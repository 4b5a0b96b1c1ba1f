//go:build long

package systemtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv/system"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/receiver"
)

// nextRelease builds gateway and worker from a copy of the project in which a
// script has another text, so that its library is another one.
func nextRelease(t *testing.T) string {
	t.Helper()
	root, err := stack.ModuleDir()
	must(t, err)
	dir := t.TempDir()
	script := filepath.Join(root, "internal", "ledger", "lua", "clock.lua")
	text, err := os.ReadFile(script)
	must(t, err)
	changed := filepath.Join(dir, "clock.lua")
	must(t, os.WriteFile(changed, append(text, "\nlocal release = 'next'\n"...), 0o600))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {script: changed}})
	must(t, err)
	file := filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(file, overlay, 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", file, "-ldflags=-s -w", "-o", dir+string(filepath.Separator), "./gateway", "./worker")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// Two gateways and two workers are replaced one after the other by a release
// with other scripts, and two of them by the old one again, while tills go on.
// In between both releases work on the same streams and queues.
func TestRolling_UpgradeAndWayBackLoseNothing(t *testing.T) {
	t.Parallel()
	next := nextRelease(t)
	s := system.Start(t, stack.Options{CourierStep: 100 * time.Millisecond})
	gateway, second, err := s.AddGateway(t.Context())
	must(t, err)
	worker, err := s.AddWorker(t.Context(), "pod-1")
	must(t, err)
	v := s.Vendor(t, system.Raised)
	r := v.Receive(t, receiver.Options{})
	c := openTills(t, v, []string{s.Demo.BaseURL, second}, 8, func(*client.Answer) bool { return false })
	replace := func(p *stack.Program, folder string, env ...string) {
		t.Helper()
		c.passes(t, 60)
		began := time.Now()
		p.Stop()
		stopped := time.Since(began)
		if p.Name == "gateway" {
			c.awaitResets(t)
		}
		p.Use(folder, env...)
		must(t, p.Start(t.Context()))
		t.Logf("%s stopped in %.1f s, was ready after %.1f s", p.Name, stopped.Seconds(), time.Since(began).Seconds())
	}
	replace(s.Gateway, next)
	replace(s.Worker, next)
	c.passes(t, 100) // one of each, side by side
	replace(gateway, next)
	replace(worker, next, "WORKER_INSTANCE=pod-2")
	replace(s.Gateway, testserver.Programs(t))
	replace(s.Worker, testserver.Programs(t))
	c.passes(t, 60)
	if lost := c.check(t, r); len(lost) > 0 {
		t.Errorf("%d orders lost, the first %s", len(lost), lost[0].orderID)
	}
	redis := &streams{[]commander{s.Redis}}
	redis.settled(t)
	host, err := os.Hostname()
	must(t, err)
	want := []string{host, "pod-2"}
	slices.Sort(want)
	if names := redis.consumers(t); !slices.Equal(names, want) {
		t.Errorf("consumers %v, want %v", names, want)
	}
	memory, err := s.Redis.Command(t.Context(), "INFO", "memory")
	must(t, err)
	if !strings.Contains(memory, "number_of_libraries:2\r\n") {
		t.Errorf("want the libraries of both releases: %s", memory)
	}
}
