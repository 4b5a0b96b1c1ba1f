//go:build long

package systemtest

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv/overlay"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/receiver"
)

// release is the programs of a release and their settings, by their folders.
type release struct{ programs, settings string }

// releases returns two releases that follow each other: that of the commit ROLLING_BASE and this one.
// Without ROLLING_BASE they are this one and a next one, which has another text in a script, so that its
// library is another one, and one schema file more.
func releases(t *testing.T) (replaced, replacing release) {
	t.Helper()
	root, err := stack.ModuleDir()
	must(t, err)
	present := release{programs: testserver.Programs(t), settings: filepath.Join(root, "configs")}
	other := release{programs: t.TempDir(), settings: present.settings}

	base := os.Getenv("ROLLING_BASE")
	if base == "" {
		buildRelease(t, root, other.programs, "-overlay", nextRelease(t, root, other.programs))
		return present, other
	}

	tree := t.TempDir()
	checkout := exec.CommandContext(t.Context(), "sh", "-c", `git archive "$1" | tar -x -C "$2"`, "sh", base, tree)
	checkout.Dir = root
	out, err := checkout.CombinedOutput()
	if err != nil {
		t.Fatalf("release %s: %v\n%s", base, err, out)
	}

	other.settings = filepath.Join(tree, "configs")
	buildRelease(t, tree, other.programs)

	return other, present
}

// buildRelease builds the programs of the module in tree into a folder.
func buildRelease(t *testing.T, tree, folder string, flags ...string) {
	t.Helper()
	args := append([]string{"build", "-ldflags=-s -w", "-o", folder + string(filepath.Separator)}, flags...)
	args = append(args, "./gateway", "./worker", "./reporting", "./loadtest/receiver/receive", "./internal/devclickhouse")

	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// nextRelease writes the overlay of the release after this one to a folder, and returns its file.
func nextRelease(t *testing.T, root, folder string) string {
	t.Helper()
	next := overlay.New(root)
	must(t, next.ReplaceTree("testdata/nextrelease"))

	schema := filepath.Join(root, "reporting", "archive", "schema")
	files, err := os.ReadDir(schema)
	must(t, err)
	next.Set(filepath.Join(schema, fmt.Sprintf("%04d_next.sql", len(files)+1)), []byte(
		`ALTER TABLE {{local "orders"}} {{onCluster}} ADD COLUMN IF NOT EXISTS next_release LowCardinality(String);
CREATE TABLE IF NOT EXISTS {{local "next_release"}} {{onCluster}} (account_id UUID) ENGINE = {{replacing "next_release" ""}} ORDER BY account_id;
`))

	file, err := next.Write(folder)
	must(t, err)

	return file
}

// Two gateways and two workers are replaced one after the other by a release
// with other scripts, then reporting by one with further tables; then reporting and
// two of the others by the old one again, while tills go on. In between both releases
// work on the same streams, queues and tables.
func TestRolling_UpgradeAndWayBackLoseNothing(t *testing.T) {
	t.Parallel()

	before, next := releases(t)
	s := startStack(t, stack.Options{
		Reporting:   true,
		CourierStep: 100 * time.Millisecond,
		BinDir:      before.programs,
		ConfigDir:   before.settings,
		Env:         []string{stack.NoEngineKey},
	})

	gateway, second, err := s.AddGateway(t.Context())
	must(t, err)
	worker, err := s.AddWorker(t.Context(), "pod-1")
	must(t, err)

	v := s.Vendor(t, stack.Unlimited)
	r := v.Receive(t, receiver.Options{})
	c := openTills(t, v, []string{s.Demo.BaseURL, second}, 8, func(*client.Answer) bool { return false })

	replace := func(p *stack.Program, by release, env ...string) {
		t.Helper()
		c.passes(t, 60)
		began := time.Now()
		p.Stop()
		stopped := time.Since(began)
		if p.Name == "gateway" {
			c.awaitResets(t)
		}

		p.Use(by.programs, by.settings, env...)
		must(t, p.Start(t.Context()))
		t.Logf("%s stopped in %.1f s, was ready after %.1f s", p.Name, stopped.Seconds(), time.Since(began).Seconds())
	}

	replace(s.Gateway, next)
	replace(s.Worker, next)
	c.passes(t, 100) // one of each, side by side
	replace(gateway, next)
	replace(worker, next, "WORKER_INSTANCE=pod-2")
	replace(s.Reporting, next)

	replace(s.Reporting, before)
	replace(s.Gateway, before)
	replace(s.Worker, before)
	c.passes(t, 60)

	if lost := c.check(t, r); len(lost) > 0 {
		t.Errorf("%d orders lost, the first %s", len(lost), lost[0].orderID)
	}

	redis := &streams{[]commander{s.Redis}}
	redis.settled(t)
	if names := redis.consumers(t); slices.Contains(names, "pod-1") {
		t.Errorf("a worker that ended is still a consumer: %v", names)
	}
	if out, err := s.Command(t, stack.ReportingUser, "reconcile"); err != nil {
		t.Errorf("reconcile: %v\n%s", err, out)
	}

	if before.settings == next.settings {
		resp, err := http.Get(s.Demo.ClickHouseURL + "/?query=SELECT+max(version)+FROM+delivery.schema_migrations+WHERE+name+!='views'")
		must(t, err)
		defer resp.Body.Close()
		latest, err := io.ReadAll(resp.Body)
		must(t, err)
		known, err := os.ReadDir(moduleFile(t, "reporting/archive/schema"))
		must(t, err)
		if got := strings.TrimSpace(string(latest)); got != strconv.Itoa(len(known)+1) {
			t.Errorf("file %s is the last of ClickHouse's, want that of the next release", got)
		}
	}

	memory, err := s.Redis.Command(t.Context(), "INFO", "memory")
	must(t, err)
	if before.settings == next.settings && !strings.Contains(memory, "number_of_libraries:2\r\n") {
		t.Errorf("want the libraries of both releases: %s", memory)
	}
}
