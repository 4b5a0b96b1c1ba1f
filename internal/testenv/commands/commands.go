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
	"slices"
	"strings"

	"vendorapi/internal/stack"
)

// A Command is a line of a shell block with the lines that it is continued by, or what a sentence of
// the runbook has between backquotes and begins with a function of runbook.sh or with one of programs.
type Command struct{ Section, Line string }

// programs of the system begin commands in sentences of the runbook, besides functions of runbook.sh.
var programs = []string{"docker", "dmesg", "free", "sysctl", "cat", "df", "curl"}

// script defines the functions that the runbook's commands use.
const script = "configs/prometheus/runbook.sh"

// Source returns the lines of a shell that source runbook.sh for a system, compose or run, in the
// folder of the module. Commands are put behind them.
func Source(system string) string {
	return "set -- " + system + "\n. " + script + " >/dev/null || exit\n"
}

// Functions returns the names of the functions that runbook.sh defines for those who source it.
func Functions() ([]string, error) {
	text, err := readDocument(script)
	if err != nil {
		return nil, err
	}

	var names []string
	for _, found := range function.FindAllStringSubmatch(text, -1) {
		isInternal := strings.HasPrefix(found[1], "runbook_")
		if !isInternal && !slices.Contains(names, found[1]) {
			names = append(names, found[1])
		}
	}
	return names, nil
}

var function = regexp.MustCompile(`(?m)^ *([a-z_]+)\(\) [({]`)

// ReadRunbook returns the commands of the runbook of this module, each once.
func ReadRunbook() ([]Command, error) {
	text, err := readDocument("docs/runbook.md")
	if err != nil {
		return nil, err
	}
	functions, err := Functions()
	if err != nil {
		return nil, err
	}

	commands := parse(text, append(functions, programs...))
	if len(commands) < 120 {
		return nil, fmt.Errorf("the runbook has %d commands", len(commands))
	}
	return commands, nil
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

// parse returns the commands of the runbook, in blocks and in sentences, in their order. One that
// stands there again is returned once.
func parse(text string, beginnings []string) (all []Command) {
	add := func(commands []Command) {
		for _, c := range commands {
			isThere := slices.ContainsFunc(all, func(other Command) bool { return other.Line == c.Line })
			if !isThere {
				all = append(all, c)
			}
		}
	}

	section, prose, block := "", "", ""
	inBlock, isShell := false, false
	for line := range strings.Lines(text) {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && !inBlock:
			add(inProse(section, prose, beginnings))
			prose, block = "", ""
			inBlock, isShell = true, fence == "sh"
		case isFence:
			inBlock = false
			if isShell {
				add(commandsOf(section, block))
			}
		case inBlock:
			block += line
		case strings.HasPrefix(line, "## "):
			add(inProse(section, prose, beginnings))
			section, prose = strings.TrimSpace(line[len("## "):]), ""
		default:
			prose += line
		}
	}
	add(inProse(section, prose, beginnings))
	return all
}

var inBackquotes = regexp.MustCompile("`([^`]+)`")

// inProse returns what stands between backquotes and begins with one of the words. Such a word alone
// is no command: it may be a name.
func inProse(section, prose string, beginnings []string) (commands []Command) {
	for _, found := range inBackquotes.FindAllStringSubmatch(prose, -1) {
		words := strings.Fields(found[1])
		if len(words) > 1 && slices.Contains(beginnings, words[0]) {
			commands = append(commands, Command{Section: section, Line: strings.Join(words, " ")})
		}
	}
	return commands
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

// ByHand are the commands, by their beginnings, that no test runs as they stand, and why. Where one
// names services, TestCompose_HasTheServicesThatTheRunbookNames knows them.
var ByHand = []struct{ Begins, Reason string }{
	{"docker compose down -v", "destroys: the runbook says never"},
	{"docker system prune", "destroys: the runbook says never"},
	{"docker compose up -d", "make compose-test starts what has stopped by commands of operations.md"},
	{"docker compose --profile observe up -d", "make compose-test does so by a command of operations.md"},
	{"docker compose restart", "others of these commands need what it stops"},
	{"docker compose kill -s", "make compose-test kills programs by another signal"},
	{"docker compose logs --since 5m worker-1 > hang.log", "follows the one before"},
	{"docker compose logs gateway-1 gateway-2 | grep 'msg=\"admin: ' > admin.log", "leaves a file"},
	{"docker image prune", "asks, and removes what others of the machine use"},
	{"docker builder prune", "asks, and removes what others of the machine use"},
	{"docker update --memory", "the limit of a machine's own memory"},
	{"logs > last.log", "leaves a file"},
	{"reporting migrate --help", "says how it is used, as commands with a mistake do"},
	{"reporting month recover", "has nothing to recover, which is an error"},
	{"openssl s_client", "asks for a certificate, which the address named in it has only in production"},
	{"dmesg", "the kernel's log needs rights that a container has not"},
	{"cat /proc/pressure/io", "a kernel without it has no such file"},
	{"sysctl", "not on every machine"},
	{"free", "not on every machine"},
	{"redis config set maxmemory 4gb", "changes what other commands see; TestCommands_OfTheDocumentsWorkWithMakeRun runs it last"},
}

// toFillIn is what the runbook has in place of a value: a word in capitals, or an ellipsis.
var toFillIn = regexp.MustCompile(`…|\b(ID|EVENT_ID|NAME|FILE|BYTES|TIME|B)\b`)

// IsByHand reports whether no test runs the command, because it is one of ByHand or has a value to
// fill in.
func (c Command) IsByHand() bool {
	if toFillIn.MatchString(c.Line) {
		return true
	}
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
var cannotWork = regexp.MustCompile(`(?i)not found|unknown (command|flag|shorthand|subcommand|option)|no such (file|service)|syntax error|unrecognized|invalid option|usage:|NOPERM|wrong number of arguments|nobody may come in|does not answer`)

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
