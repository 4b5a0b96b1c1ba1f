package service

import "testing"

// Each figure stands here as the documents promise it.
func TestPromises_Figures(t *testing.T) {
	for _, promise := range []struct {
		where     string
		has, want any
	}{
		{"decisions 7: one text in a line of the log, bytes", maxLogged, 2000},
		{"decisions 7: a panic's stack, bytes", maxStack, 16 << 10},
	} {
		if promise.has != promise.want {
			t.Errorf("%s: %v, promised is %v", promise.where, promise.has, promise.want)
		}
	}
}
