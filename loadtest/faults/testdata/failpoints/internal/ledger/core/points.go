package core

import (
	"context"

	"vendorapi/loadtest/faults/failpoint/point"
)

// Calls of scripts carry the marks of failpoints, and no script notices: an argument behind the last
// one is not read.

func (l *Client) Run(ctx context.Context, file string, keys []string, args ...any) (reply any, err error) {
	p := point.Of(ctx)
	if p != "" {
		args = append(args, p.Mark())
	}
	return l.RunOriginal(ctx, file, keys, args...)
}
