package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

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

// serverOf names the server that has a partition, as far as this process knows.
func (l *core) serverOf(ctx context.Context, p partition) string {
	if !l.cluster {
		return ""
	}

	if many, ok := l.rdb.(*redis.ClusterClient); ok {
		master, err := many.MasterForKey(ctx, p.prefix)
		if err == nil {
			return master.Options().Addr
		}
	}

	return p.prefix // each partition by itself
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
