package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// ErrForbidden reports that the worker's user of Redis lacks rights that the owner of a partition needs.
var ErrForbidden = errors.New("the user of Redis lacks rights that an owner needs")

// boardsAtMost is on how many keys of a cluster each worker beats. They are spread over the slots, so
// that some of them are on masters that answer whichever has died.
const boardsAtMost = 8

// boards are the keys of the lists of workers: one on a single server, several in a cluster.
func (l *core) boards() []string {
	count := 1
	if l.cluster {
		count = min(len(l.partitions), boardsAtMost)
	}

	keys := make([]string, count)
	for i := range keys {
		keys[i] = l.partitions[i*len(l.partitions)/count].key(kindWorkers)
	}

	return keys
}

// answerWithin is how long a question to all masters waits for each of them, and longer by what replicas may
// take to confirm. A master that hangs answers later or never; what it holds is then missing.
const answerWithin = 500 * time.Millisecond

// askMasters asks each master of a cluster by itself about those of the keys that it serves, all at the
// same time. values[i] is what is known of keys[i], and answered[i] is false where that is nothing,
// because its master has failed or has not answered in time. err is then one of the failures. A master that
// has not answered an earlier question yet is not asked again until it has. A single server is waited for.
func askMasters[T any](ctx context.Context, l *core, what string, keys []string, ask func(ctx context.Context, keys []string) ([]T, error)) (values []T, answered []bool, err error) {
	values, answered = make([]T, len(keys)), make([]bool, len(keys))
	if !l.cluster {
		found, err := ask(ctx, keys)
		if err != nil {
			return values, answered, failed(what, err)
		}

		copy(values, found)
		for i := range answered {
			answered[i] = true
		}
		return values, answered, nil
	}

	places, err := l.byMaster(ctx, keys)
	if err != nil {
		return values, answered, failed(what, err)
	}

	type answer struct {
		master string
		values []T
		err    error
	}

	patience := answerWithin
	if l.replicas > 0 {
		patience += 2 * confirmTimeout
	}

	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := make(chan answer, len(places)) // who answers too late finds room
	awaited := make(map[string]chan struct{}) // closed when the master has answered or failed
	err = nil
	for master, ofMaster := range places {
		if l.isSilent(master) {
			err = failed(what, errSilent)
			continue
		}

		own := make([]string, len(ofMaster))
		for i, place := range ofMaster {
			own[i] = keys[place]
		}

		ended := make(chan struct{})
		awaited[master] = ended
		go func() {
			defer close(ended)
			found, err := ask(bounded, own)
			answers <- answer{master, found, err}
		}()
	}

	for len(awaited) > 0 {
		select {
		case a := <-answers:
			delete(awaited, a.master)
			if a.err != nil {
				err = failed(what, a.err)
				continue
			}
			for i, place := range places[a.master] {
				values[place], answered[place] = a.values[i], true
			}
		case <-bounded.Done():
			if ctx.Err() != nil {
				return values, answered, failed(what, ctx.Err())
			}
			for master, ended := range awaited {
				l.silent.Store(master, ended)
			}
			return values, answered, failed(what, errSilent)
		}
	}

	return values, answered, err
}

// isSilent reports whether a master has yet to answer a question that was given up.
func (l *core) isSilent(master string) bool {
	last, asked := l.silent.Load(master)
	if !asked {
		return false
	}

	select {
	case <-last.(chan struct{}):
		return false
	default:
		return true
	}
}

var errSilent = fmt.Errorf("%w: a master does not answer", delivery.ErrUnavailable)

// byMaster returns the places of the keys that each master serves, as far as the client knows.
func (l *core) byMaster(ctx context.Context, keys []string) (map[string][]int, error) {
	cluster := l.rdb.(*redis.ClusterClient)
	places := make(map[string][]int)
	for i, key := range keys {
		master, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		addr := master.Options().Addr
		places[addr] = append(places[addr], i)
	}

	return places, nil
}

// Tokens reads the tokens of all partitions: with one command, in a cluster one for each. After an error
// it has those of the partitions whose masters have answered; a partition without a token of its own has
// the empty one. Replicas confirm the answer: while they do not, owners cannot renew, so no time may
// count against them.
func (l Ownership) Tokens(ctx context.Context) (map[int]Stored, error) {
	keys := make([]string, len(l.partitions))
	for i, p := range l.partitions {
		keys[i] = p.key(kindOwner)
	}

	values, answered, err := askMasters(ctx, l.core, "reading owners", keys, l.readTokens)

	tokens := make(map[int]Stored, len(keys))
	for i := range keys {
		if answered[i] {
			tokens[i] = values[i]
		}
	}

	return tokens, err
}

func (l *core) readTokens(ctx context.Context, keys []string) ([]Stored, error) {
	tokens := make([]Stored, len(keys))
	if !l.cluster {
		values, err := l.rdb.MGet(ctx, keys...).Result()
		for i, value := range values {
			tokens[i] = Stored(text(value))
		}
		return tokens, err
	}

	pipe := l.rdb.Pipeline()
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

// onBoards calls do for each board, in a cluster for those of different masters at the same time, and
// returns what it makes of those whose masters have answered. It fails when none has.
func onBoards[T any](ctx context.Context, l *core, what string, do func(ctx context.Context, board string) (T, error)) ([]T, error) {
	values, answered, err := askMasters(ctx, l, what, l.boards(), func(ctx context.Context, boards []string) ([]T, error) {
		found := make([]T, len(boards))
		for i, board := range boards {
			value, err := do(ctx, board)
			if err != nil {
				return nil, err
			}
			found[i] = value
		}
		return found, nil
	})

	var found []T
	for i := range values {
		if answered[i] {
			found = append(found, values[i])
		}
	}

	if len(found) == 0 {
		return nil, err
	}

	return found, nil
}

// Beat tells the other workers that this one is alive, by a count that it raises each time. It fails when no
// master takes it, and with ErrForbidden, telling nobody, when a master refuses rights that an owner needs.
func (l Ownership) Beat(ctx context.Context, worker string, count int64) error {
	missing, err := onBoards(ctx, l.core, "telling that this worker is alive", func(ctx context.Context, board string) ([]string, error) {
		reply, err := l.run(withoutPauses(ctx), "beat", []string{board}, worker, count)
		commands, _ := reply.([]any)
		names := make([]string, len(commands))
		for i, command := range commands {
			names[i] = text(command)
		}
		return names, err
	})
	if err != nil {
		return err
	}

	return forbidden(missing)
}

// CheckRights returns ErrForbidden when a master refuses rights that the owner of a partition needs.
func (l Ownership) CheckRights(ctx context.Context) error { return l.Beat(ctx, "", 0) }

// forbidden names the commands that the boards' servers refuse; nil: there are none.
func forbidden(missing [][]string) error {
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
func (l Ownership) Released(ctx context.Context) error {
	_, err := onBoards(ctx, l.core, "telling that partitions are free", func(ctx context.Context, board string) (any, error) {
		return l.run(withoutPauses(ctx), "announce_release", []string{board}, releasedField)
	})
	return err
}

// Workers returns each worker's count of beats and the number of releases so far: the highest of those
// that the masters have which answer. Whoever sees a count stand still knows that its worker is gone,
// whatever the clocks say. Replicas do not confirm the answer, which decides nothing: who owns a partition is
// decided by comparing its token.
func (l Ownership) Workers(ctx context.Context) (counts map[string]string, released string, err error) {
	lists, err := onBoards(ctx, l.core, "listing the workers", func(ctx context.Context, board string) (map[string]string, error) {
		return l.rdb.HGetAll(unconfirmed(ctx), board).Result()
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
func (l Ownership) Forget(ctx context.Context, workers ...string) error {
	_, err := onBoards(ctx, l.core, "removing a worker", func(ctx context.Context, board string) (int64, error) {
		return l.rdb.HDel(ctx, board, workers...).Result()
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
	if errors.Is(err, redis.Nil) || errors.Is(err, ErrUnconfirmed) || !errors.As(err, &reply) {
		return false
	}
	return !slices.ContainsFunc(passing, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// Damaged reports that Redis holds a value of another type than is expected under a key. Every worker
// finds the same.
func Damaged(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }
