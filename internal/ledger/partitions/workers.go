package partitions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/ledger/core"
)

// ErrForbidden reports that the worker's user of Redis lacks rights that the owner of a partition needs.
var ErrForbidden = errors.New("the user of Redis lacks rights that an owner needs")

// Tokens reads the tokens of all partitions: with one command, in a cluster one for each. After an error
// it has those of the partitions whose masters have answered; a partition without a token of its own has
// the empty one. Replicas confirm the answer: while they do not, owners cannot renew, so no time may
// count against them.
func (l *Ownership) Tokens(ctx context.Context) (map[int]Stored, error) {
	keys := make([]string, len(l.core.Partitions))
	for i, p := range l.core.Partitions {
		keys[i] = p.Key(core.KindOwner)
	}

	values, answered, err := core.AskMasters(ctx, l.core, "reading owners", keys, l.readTokens)

	tokens := make(map[int]Stored, len(keys))
	for i := range keys {
		if answered[i] {
			tokens[i] = values[i]
		}
	}

	return tokens, err
}

func (l *Ownership) readTokens(ctx context.Context, keys []string) ([]Stored, error) {
	tokens := make([]Stored, len(keys))
	if !l.core.IsCluster {
		values, err := l.core.Redis.MGet(ctx, keys...).Result()
		for i, value := range values {
			tokens[i] = Stored(core.Text(value))
		}
		return tokens, err
	}

	pipe := l.core.Redis.Pipeline()
	reads := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		reads[i] = pipe.Get(ctx, key)
	}

	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, read := range reads {
		err := read.Err()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		tokens[i] = Stored(read.Val())
	}

	return tokens, nil
}

// Beat tells the other workers that this one is alive, by a count that it raises each time. It fails when no
// master takes it, and with ErrForbidden, telling nobody, when a master refuses rights that an owner needs.
func (l *Ownership) Beat(ctx context.Context, worker string, count int64) error {
	missing, err := core.OnBoards(ctx, l.core, "telling that this worker is alive", func(ctx context.Context, board string) ([]string, error) {
		reply, err := l.core.Run(core.WithoutPauses(ctx), "beat", []string{board}, worker, count)
		commands, _ := reply.([]any)
		names := make([]string, len(commands))
		for i, command := range commands {
			names[i] = core.Text(command)
		}
		return names, err
	})
	if err != nil {
		return err
	}

	return Forbidden(missing)
}

// CheckRights returns ErrForbidden when a master refuses rights that the owner of a partition needs.
func (l *Ownership) CheckRights(ctx context.Context) error { return l.Beat(ctx, "", 0) }

// Forbidden names the commands that the boards' servers refuse; nil: there are none.
func Forbidden(missing [][]string) error {
	commands := slices.Concat(missing...)
	if len(commands) == 0 {
		return nil
	}
	slices.Sort(commands)
	return fmt.Errorf("%w: %s", ErrForbidden, strings.ToLower(strings.Join(slices.Compact(commands), ", ")))
}

// releasedField of the workers' lists counts releases. The name of a worker has a space.
const releasedField = "released"

// Released tells the other workers that this one has given partitions up.
func (l *Ownership) Released(ctx context.Context) error {
	_, err := core.OnBoards(ctx, l.core, "telling that partitions are free", func(ctx context.Context, board string) (any, error) {
		return l.core.Run(core.WithoutPauses(ctx), "announce_release", []string{board}, releasedField)
	})
	return err
}

// Workers returns each worker's count of beats and the number of releases so far: the highest of those
// that the masters have which answer. Whoever sees a count stand still knows that its worker is gone,
// whatever the clocks say. Replicas do not confirm the answer, which decides nothing: who owns a partition is
// decided by comparing its token.
func (l *Ownership) Workers(ctx context.Context) (counts map[string]string, released string, err error) {
	lists, err := core.OnBoards(ctx, l.core, "listing the workers", func(ctx context.Context, board string) (map[string]string, error) {
		return l.core.Redis.HGetAll(core.Unconfirmed(ctx), board).Result()
	})
	if err != nil {
		return nil, "", err
	}

	counts = make(map[string]string)
	for _, list := range lists {
		for worker, count := range list {
			if isHigher(count, counts[worker]) {
				counts[worker] = count
			}
		}
	}

	released = counts[releasedField]
	delete(counts, releasedField)

	return counts, released, nil
}

// isHigher compares decimal numbers without a sign.
func isHigher(count, than string) bool {
	if len(count) != len(than) {
		return len(count) > len(than)
	}
	return count > than
}

// Forget removes a worker that ends, or is gone.
func (l *Ownership) Forget(ctx context.Context, workers ...string) error {
	_, err := core.OnBoards(ctx, l.core, "removing a worker", func(ctx context.Context, board string) (int64, error) {
		return l.core.Redis.HDel(ctx, board, workers...).Result()
	})
	return err
}

// passing lists how the errors begin with which Redis refuses everybody for the moment.
var passing = []string{
	"LOADING", "OOM", "MISCONF", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "NOREPLICAS", "BUSY", "UNBLOCKED", "MOVED", "ASK",
}

// Refused reports that Redis has answered and does not do it: a right is missing, or a script has failed.
// Trying again does not help this worker, while another one may succeed. A Redis that is gone, full, or
// moving refuses nobody in this sense.
func Refused(err error) bool {
	var reply redis.Error
	if errors.Is(err, redis.Nil) || errors.Is(err, core.ErrUnconfirmed) || !errors.As(err, &reply) {
		return false
	}
	return !slices.ContainsFunc(passing, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// Damaged reports that Redis holds a value of another type than is expected under a key. Every worker
// finds the same.
func Damaged(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }
