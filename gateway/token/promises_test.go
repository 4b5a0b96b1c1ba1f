package token

import (
	"testing"
	"time"
)

// Each figure stands here as the documents promise it.
func TestPromises_Figures(t *testing.T) {
	for _, promise := range []struct {
		where     string
		has, want time.Duration
	}{
		{"specification, other constants: token lifetime", Lifetime, 3600 * time.Second},
		{"decisions 4: how far ahead a token may be dated", futureTolerance, 5 * time.Second},
	} {
		if promise.has != promise.want {
			t.Errorf("%s: %v, promised is %v", promise.where, promise.has, promise.want)
		}
	}
}
