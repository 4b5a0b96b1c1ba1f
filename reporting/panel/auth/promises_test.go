package auth

import (
	"testing"
	"time"
)

// Each figure stands here as the documents promise it.
func TestPromises_Figures(t *testing.T) {
	for _, promise := range []struct {
		where     string
		has, want any
	}{
		{"SECURITY: memory of a password's hash, KiB", hashing.Memory, uint32(64 << 10)},
		{"SECURITY: sign-ins that wait", mostWaiting, 256},
		{"SECURITY: each of them waits", checkTimeout, 50 * time.Second},
		{"SECURITY: log lines of refused sign-ins a minute", refusalsLogged, 20},
		{"a browser is known for 90 days", deviceLifetime, 90 * 24 * time.Hour},
	} {
		if promise.has != promise.want {
			t.Errorf("%s: %v, promised is %v", promise.where, promise.has, promise.want)
		}
	}
}
