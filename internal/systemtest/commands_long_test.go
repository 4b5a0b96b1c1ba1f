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

	"vendorapi/internal/testenv/testserver"
)

// cannotWork is what a shell or a program says to a command that is no good.
var cannotWork = regexp.MustCompile(`(?i)not found|unknown (command|flag|subcommand|option)|no such file|syntax error|unrecognized|invalid option|usage:|NOPERM|wrong number of arguments|nobody may come in`)

// Every command of the runbook that has its place with make run works there as it stands,
// after the head for it, one after the other, in sh.
func TestCommands_OfTheRunbookWorkWithMakeRun(t *testing.T) {
	t.Parallel()
	heads, commands := runbook(t)
	dir := t.TempDir()
	d := startDriver(t, dir, append(ownAddrs(t), "COURIER_STEP=200ms")...)
	demo := d.demo(t)
	defer d.interrupt(t)

	must(t, os.RemoveAll(filepath.Join(dir, ".data", "bin"))) // as make run has it, where make build put them
	must(t, os.Symlink(testserver.Programs(t), filepath.Join(dir, ".data", "bin")))
	env := append(os.Environ(), "DATA_DIR="+filepath.Join(dir, ".data"), "ACCOUNT_ID="+demo.Account.AccountID, "FLEET_ID="+demo.Fleet.FleetID, "STORE=none")
	for _, variable := range []string{"WORKER_OPS_ADDR", "REPORTING_OPS_ADDR"} {
		value := regexp.MustCompile(`(?m)^` + variable + `=(.*)$`).FindStringSubmatch(strings.Join(d.cmd.Env, "\n"))
		env = append(env, variable+"="+value[1])
	}

	run := func(line string) (string, error) {
		// pipefail is no word of every sh: the status is that of the last command, and what the
		// first ones complain about is read.
		cmd := exec.CommandContext(t.Context(), "sh", "-c", heads[1]+heads[2]+line)
		cmd.Dir, cmd.Env = filepath.Dir(moduleFile(t, "go.mod")), env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	ran := 0
	for _, c := range commands {
		if place, _ := whereItIsRun(c.line); place != onMakeRun {
			continue
		}
		ran++
		out, err := run(c.line)
		var ended *exec.ExitError
		// grep that finds nothing ends with 1: then there is nothing to see.
		foundNothing := errors.As(err, &ended) && ended.ExitCode() == 1 && strings.Contains(c.line, "grep") && out == ""
		if err != nil && !foundNothing || cannotWork.MatchString(out) {
			t.Errorf("%s: %s: %v\n%.600s", c.section, c.line, err, out)
		}
	}
	if ran < 120 {
		t.Errorf("only %d commands were run", ran)
	}

	// What the text tells to type, which has no block of its own.
	for line, want := range map[string]string{
		"clickhouse_do 'SELECT 1'":       "1",
		"redis config set maxmemory 4gb": "OK",
		"redis bgrewriteaof":             "Background",
		"reporting month correct --order 7c9e6679-7425-80de-944b-e07fc1f90ae7 --user nobody --note y </dev/null": "password",
	} {
		if out, _ := run(line); !strings.Contains(out, want) {
			t.Errorf("%s: %s, want %q", line, out, want)
		}
	}
}
