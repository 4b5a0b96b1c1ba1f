package tracking

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
		{"SECURITY: a tracking link after the order", linkLifetime, 24 * time.Hour},
		{"OPERATIONS: the drop-off to 111 m, degrees", coarse, 0.001},
		{"a page waits for Redis", readTimeout, 5 * time.Second},
	} {
		if promise.has != promise.want {
			t.Errorf("%s: %v, promised is %v", promise.where, promise.has, promise.want)
		}
	}
}
