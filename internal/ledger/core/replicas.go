package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// ErrUnconfirmed says that Redis has done what it was asked, but replicas have not confirmed in time
// that it is on their disks: it may be lost yet. The same request may be repeated, as after a lost answer.
var ErrUnconfirmed = fmt.Errorf("%w: the replicas have not confirmed in time", delivery.ErrUnavailable)

// confirmTimeout is how long replicas may take to receive, and once more to write: together less than
// each client's read timeout.
const confirmTimeout = 500 * time.Millisecond

// confirmed makes each reply of a server wait until all that the server held when it answered is on
// its own disk and on those of replicas. Behind the commands of a round trip, and on their
// connection, come a write and a WAITAOF, which waits for that write and so for all before it. A
// WAIT stands before it: a replica that is asked along with the write answers before its fsync, and
// is not asked again for a second.
//
// The write fences: a reply that was only read may come from a master that has been replaced without
// knowing it. From the moment at which a replica is promoted it confirms nothing to its old master, so
// that no reply of that master is taken for an answer, be it of a write or of a read. A server without
// memory refuses SET, but not EXPIRE, which is written and sent on wherever the key is: there, too, what
// makes room is answered.
//
// The same connection matters: another may lead to the new master, and there the write that was lost
// would pass for confirmed. Three kinds of commands are not made to wait: those without a key; those of
// redis_rate, whose counts may be lost with a master, because they only slow callers down; and
// transactions, which only restoring and erasing use.
type confirmed struct {
	server   *redis.Client
	replicas int
}

// Unconfirmed returns a context for commands that do not wait for replicas: optimistic transactions,
// which must stay on their connection, and reads that decide nothing, because a script compares again
// before it writes. A later command with an ordinary context confirms all that its server holds, and
// so shows whether a transaction's write is still there.
func Unconfirmed(ctx context.Context) context.Context {
	return context.WithValue(ctx, unconfirmedKey{}, true)
}

type unconfirmedKey struct{}

// confirmBy lets replicas confirm what the server of a client answers.
func confirmBy(replicas int) func(*redis.Client) {
	return func(server *redis.Client) {
		if replicas > 0 {
			server.AddHook(confirmed{server, replicas})
		}
	}
}

// DialHook is not used.
func (confirmed) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook sends a command that has a key as a pipeline.
func (h confirmed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if TagOf(cmd) == "" || ctx.Value(unconfirmedKey{}) != nil {
			return next(ctx, cmd)
		}
		pipe := h.server.Pipeline()
		_ = pipe.Process(ctx, cmd) // it only queues
		_, _ = pipe.Exec(ctx)      // the command carries its own error
		return cmd.Err()
	}
}

// ProcessPipelineHook appends the write and the wait.
func (h confirmed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		tag := ""
		for i := 0; i < len(cmds) && tag == ""; i++ {
			tag = TagOf(cmds[i])
		}

		if tag == "" || cmds[0].Name() == "multi" || ctx.Value(unconfirmedKey{}) != nil {
			return next(ctx, cmds)
		}

		key := tag + string(rune(kindConfirmed))
		set, expire := redis.NewStatusCmd(ctx, "set", key, ""), redis.NewIntCmd(ctx, "expire", key, fenceSeconds)
		received := redis.NewIntCmd(ctx, "wait", h.replicas, confirmTimeout.Milliseconds())
		onDisk := redis.NewIntSliceCmd(ctx, "waitaof", 1, h.replicas, confirmTimeout.Milliseconds())
		err := next(ctx, append(cmds[:len(cmds):len(cmds)], set, expire, received, onDisk))
		missing := h.missing(expire, onDisk)
		if missing == nil {
			return err
		}

		for _, cmd := range cmds {
			if err := cmd.Err(); err == nil || errors.Is(err, redis.Nil) {
				cmd.SetErr(missing)
			}
		}

		return missing
	}
}

// fenceSeconds is longer than a server stays without memory: a week.
const fenceSeconds = 7 * 24 * 3600

// missing is nil when this server and enough replicas have confirmed the write.
func (h confirmed) missing(expire *redis.IntCmd, onDisk *redis.IntSliceCmd) error {
	if err := errors.Join(expire.Err(), onDisk.Err()); err != nil {
		return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	if expire.Val() != 1 {
		return fmt.Errorf("%w: nothing could be written", ErrUnconfirmed)
	}
	if got := onDisk.Val(); len(got) != 2 || got[0] < 1 || got[1] < int64(h.replicas) {
		return fmt.Errorf("%w: own disk and replicas: %d, of 1 and %d", ErrUnconfirmed, got, h.replicas)
	}

	return nil
}

// TagOf is the hash tag of a command's first key, {…}; empty when it has none.
func TagOf(cmd redis.Cmder) string {
	switch cmd.Name() {
	case "scan", "hello", "auth": // patterns and passwords are no keys
		return ""
	}

	for _, arg := range cmd.Args()[1:] {
		var key string
		switch arg := arg.(type) {
		case string:
			key = arg
		case *argument:
			key = string(*arg)
		}

		key = strings.TrimPrefix(key, BooksPrefix)
		key = strings.TrimPrefix(key, SessionsPrefix)
		if strings.HasPrefix(key, "{") {
			return key[:strings.IndexByte(key, '}')+1]
		}
	}

	return ""
}

// checkConfirming fails when a master that answers cannot confirm at all, or has further replicas: WAITAOF takes any
// for one that is to confirm, and another could be elected. The alert RedisReplicaTooMany watches later ones.
func (l *Client) checkConfirming(ctx context.Context) error {
	if l.Replicas == 0 {
		return nil
	}

	var asked atomic.Bool // one of the masters, at least
	away := func(at string, err error) error {
		if !l.IsCluster {
			return err
		}
		l.Log.Warn("a master cannot be asked for confirmations", "master", at, "error", err)
		return nil
	}

	err := l.EachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		at := one.Options().Addr
		if err := one.Do(ctx, "waitaof", 1, 0, 1).Err(); err != nil {
			text := err.Error()
			isUnsupported := strings.Contains(text, "unknown command") || strings.Contains(text, "appendonly is disabled")
			if isUnsupported {
				return fmt.Errorf("redis.durability: replica needs Valkey, or Redis 7.2 or later, with an append-only file: %w", err)
			}

			// Such as a replica, before it is promoted.
			return away(at, fmt.Errorf("asking for confirmations: %w: %w", delivery.ErrUnavailable, err))
		}

		info, err := one.Info(ctx, "replication").Result()
		if err != nil {
			return away(at, Failed("asking for replicas", err))
		}

		asked.Store(true)
		inSync := ParseServer(at, info).Replicas
		switch {
		case inSync > int64(l.Replicas):
			return fmt.Errorf("%w: %s has %d replicas, and redis.replicas, which is the number of all, is %d",
				delivery.ErrUnavailable, at, inSync, l.Replicas)
		case inSync < int64(l.Replicas):
			l.Log.Warn("replicas are missing, without which nothing is answered",
				"master", at, "in sync", inSync, "redis.replicas", l.Replicas)
		}

		return nil
	})

	if err == nil && !asked.Load() {
		err = fmt.Errorf("%w: no master can be asked for confirmations", delivery.ErrUnavailable)
	}

	return err
}
