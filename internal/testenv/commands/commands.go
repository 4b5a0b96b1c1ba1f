// Package commands reads the commands that the operators' documents tell people to type, so that
// tests can run them as they stand: against make run in internal/systemtest, against
// docker-compose.yml in internal/composetest.
package commands

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"vendorapi/internal/stack"
)

// A Command is a line of a shell block, with the lines that it is continued by.
type Command struct{ Section, Line string }

// A Runbook is docs/runbook.md: its commands, and the setups of a shell that they need.
type Runbook struct {
	ComposeHead, MakeRunHead string
	Functions                string // behind either head
	Commands                 []Command
}

// ReadRunbook reads the runbook of this module.
func ReadRunbook() (Runbook, error) {
	text, err := readDocument("docs/runbook.md")
	if err != nil {
		return Runbook{}, err
	}

	heads, commands := parse(text)
	if len(heads) != 3 || len(commands) < 150 {
		return Runbook{}, fmt.Errorf("the runbook has %d heads and %d commands", len(heads), len(commands))
	}
	return Runbook{ComposeHead: heads[0], MakeRunHead: heads[1], Functions: heads[2], Commands: commands}, nil
}

// readDocument returns the text of a document; its name is a path in this module.
func readDocument(name string) (string, error) {
	root, err := stack.ModuleDir()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, name))
	return string(text), err
}

// parse returns the shell blocks before the first section, and the commands of those behind it.
func parse(text string) (heads []string, commands []Command) {
	section, inBlock, block := "", false, ""
	for line := range strings.Lines(text) {
		fence := strings.TrimSpace(line)
		switch {
		case !inBlock && fence == "```sh":
			inBlock, block = true, ""
		case inBlock && fence == "```" && section == "":
			inBlock = false
			heads = append(heads, block)
		case inBlock && fence == "```":
			inBlock = false
			commands = append(commands, commandsOf(section, block)...)
		case inBlock:
			block += line
		case strings.HasPrefix(line, "## ") || strings.HasPrefix(line, "# Without"):
			section = strings.TrimSpace(strings.TrimLeft(line, "# "))
		}
	}
	return heads, commands
}

// commandsOf returns the commands of a block, without comments.
func commandsOf(section, block string) (commands []Command) {
	for _, line := range strings.Split(strings.ReplaceAll(block, "\\\n", " "), "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			commands = append(commands, Command{Section: section, Line: line})
		}
	}
	return commands
}

// ByHand are the commands, by their beginnings, that no test runs as they stand, and why.
var ByHand = []struct{ Begins, Reason string }{
	{"docker update --memory", "the limit of a machine's own memory"},
	{"docker compose kill -s ABRT", "make compose-test kills programs by another signal"},
	{"docker compose logs --since 5m worker-1 > hang.log", "follows the one before"},
	{"docker compose up -d worker-1", "follows the one before"},
	{"docker compose logs gateway-1 gateway-2 | grep 'msg=\"admin: ' > admin.log", "leaves a file"},
	{"docker compose up -d --no-deps gateway-1 gateway-2 reporting", "a rotation, which has no other key to go to"},
	{"docker compose exec -w / reporting /reporting month correct", "asks a person for a password"},
	{"reporting month correct", "asks a person for a password"},
	{"openssl s_client", "asks for a certificate, which the address named in it has only in production"},
	{"dmesg", "the kernel's log needs rights that a container has not"},
	{"cat /proc/pressure/io", "a kernel without it has no such file"},
	{"sysctl", "not on every machine"},
	{"free", "not on every machine"},
	{"redis config set maxmemory", "changes what other commands see; TestCommands_OfTheDocumentsWorkWithMakeRun runs it last"},
	{"ID=…;", "has a value to fill in"},
}

// IsByHand reports whether no test runs the command.
func (c Command) IsByHand() bool {
	for _, command := range ByHand {
		if strings.HasPrefix(c.Line, command.Begins) {
			return true
		}
	}
	return false
}

// WantsCompose reports whether the command has no counterpart with make run.
func (c Command) WantsCompose() bool {
	wantsObservers := strings.HasPrefix(c.Line, "curl -s http://127.0.0.1:909") // a Prometheus, an Alertmanager
	return wantsObservers || strings.Contains(c.Line, "docker")
}

// cannotWork is what a shell or a program says to a command that is no good.
var cannotWork = regexp.MustCompile(`(?i)not found|unknown (command|flag|shorthand|subcommand|option)|no such (file|service)|syntax error|unrecognized|invalid option|usage:|NOPERM|wrong number of arguments|nobody may come in`)

// CheckOutcome returns an error unless the command has worked. out is what it printed, and err how
// it ended.
func (c Command) CheckOutcome(out string, err error) error {
	var ended *exec.ExitError
	endedWithOne := errors.As(err, &ended) && ended.ExitCode() == 1
	foundNothing := endedWithOne && strings.Contains(c.Line, "grep") && out == "" // there is nothing to see
	if (err == nil || foundNothing) && !cannotWork.MatchString(out) {
		return nil
	}
	if err == nil {
		err = errors.New("it says that it cannot work")
	}
	return fmt.Errorf("%s: %s: %w\n%.600s", c.Section, c.Line, err, out)
}
