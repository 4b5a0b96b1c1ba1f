package containers

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")
	function   = regexp.MustCompile(`(?m)^([a-z]+)\(\) \{`)
	loopback   = regexp.MustCompile(`127\.0\.0\.1:([0-9]+)`)
	logged     = regexp.MustCompile(`(?m)\blogs ((?:[a-z]+(?:-[0-9])? ?)+)`)
	inCompose  = regexp.MustCompile(`docker compose (?:exec|run)((?: --?[a-zA-Z-]+| /)*) ([a-z]+(?:-[0-9])?) `)
)

// runbook are the shell blocks of the runbook: the head for compose, the head for
// make run, what follows after either, and what the sections say.
func runbook(t *testing.T) (compose, local, both string, looks []string) {
	t.Helper()
	found := shellBlock.FindAllStringSubmatch(read(t, "configs/prometheus/RUNBOOK.md"), -1)
	if len(found) < 4 {
		t.Fatalf("%d blocks of commands", len(found))
	}
	for _, f := range found[3:] {
		looks = append(looks, f[1])
	}
	return found[0][1], found[1][1], found[2][1], looks
}

func functions(text string) (names []string) {
	for _, f := range function.FindAllStringSubmatch(text, -1) {
		names = append(names, f[1])
	}
	return names
}

func TestRunbook_ShellsUnderstandEveryBlock(t *testing.T) {
	t.Parallel()
	compose, local, both, looks := runbook(t)
	for _, block := range append(looks, compose, local, both) {
		check := exec.CommandContext(t.Context(), "sh", "-n")
		check.Stdin = strings.NewReader(block)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%v: %s in\n%s", err, out, block)
		}
	}
}

// Both heads define the same functions, and what the sections run is one of them or
// a tool of the host.
func TestRunbook_RunsOnlyWhatItsHeadsDefine(t *testing.T) {
	t.Parallel()
	compose, local, both, looks := runbook(t)
	names := functions(compose)
	if other := functions(local); !slices.Equal(names, other) {
		t.Errorf("compose has %v, make run %v", names, other)
	}
	names = append(names, functions(both)...)
	tools := []string{"docker", "dmesg", "openssl", "ls", "ss", "df", "cat", "sysctl"}
	for _, block := range looks {
		for line := range strings.Lines(block) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if !strings.HasPrefix(word, "#") && !strings.HasPrefix(word, "ID=") && !slices.Contains(names, word) && !slices.Contains(tools, word) {
				t.Errorf("nothing is called %q, in %s", word, line)
			}
		}
	}
}

// published are the services that are reached on the host at each port, and where
// they listen.
func published(t *testing.T) map[string][2]string {
	t.Helper()
	found := map[string][2]string{}
	for name, s := range whole(t).Services {
		for _, port := range s.Ports {
			found[port.Published] = [2]string{name, fmt.Sprintf("0.0.0.0:%d", port.Target)}
		}
	}
	return found
}

// Each address of the head for compose is published, by a service of the program's
// kind and at its private listener.
func TestRunbook_AddressesAreOnesThatComposePublishes(t *testing.T) {
	t.Parallel()
	head, _, _, _ := runbook(t)
	ports, services := published(t), whole(t).Services
	listeners := map[string]string{"gateway": "OPS_ADDR", "worker": "WORKER_OPS_ADDR", "reporting": "REPORTING_OPS_ADDR"}
	asked := map[string]bool{}
	for program, variable := range listeners {
		_, line, ok := strings.Cut(head, program+") echo ")
		line, _, _ = strings.Cut(line, "\n")
		if !ok {
			t.Fatalf("no address of %s", program)
		}
		for _, at := range loopback.FindAllStringSubmatch(line, -1) {
			place := ports[at[1]]
			listens := services[place[0]].Environment[variable]
			if !strings.HasPrefix(place[0], program) || listens == nil || *listens != place[1] {
				t.Errorf("%s: %s leads to %v", program, at[0], place)
			}
			asked[place[0]] = true
		}
	}
	for name, s := range services {
		if s.Build != nil && !asked[name] {
			t.Errorf("nobody asks %s", name)
		}
	}
	if !strings.Contains(head, "OPS_URL=http://127.0.0.1:8081 ") || ports["8081"][0] != "balancer" {
		t.Errorf("8081 leads to %v", ports["8081"])
	}
}

func TestRunbook_NamesServices(t *testing.T) {
	t.Parallel()
	services := whole(t).Services
	text := read(t, "configs/prometheus/RUNBOOK.md")
	var named []string
	for _, found := range inCompose.FindAllStringSubmatch(text, -1) {
		named = append(named, found[2])
	}
	_, _, _, looks := runbook(t)
	for _, found := range logged.FindAllStringSubmatch(strings.Join(looks, "\n"), -1) {
		named = append(named, strings.Fields(found[1])...)
	}
	if len(named) < 20 {
		t.Errorf("only %v", named)
	}
	for _, name := range named {
		if _, ok := services[name]; !ok {
			t.Errorf("the runbook names %s, which is no service", name)
		}
	}
}
