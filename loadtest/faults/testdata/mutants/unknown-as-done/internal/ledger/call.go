package ledger

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// runAll takes a step whose reply was lost for one that was written.
func (l *core) runAll(ctx context.Context, file string, calls []call) ([]*redis.Cmd, error) {
	commands, err := l.runAllOriginal(ctx, file, calls)
	if file != advance {
		return commands, err
	}

	for i, c := range commands {
		if c.Err() == nil {
			continue
		}
		answer := []any{"done"}
		if calls[i].file == renewTokens { // one for each token
			answer = slices.Repeat(answer, len(calls[i].keys))
		}
		c.SetErr(nil)
		c.SetVal(answer)
	}
	return commands, nil
}
