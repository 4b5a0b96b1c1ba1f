//go:build long

package systemtest

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// streams are the lists of pending entries and the consumers of every stream,
// asked of the servers themselves.
type streams struct{ servers []commander }

// commander is a Redis that takes an operator's commands.
type commander interface {
	Command(ctx context.Context, args ...string) (string, error)
}

// settled waits until no group of a role that runs has an entry pending.
func (s *streams) settled(t *testing.T) {
	t.Helper()
	s.each(t, func(server commander, stream, role string) {
		await(t, role+" has nothing pending in "+stream, func() bool {
			pending, err := server.Command(t.Context(), "XPENDING", stream, role, "-", "+", "1")
			must(t, err)
			return pending == ""
		})
	})
}

// consumers are the names that any group knows.
func (s *streams) consumers(t *testing.T) []string {
	t.Helper()
	var names []string
	s.each(t, func(server commander, stream, role string) {
		listed, err := server.Command(t.Context(), "XINFO", "CONSUMERS", stream, role)
		must(t, err)
		fields := strings.Split(listed, "\n")
		for i, field := range fields[:max(len(fields)-1, 0)] {
			if field == "name" && !slices.Contains(names, fields[i+1]) {
				names = append(names, fields[i+1])
			}
		}
	})

	slices.Sort(names)

	return names
}

// each visits the groups of the worker's roles.
func (s *streams) each(t *testing.T, visit func(server commander, stream, role string)) {
	t.Helper()
	for _, server := range s.servers {
		for suffix, roles := range map[string][]string{"e": {"status", "webhook"}, "u": {"status"}} {
			found, err := server.Command(t.Context(), "KEYS", "{s[0-9a-f][0-9a-f]*}"+suffix)
			must(t, err)
			for _, stream := range strings.Fields(found) {
				if strings.Index(stream, "}") != len(stream)-2 { // the key of an order may end like that
					continue
				}
				for _, role := range roles {
					visit(server, stream, role)
				}
			}
		}
	}
}
