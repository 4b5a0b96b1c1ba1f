package ledger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// libraryPrefix begins the name of every library of ours; the digest of what is
// in it follows.
const libraryPrefix = "vendorapi_"

// librariesKept is how long a library stays in a server after a process has
// last loaded it or begun to work with it. Deleting one that is still used costs
// its users one more loading, so the time only has to be longer than a rolling
// upgrade, or the two releases would take turns.
const librariesKept = 7 * 24 * time.Hour

// loadLibrary gives the library to the servers: in a cluster to every master,
// because the slot may be on its way to another one, and this process may not
// know yet. Replicas get it from their masters. Two processes that load at once
// agree: the name says what is in it. Many calls of one process that miss it
// share one loading.
func (l *core) loadLibrary(ctx context.Context) error {
	_, err, _ := l.loading.Do("", func() (any, error) {
		ctx := context.WithoutCancel(ctx) // others wait for it, too
		if err := l.noteLibrary(ctx); err != nil {
			l.log.Warn("the release in use cannot be noted", "error", err)
		}
		if many, ok := l.rdb.(*redis.ClusterClient); ok {
			return nil, many.ForEachMaster(ctx, l.loadInto)
		}
		return nil, l.loadInto(ctx, l.rdb.(*redis.Client))
	})
	if err != nil {
		return fmt.Errorf("loading the scripts: %w", failure(err))
	}
	return nil
}

// loadInto gives one server the library, and takes those away that nobody has
// used for long: they would pile up, release after release, 150 kB each.
func (l *core) loadInto(ctx context.Context, server *redis.Client) error {
	err := server.FunctionLoad(ctx, l.scripts.source).Err()
	if err != nil && strings.HasSuffix(err.Error(), "already exists") {
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.dropLibraries(ctx, server); err != nil {
		l.log.Warn("libraries of earlier releases are still in Redis", "error", err)
	}
	return nil
}

func (l *core) librariesKey() string { return l.global.prefix + "libraries" }

// noteLibrary writes down that this release is in use.
func (l *core) noteLibrary(ctx context.Context) error {
	if err := l.rdb.ZAdd(ctx, l.librariesKey(), redis.Z{Score: float64(l.now().UnixMilli()), Member: l.scripts.library}).Err(); err != nil {
		return fmt.Errorf("noting the library: %w", failure(err))
	}
	return nil
}

// dropLibraries deletes what was last noted longer than librariesKept ago. One
// that was never noted, as those of releases that knew no notes, counts from
// now.
func (l *core) dropLibraries(ctx context.Context, server *redis.Client) error {
	there, err := server.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: libraryPrefix + "*"}).Result()
	if err != nil {
		return err
	}
	unknown := make([]redis.Z, 0, len(there))
	for _, library := range there {
		unknown = append(unknown, redis.Z{Score: float64(l.now().UnixMilli()), Member: library.Name})
	}
	if err := l.rdb.ZAddNX(ctx, l.librariesKey(), unknown...).Err(); err != nil {
		return err
	}
	before := strconv.FormatInt(l.now().Add(-librariesKept).UnixMilli(), 10)
	old, err := l.rdb.ZRangeByScore(ctx, l.librariesKey(), &redis.ZRangeBy{Min: "-inf", Max: "(" + before}).Result()
	if err != nil {
		return err
	}
	for _, library := range there {
		for _, name := range old {
			if library.Name != name {
				continue
			}
			if err := server.FunctionDelete(ctx, name).Err(); err != nil && !strings.Contains(err.Error(), "not found") {
				return err
			}
			l.log.Info("a library of an earlier release was deleted", "library", name)
		}
	}
	return nil
}
