//go:build long

package systemtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"vendorapi/internal/testenv/commands"
	"vendorapi/internal/testenv/testserver"
)

// Every command of the runbook and of the other documents that has its place with make run works
// there as it stands, in a sh that has sourced runbook.sh, one after the other.
func TestCommands_OfTheDocumentsWorkWithMakeRun(t *testing.T) {
	t.Parallel()

	runbook := readRunbook(t)
	dir := t.TempDir()
	d := startDriver(t, dir, append(ownAddrs(t), "COURIER_STEP=200ms")...)
	demo := d.demo(t)
	defer d.interrupt(t)

	// As make run has it, where make put them. Copies, because make builds them again.
	must(t, os.RemoveAll(filepath.Join(dir, ".data", "bin")))
	must(t, os.CopyFS(filepath.Join(dir, ".data", "bin"), os.DirFS(testserver.Programs(t))))
	env := append(os.Environ(), "DATA_DIR="+filepath.Join(dir, ".data"), "ACCOUNT_ID="+demo.Account.AccountID, "FLEET_ID="+demo.Fleet.FleetID, "STORE=none")
	for _, variable := range []string{"WORKER_OPS_ADDR", "REPORTING_OPS_ADDR"} {
		value := regexp.MustCompile(`(?m)^` + variable + `=(.*)$`).FindStringSubmatch(strings.Join(d.cmd.Env, "\n"))
		env = append(env, variable+"="+value[1])
	}

	run := func(line string) (string, error) {
		// pipefail is no word of every sh: the status is that of the last command, and what the
		// first ones complain about is read.
		cmd := exec.CommandContext(t.Context(), "sh", "-c", commands.Source("run")+line)
		cmd.Dir, cmd.Env = filepath.Dir(moduleFile(t, "go.mod")), env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	ran := 0
	for _, c := range runbook {
		if c.IsByHand() || c.WantsCompose() {
			continue
		}

		ran++
		out, err := run(c.Line)
		err = c.CheckOutcome(out, err)
		if err != nil {
			t.Error(err)
		}
	}

	if ran < commands.RunWithMakeRun {
		t.Errorf("%d commands were run, want %d", ran, commands.RunWithMakeRun)
	}

	for document := range commands.Documents {
		written, err := commands.OfDocument(document)
		must(t, err)
		for _, c := range written {
			if commands.PlaceOf(c) != commands.OnMakeRun {
				continue
			}

			out, err := run(c.Line)
			var ended *exec.ExitError
			foundNobody := errors.As(err, &ended) && strings.HasPrefix(c.Line, "make erase") && strings.Contains(out, "nothing found")
			err = c.CheckOutcome(out, err)
			if err != nil && !foundNobody {
				t.Error(err)
			}
		}
	}

	// What the first page says of a system that is well, and what the text tells to type and cannot be
	// run as it stands.
	for line, want := range map[string]string{
		"ready":                          "reporting 127.0.0.1:",
		"redis ping":                     "PONG",
		"clickhouse ping":                "Ok.",
		"check":                          "BOOKS_KEYS",
		"clickhouse_do 'SELECT 1'":       "1",
		"redis config set maxmemory 4gb": "OK",
		"reporting month correct --order 7c9e6679-7425-80de-944b-e07fc1f90ae7 --user nobody --note y </dev/null": "password",
	} {
		if out, _ := run(line); !strings.Contains(out, want) {
			t.Errorf("%s: %s, want %q", line, out, want)
		}
	}

	out, _ := run("ready")
	for line := range strings.Lines(out) {
		if !strings.HasSuffix(line, " 200\n") {
			t.Errorf("ready: %s", line)
		}
	}
}
