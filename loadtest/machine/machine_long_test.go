//go:build long

package machine

import (
	"regexp"
	"runtime"
	"strings"
	"testing"
)

func TestDescribe_NamesWhatEveryMachineHas(t *testing.T) {
	m := Describe(t.Context())
	if m.Cores < 1 || m.Go != runtime.Version() || m.Date.IsZero() {
		t.Errorf("%+v", m)
	}
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(m.Redis) {
		t.Errorf("Redis %q is no version; the tests need redis-server", m.Redis)
	}
	for _, part := range []string{m.CPU, m.Kernel, "Redis " + m.Redis, "commit " + m.Commit} {
		if !strings.Contains(m.String(), part) {
			t.Errorf("%q lacks %q", m, part)
		}
	}
}

func TestFirstMatch_SaysUnknown(t *testing.T) {
	for name, args := range map[string][]string{"no such program": {"no-such-program"}, "another output": {"go", "version"}} {
		if got := firstMatch(t.Context(), `^never (.*)$`, args[0], args[1:]...); got != "unknown" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
