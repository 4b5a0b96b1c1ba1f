// Package commands reads the commands that the operators' documents tell people to type, so that
// tests can run them as they stand: against make run in loadtest/systemtest, against
// docker-compose.yml in loadtest/composetest.
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
	if len(commands) < inRunbook {
		return nil, fmt.Errorf("the runbook has %d commands, want %d: were some not found?", len(commands), inRunbook)
	}

	return commands, nil
}

// inRunbook is how many commands the runbook has, at least. Whoever removes one from it lowers this
// number, and those of the commands that tests run.
const inRunbook = 154

// How many commands of the runbook are run as they stand, at least.
const (
	RunWithMakeRun = 103
	RunWithCompose = 112
)

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

// ByHand are the commands, without their comments, that no test runs as they stand, and why. Where one
// names services, TestCompose_HasTheServicesThatTheRunbookNames knows them.
var ByHand = []struct{ Line, Reason string }{
	{"docker compose down -v", "destroys: the runbook says never"},
	{"docker system prune", "destroys: the runbook says never"},

	{"docker compose up -d", startsWhatHasStopped},
	{"docker compose up -d balancer", startsWhatHasStopped},
	{"docker compose up -d clickhouse", startsWhatHasStopped},
	{"docker compose up -d redis", startsWhatHasStopped},
	{"docker compose up -d worker-1", startsWhatHasStopped},
	{"docker compose up -d worker-1 worker-2", startsWhatHasStopped},
	{"docker compose up -d --no-deps gateway-1 gateway-2 reporting", startsWhatHasStopped},
	{"docker compose --profile observe up -d", startsWhatHasStopped},
	{"docker compose restart backup", "other commands need what it stops"},
	{"docker compose restart balancer", "other commands need what it stops"},
	{"docker compose kill -s ABRT worker-1", "make compose-test kills programs by another signal"},
	{"docker compose kill -s HUP balancer", "make compose-test kills programs by another signal"},

	{"docker compose logs --since 5m worker-1 > hang.log", "follows the one before"},
	{"docker compose logs gateway-1 gateway-2 | grep 'msg=\"admin: ' > admin.log", "leaves a file"},
	{"logs > last.log", "leaves a file"},
	{"docker image prune", "asks, and removes what others of the machine use"},
	{"docker builder prune", "asks, and removes what others of the machine use"},
	{`docker update --memory 5632m --memory-swap 5632m "$(docker compose ps -q redis)"`, "the limit of a machine's own memory"},

	{"reporting migrate --help", "prints its usage, which CheckOutcome takes for a mistake"},
	{"reporting month recover", "has nothing to recover, which is an error"},
	{"reporting month recover --newer", "has nothing to recover, which is an error"},
	{`openssl s_client -connect "${BASE_URL#*//}" </dev/null 2>/dev/null | openssl x509 -noout -enddate 2>/dev/null`, "asks for a certificate, which the address named in it has only in production"},
	{"dmesg | grep -i 'killed process' | tail", "the kernel's log needs rights that a container has not"},
	{"cat /proc/pressure/io", "a kernel without it has no such file"},
	{"sysctl vm.overcommit_memory=1", "not on every machine"},
	{"free -m", "not on every machine"},
	{"redis config set maxmemory 4gb", "changes what other commands see; TestCommands_OfTheDocumentsWorkWithMakeRun runs it last"},
}

const startsWhatHasStopped = "make compose-test starts what has stopped by commands of operations.md"

// toFillIn is what the runbook has in place of a value: a word in capitals, or an ellipsis.
var toFillIn = regexp.MustCompile(`…|\b(ID|EVENT_ID|NAME|FILE|BYTES|TIME|B)\b`)

// WithoutComment returns the command's line without the comment that may follow it.
func (c Command) WithoutComment() string {
	line, _, _ := strings.Cut(c.Line, " #")
	return strings.TrimSpace(line)
}

// IsByHand reports whether no test runs the command, because it is one of ByHand or has a value to
// fill in.
func (c Command) IsByHand() bool {
	line := c.WithoutComment()
	if toFillIn.MatchString(line) {
		return true
	}

	for _, command := range ByHand {
		if line == command.Line {
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
