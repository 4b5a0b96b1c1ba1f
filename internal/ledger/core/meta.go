package core

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// MetaCopies is how many copies of the meta a cluster holds, spread over its slots, so that a program can
// start while the master of the meta is away.
const MetaCopies = 8

// MetaCopyKeys are the same for every number of partitions: who looks for the copies does not know it yet.
func MetaCopyKeys(env byte) []string {
	keys := make([]string, MetaCopies)
	for i, tag := range PartitionTags(env, MetaCopies) {
		keys[i] = "{" + tag + "}" + string(rune(kindMeta))
	}
	return keys
}

// fixedMeta is what of the meta never changes.
type fixedMeta struct{ partitions, format, id string }

// readMetaCopies returns the copies that the masters have which answer; the zero value where there is none.
func (l *Client) readMetaCopies(ctx context.Context, env byte) (copies []fixedMeta, answered []bool) {
	copies, answered, _ = AskMasters(ctx, l, "reading copies of the meta", MetaCopyKeys(env), func(ctx context.Context, keys []string) ([]fixedMeta, error) {
		pipe := l.Redis.Pipeline()
		reads := make([]*redis.SliceCmd, len(keys))
		for i, key := range keys {
			reads[i] = pipe.HMGet(ctx, key, "partitions", "format", "id")
		}

		_, err := pipe.Exec(ctx)
		found := make([]fixedMeta, len(keys))
		for i, read := range reads {
			if values := read.Val(); len(values) == 3 {
				found[i] = fixedMeta{partitions: Text(values[0]), format: Text(values[1]), id: Text(values[2])}
			}
		}

		return found, err
	})

	return copies, answered
}

// metaCopy returns the meta from a copy; false: no master that answers has one, or it is no cluster.
func (l *Client) metaCopy(ctx context.Context, env byte) (fixedMeta, bool) {
	if !l.IsCluster {
		return fixedMeta{}, false
	}

	copies, _ := l.readMetaCopies(ctx, env)
	for _, meta := range copies {
		if meta.partitions != "" && meta.format != "" && meta.id != "" {
			return meta, true
		}
	}

	return fixedMeta{}, false
}

// copyMeta writes the copies that are missing. A master that is away gets its own at a later start.
func (l *Client) copyMeta(ctx context.Context, env byte, meta fixedMeta) {
	copies, answered := l.readMetaCopies(ctx, env)
	keys := MetaCopyKeys(env)
	for i, found := range copies {
		if !answered[i] || found == meta {
			continue
		}

		pipe := l.Redis.Pipeline()
		pipe.HSetNX(ctx, keys[i], "partitions", meta.partitions)
		pipe.HSetNX(ctx, keys[i], "format", meta.format)
		pipe.HSetNX(ctx, keys[i], "id", meta.id)
		if _, err := pipe.Exec(ctx); err != nil {
			l.Log.Warn("a copy of the ledger's meta is missing, which a start without the master of the meta needs", "error", err)
			return
		}
	}
}
