package ledger

import (
	"context"
	"embed"

	"github.com/redis/go-redis/v9"
)

// The scripts in eval/ are sent with EVAL; they are not functions of the library in lua/. Gateway and worker may
// load a library, and so replace a function that others call: reporting, which has rights that they
// do not have, calls none that writes.
//
//go:embed eval/*.lua
var evalFiles embed.FS

var (
	compareAndSet   = evalScript("compare_and_set")
	makeGroup       = evalScript("make_group")
	forgetConsumers = evalScript("forget_consumers")
	settleEntry     = evalScript("settle_entry")
)

func evalScript(name string) *redis.Script {
	text, err := evalFiles.ReadFile("eval/" + name + ".lua")
	if err != nil {
		panic(err) // it is compiled in
	}
	return redis.NewScript(string(text))
}

// evaluate sends a script, and sends it again when what went wrong may pass.
func (l *core) evaluate(ctx context.Context, name string, s *redis.Script, keys []string, args ...any) error {
	keys = l.keysOf(keys)
	return l.attempt(ctx, &script{name: name}, func() error {
		return s.Run(ctx, l.rdb, keys, args...).Err()
	})
}
