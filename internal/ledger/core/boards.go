package core

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
func (l *Client) boards() []string {
	count := 1
	if l.IsCluster {
		count = min(len(l.Partitions), boardsAtMost)
	}

	keys := make([]string, count)
	for i := range keys {
		keys[i] = l.Partitions[i*len(l.Partitions)/count].Key(kindWorkers)
	}

	return keys
}

// answerWithin is how long a question to all masters waits for each of them, and longer by what replicas may
// take to confirm. A master that hangs answers later or never; what it holds is then missing.
const answerWithin = 500 * time.Millisecond

// AskMasters asks each master of a cluster by itself about those of the keys that it serves, all at the
// same time. values[i] is what is known of keys[i], and answered[i] is false where that is nothing,
// because its master has failed or has not answered in time. err is then one of the failures. A master that
// has not answered an earlier question yet is not asked again until it has. A single server is waited for.
func AskMasters[T any](ctx context.Context, l *Client, what string, keys []string, ask func(ctx context.Context, keys []string) ([]T, error)) (values []T, answered []bool, err error) {
	values, answered = make([]T, len(keys)), make([]bool, len(keys))
	if !l.IsCluster {
		found, err := ask(ctx, keys)
		if err != nil {
			return values, answered, Failed(what, err)
		}

		copy(values, found)
		for i := range answered {
			answered[i] = true
		}
		return values, answered, nil
	}

	places, err := l.byMaster(ctx, keys)
	if err != nil {
		return values, answered, Failed(what, err)
	}

	type answer struct {
		master string
		values []T
		err    error
	}

	patience := answerWithin
	if l.Replicas > 0 {
		patience += 2 * confirmTimeout
	}

	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := make(chan answer, len(places)) // who answers too late finds room
	awaited := make(map[string]chan struct{}) // closed when the master has answered or failed
	err = nil
	for master, ofMaster := range places {
		if l.isSilent(master) {
			err = Failed(what, ErrSilent)
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
				err = Failed(what, a.err)
				continue
			}
			for i, place := range places[a.master] {
				values[place], answered[place] = a.values[i], true
			}
		case <-bounded.Done():
			if ctx.Err() != nil {
				return values, answered, Failed(what, ctx.Err())
			}
			for master, ended := range awaited {
				l.silent.Store(master, ended)
			}
			return values, answered, Failed(what, ErrSilent)
		}
	}

	return values, answered, err
}

// isSilent reports whether a master has yet to answer a question that was given up.
func (l *Client) isSilent(master string) bool {
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

var ErrSilent = fmt.Errorf("%w: a master does not answer", delivery.ErrUnavailable)

// byMaster returns the places of the keys that each master serves, as far as the client knows.
func (l *Client) byMaster(ctx context.Context, keys []string) (map[string][]int, error) {
	cluster := l.Redis.(*redis.ClusterClient)
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

// OnBoards calls do for each board, in a cluster for those of different masters at the same time, and
// returns what it makes of those whose masters have answered. It fails when none has.
func OnBoards[T any](ctx context.Context, l *Client, what string, do func(ctx context.Context, board string) (T, error)) ([]T, error) {
	values, answered, err := AskMasters(ctx, l, what, l.boards(), func(ctx context.Context, boards []string) ([]T, error) {
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

// ServerOf names the server that has a partition, as far as this process knows.
func (l *Client) ServerOf(ctx context.Context, p Partition) string {
	if !l.IsCluster {
		return ""
	}

	if many, ok := l.Redis.(*redis.ClusterClient); ok {
		master, err := many.MasterForKey(ctx, p.Prefix)
		if err == nil {
			return master.Options().Addr
		}
	}

	return p.Prefix // each partition by itself
}

func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
