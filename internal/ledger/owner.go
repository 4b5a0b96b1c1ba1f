package ledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Token says who owns a partition and how far its streams were processed. Every write of the
// owner compares it with what is stored and replaces it. It has no time: whoever wants to take a
// partition over must have seen the token unchanged for some time of a clock of its own.
type Token struct {
	Owner    string // empty: the last owner has left
	Epoch    uint64 // raised with every owner
	Sequence uint64 // raised with every write of one
	// Up to where the streams of events and updates are processed, and the webhooks of the
	// former are settled or scheduled; empty while the webhook role's group does that.
	Events, Updates, Webhooks string
}

func (c *codec) token(t *Token) {
	c.all(&t.Epoch, &t.Sequence, &t.Owner, &t.Events, &t.Updates, &t.Webhooks)
}

func (t *Token) encode() string { return string(encode(func(c *codec) { c.token(t) })) }

func decodeToken(stored string) (t Token, err error) {
	if stored != "" {
		err = decode("owner", stored, func(c *codec) { c.token(&t) })
	}
	return t, err
}

// staleToken is for how long the token of a dead owner keeps consumers of groups away.
const staleToken = time.Minute

// tokenCache is what this process has seen of the owners of partitions.
type tokenCache struct {
	mu   sync.Mutex
	seen map[int]*seenToken
}

type seenToken struct {
	stored         string
	since, checked time.Time
	listed         bool // see listScheduled
}

// ownedElsewhere reports whether a worker owns the partition: consumers of the role's group then
// leave it alone. Such a worker waits in turn until they are gone.
func (l *core) ownedElsewhere(ctx context.Context, r partition, role Role) (bool, error) {
	if role == RoleExport {
		return false, nil
	}
	l.tokens.mu.Lock()
	defer l.tokens.mu.Unlock()
	seen := l.tokens.seen[r.number]
	if now := time.Now(); seen == nil || now.Sub(seen.checked) > readBlock/4 {
		stored, err := l.rdb.Get(ctx, r.key(kindOwner)).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return false, failed("reading the owner of a partition", err)
		}
		if seen == nil || seen.stored != stored {
			seen = &seenToken{stored: stored, since: now}
			l.tokens.seen[r.number] = seen
		}
		seen.checked = now
	}
	token, err := decodeToken(seen.stored)
	if err != nil || role == RoleWebhook && token.Webhooks == "" {
		return false, err
	}
	if token.Owner != "" && seen.checked.Sub(seen.since) < staleToken {
		return true, nil
	}
	if role == RoleWebhook && !seen.listed {
		err = l.listScheduled(ctx, r)
		seen.listed = err == nil
	}
	return false, err
}

// listScheduled puts the accounts with scheduled events on the list by which consumers find them,
// which owners do without.
func (l *core) listScheduled(ctx context.Context, r partition) error {
	accounts, err := l.rdb.SMembers(ctx, r.key(kindAccounts)).Result()
	if err != nil {
		return failed("listing accounts", err)
	}
	scheduled, err := pipelined(ctx, l.rdb, "reading schedules", accounts, func(pipe redis.Pipeliner, account string) *redis.IntCmd {
		return pipe.ZCard(ctx, r.keyOf(kindRetries, []byte(account)))
	})
	if err != nil {
		return err
	}
	var listed []redis.Z
	for i, n := range scheduled {
		if n.Val() > 0 {
			listed = append(listed, redis.Z{Score: float64(time.Now().UnixMilli()), Member: accounts[i]})
		}
	}
	if len(listed) == 0 {
		return nil
	}
	return failed("listing schedules", l.rdb.ZAddArgs(ctx, r.key(kindSchedule), redis.ZAddArgs{LT: true, Members: listed}).Err())
}
