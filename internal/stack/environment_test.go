package stack

import (
	"slices"
	"testing"
)

func TestEnvironment_LeavesOutTheOtherFormOfAProgramsOwnVariables(t *testing.T) {
	inherited := []string{"PATH=/bin", "REDIS_URL_FILE=/run/url", "TOKEN_KEYS=k", "LOG_LEVEL_FILE=/run/level"}
	own := []string{"REDIS_URL=redis://x", "TOKEN_KEYS_FILE=/run/keys"}
	want := []string{"PATH=/bin", "LOG_LEVEL_FILE=/run/level", "REDIS_URL=redis://x", "TOKEN_KEYS_FILE=/run/keys"}
	if got := environment(inherited, own); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
