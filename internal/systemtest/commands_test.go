package systemtest

import (
	"regexp"
	"strings"
	"testing"
)

// command is a line of a shell block of the runbook, with the lines that it is continued by.
type command struct{ section, line string }

// runbook is configs/prometheus/RUNBOOK.md: its heads, by which its commands work, and the
// commands. The heads are that of compose, that of make run, and the functions for both.
func runbook(t *testing.T) (heads []string, commands []command) {
	t.Helper()
	section, inBlock, block := "", false, ""
	for line := range strings.Lines(readFile(t, "configs/prometheus/RUNBOOK.md")) {
		fence := strings.TrimSpace(line)
		switch {
		case !inBlock && fence == "```sh":
			inBlock, block = true, ""
		case inBlock && fence == "```":
			inBlock = false
			if section == "" {
				heads = append(heads, block)
				continue
			}
			for _, line := range strings.Split(strings.ReplaceAll(block, "\\\n", " "), "\n") {
				line = strings.TrimSpace(line)
				if line != "" && !strings.HasPrefix(line, "#") {
					commands = append(commands, command{section, line})
				}
			}
		case inBlock:
			block += line
		case strings.HasPrefix(line, "## ") || strings.HasPrefix(line, "# Without"):
			section = strings.TrimSpace(strings.TrimLeft(line, "# "))
		}
	}
	if len(heads) != 3 || len(commands) < 150 {
		t.Fatalf("the runbook has %d heads and %d commands", len(heads), len(commands))
	}
	return heads, commands
}

// Where a command of the runbook is run.
const (
	onMakeRun = "make run" // by TestCommands_OfTheRunbookWorkWithMakeRun, as it stands
	onCompose = "compose"  // by make compose-test, as it stands
	byHand    = "nowhere"  // because of what it does or needs
)

// notRun are the commands that no test runs as they stand, and why.
var notRun = []struct{ begins, reason string }{
	{"docker update --memory", "the limit of a machine's own memory"},
	{"docker compose kill -s ABRT", "make compose-test kills programs by another signal"},
	{"docker compose logs --since 5m worker-1 > hang.log", "follows the one before"},
	{"docker compose up -d worker-1", "follows the one before"},
	{"docker compose logs gateway-1 gateway-2 | grep 'msg=\"admin: ' > admin.log", "leaves a file"},
	{"docker compose up -d --no-deps gateway-1 gateway-2 reporting", "a rotation, which has no other key to go to"},
	{"docker compose exec -w / reporting /reporting month correct", "asks a person for a password"},
	{"reporting month correct", "asks a person for a password"},
	{"curl -s http://127.0.0.1:909", "a Prometheus and an Alertmanager, which make alerts starts at other addresses"},
	{"docker compose --profile observe ps", "needs the profile observe, which has no images without a network"},
	{"docker compose logs --since 30m prometheus alertmanager", "needs the profile observe"},
	{"docker compose logs --since 30m balancer disks alertmanager", "needs the profile observe"},
	{"docker compose ps backup", "needs the profile backup"},
	{"docker compose ps -a backup", "needs the profile backup"},
	{"docker compose logs --since 48h backup", "needs the profile backup"},
	{"openssl s_client", "asks for a certificate, and make run has none"},
	{"dmesg", "the kernel's log needs rights that a container has not"},
	{"cat /proc/pressure/io", "a kernel without it has no such file"},
	{"sysctl", "not on every machine"},
	{"free", "not on every machine"},
	{"redis config set maxmemory", "changes what other commands see; run last, see there"},
	{"ID=…;", "has a value to fill in"},
}

func whereItIsRun(line string) (place, reason string) {
	for _, n := range notRun {
		if strings.HasPrefix(line, n.begins) {
			return byHand, n.reason
		}
	}
	if strings.Contains(line, "docker") {
		return onCompose, ""
	}
	return onMakeRun, ""
}

// Every command of the runbook is run as it stands, or the table says why it is not.
func TestCommands_EachIsRunSomewhere(t *testing.T) {
	t.Parallel()
	_, commands := runbook(t)
	used := make([]bool, len(notRun))
	for _, c := range commands {
		for i, n := range notRun {
			used[i] = used[i] || strings.HasPrefix(c.line, n.begins)
		}
	}
	for i, n := range notRun {
		if !used[i] || n.reason == "" {
			t.Errorf("no command begins with %q, or no reason says why it is not run", n.begins)
		}
	}
}

// What looks harmless must be: under Look nothing is changed, and nowhere is something told
// that cannot work or that destroys what somebody needs.
func TestCommands_OfTheRunbookAreSafe(t *testing.T) {
	t.Parallel()
	_, commands := runbook(t)
	text := readFile(t, "configs/prometheus/RUNBOOK.md")
	for section := range strings.SplitSeq(text, "\n## ") {
		_, look, _ := strings.Cut(section, "**Look.**")
		look, _, _ = strings.Cut(look, "**Do.**")
		for _, changing := range []string{"month correct", "month close", "config set", "xtrim", "-X ", "up -d", "kill -", "prune", "clickhouse_do"} {
			if regexp.MustCompile(`(?m)^` + "[^`]*" + regexp.QuoteMeta(changing)).MatchString(blocksOf(look)) {
				t.Errorf("%.30q changes something under Look: %s", section, changing)
			}
		}
	}
	for _, c := range commands {
		if strings.HasPrefix(c.line, "report ") {
			t.Errorf("%s: there is no command report: %s", c.section, c.line)
		}
		if strings.Contains(c.line, "slowlog get") && !strings.Contains(c.line, "--no-raw") {
			t.Errorf("%s: keys are binary, a terminal is not: %s", c.section, c.line)
		}
	}
	if regexp.MustCompile("`docker system prune`[^,]").MatchString(strings.ReplaceAll(text, "never `docker system prune`", "")) {
		t.Error("docker system prune removes the logs of stopped containers")
	}
	if regexp.MustCompile(`clickhouse '\?query=(KILL|SYSTEM|TRUNCATE)`).MatchString(text) {
		t.Error("ClickHouse carries out nothing that changes anything over GET")
	}
}

// blocksOf are the shell blocks of a text.
func blocksOf(text string) (blocks string) {
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		blocks += block[1]
	}
	return blocks
}
