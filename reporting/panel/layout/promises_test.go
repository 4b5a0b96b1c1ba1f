package layout

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
		{"SECURITY: a page that refreshes itself is noted once in", liveViewsNotedEvery, time.Hour},
	} {
		if promise.has != promise.want {
			t.Errorf("%s: %v, promised is %v", promise.where, promise.has, promise.want)
		}
	}
}
