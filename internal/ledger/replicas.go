package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// ErrUnconfirmed says that Redis has done what it was asked, but replicas have not confirmed in time
// that it is on their disks: it may be lost yet. The same request may be repeated, and is recognised.
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
// that no reply of that master is taken for an answer, be it of a write or of a read.
//
// The same connection matters: another may lead to the new master, and there the write that was lost
// would pass for confirmed. Commands without a key are not made to wait, nor are transactions, which
// only restoring and erasing use.
type confirmed struct {
	server   *redis.Client
	replicas int
}

// unconfirmed is a context for optimistic transactions, which must stay on their connection. What is read
// or written with another one afterwards is confirmed together with them.
func unconfirmed(ctx context.Context) context.Context {
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
		if tagOf(cmd) == "" || ctx.Value(unconfirmedKey{}) != nil {
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
			tag = tagOf(cmds[i])
		}
		if tag == "" || cmds[0].Name() == "multi" || ctx.Value(unconfirmedKey{}) != nil {
			return next(ctx, cmds)
		}
		write := redis.NewStatusCmd(ctx, "set", tag+string(rune(kindConfirmed)), "")
		received := redis.NewIntCmd(ctx, "wait", h.replicas, confirmTimeout.Milliseconds())
		onDisk := redis.NewIntSliceCmd(ctx, "waitaof", 1, h.replicas, confirmTimeout.Milliseconds())
		err := next(ctx, append(cmds[:len(cmds):len(cmds)], write, received, onDisk))
		missing := h.missing(write, onDisk)
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

// missing is nil when this server and enough replicas have confirmed the write.
func (h confirmed) missing(write *redis.StatusCmd, onDisk *redis.IntSliceCmd) error {
	if err := errors.Join(write.Err(), onDisk.Err()); err != nil {
		return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	if got := onDisk.Val(); len(got) != 2 || got[0] < 1 || got[1] < int64(h.replicas) {
		return fmt.Errorf("%w: own disk and replicas: %d, of 1 and %d", ErrUnconfirmed, got, h.replicas)
	}
	return nil
}

// tagOf is the hash tag of a command's first key, {…}; empty when it has none.
func tagOf(cmd redis.Cmder) string {
	if cmd.Name() == "scan" { // its pattern is no key
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
		if strings.HasPrefix(key, "{") {
			return key[:strings.IndexByte(key, '}')+1]
		}
	}
	return ""
}

// checkConfirming fails when a master cannot confirm at all, and warns when another number of
// replicas is there: one that is not waited for could be elected.
func (l *core) checkConfirming(ctx context.Context, replicas int) error {
	if replicas == 0 {
		return nil
	}
	return l.eachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		if err := one.Do(ctx, "waitaof", 1, 0, 1).Err(); err != nil {
			if failure := failure(err); errors.Is(failure, delivery.ErrUnavailable) {
				return failed("asking for confirmations", err)
			}
			return fmt.Errorf("redis.durability: replica needs Valkey, or Redis 7.2 or later, with an append-only file: %w", err)
		}
		info, err := one.InfoMap(ctx, "replication").Result()
		if err != nil {
			return failed("asking for replicas", err)
		}
		if there := info["Replication"]["connected_slaves"]; there != fmt.Sprint(replicas) {
			l.log.Warn("redis.replicas should be the number of all replicas that can be promoted",
				"master", one.Options().Addr, "connected", there, "redis.replicas", replicas)
		}
		return nil
	})
}
