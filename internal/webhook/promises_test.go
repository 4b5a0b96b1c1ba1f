package webhook

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
		{"decisions 7: attempts", MaxAttempts, 14},
		{"decisions 7: an event is tried for", Window, 24 * time.Hour},
		{"decisions 7: bytes of a secret", secretSize, 32},
	} {
		if promise.has != promise.want {
			t.Errorf("%s: %v, promised is %v", promise.where, promise.has, promise.want)
		}
	}
}
