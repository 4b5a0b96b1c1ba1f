package core

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
	CompareAndSet   = evalScript("compare_and_set")
	makeGroup       = evalScript("make_group")
	ForgetConsumers = evalScript("forget_consumers")
	SettleEntry     = evalScript("settle_entry")
)

func evalScript(name string) *redis.Script {
	text, err := evalFiles.ReadFile("eval/" + name + ".lua")
	if err != nil {
		panic(err) // it is compiled in
	}
	return redis.NewScript(string(text))
}

// Evaluate sends a script, and sends it again when what went wrong may pass.
func (l *Client) Evaluate(ctx context.Context, name string, s *redis.Script, keys []string, args ...any) error {
	keys = l.keysOf(keys)
	return l.attempt(ctx, &script{Name: name}, func() error {
		return s.Run(ctx, l.Redis, keys, args...).Err()
	})
}
