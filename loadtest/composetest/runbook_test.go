package composetest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/testenv/commands"
)

// onServices matches commands of docker compose. Its group is what follows the verb: options and
// services.
var onServices = regexp.MustCompile(`docker compose (?:--profile observe )?(?:up|restart|kill|logs|ps|run|exec|start|stop)\b([^|>;)]*)`)

// TestCompose_HasTheServicesThatTheRunbookNames also holds for commands that no test runs.
func TestCompose_HasTheServicesThatTheRunbookNames(t *testing.T) {
	t.Parallel()

	p, err := loadProject(t, written())
	if err != nil {
		t.Fatal(err)
	}

	services := p.ServiceNames()

	runbook, err := commands.ReadRunbook()
	if err != nil {
		t.Fatal(err)
	}

	found := 0
	for _, c := range runbook {
		for _, command := range onServices.FindAllStringSubmatch(c.WithoutComment(), -1) {
			for _, word := range servicesOf(command[1]) {
				found++
				if !slices.Contains(services, word) {
					t.Errorf("%s: %s: there is no service %q", c.Section, c.Line, word)
				}
			}
		}
	}

	if found < 20 {
		t.Errorf("found %d services in the runbook", found)
	}
}

// servicesOf returns the words of a command that name services: those before the program that
// is run in a service, without options and their values.
func servicesOf(words string) (services []string) {
	optionsWithValue := []string{"--since", "-s", "-w"}
	previous := ""
	for _, word := range strings.Fields(words) {
		isValue := slices.Contains(optionsWithValue, previous)
		isOption := strings.HasPrefix(word, "-")
		previous = word
		if isValue || isOption {
			continue
		}

		isProgram := strings.HasPrefix(word, "/") || word == "haproxy"
		if isProgram {
			break
		}

		services = append(services, word)
	}

	return services
}
