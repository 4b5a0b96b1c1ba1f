package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

func (r partition) list(list byte) string { return r.keyOf(kindListed, []byte{list}) }

// scoreRange is a part of a list. Both ends belong to it.
type scoreRange struct{ first, last int64 }

// listEntry is a position in a list. The zero value precedes every entry.
type listEntry struct {
	score   int64
	account delivery.AccountID
}

func (e listEntry) compare(other listEntry) int {
	return cmp.Or(cmp.Compare(e.score, other.score), bytes.Compare(e.account[:], other.account[:]))
}

func (e listEntry) cursor() string { return fmt.Sprintf("%d.%x", e.score, e.account[:]) }

func parseListCursor(text string) (listEntry, error) {
	if text == "" {
		return listEntry{}, nil
	}

	var entry listEntry
	var account []byte
	_, err := fmt.Sscanf(text, "%d.%x", &entry.score, &account)
	if err != nil || len(account) != len(entry.account) {
		return listEntry{}, invalidCursor()
	}

	entry.account = delivery.AccountID(account)
	if entry.score < 0 || entry.cursor() != strings.ToLower(text) {
		return listEntry{}, invalidCursor()
	}

	return entry, nil
}

// listPage reads the accounts that follow a cursor in a list of all partitions, at most limit.
// next is empty at the end. It reads at most limit+1 entries of each partition. It reads further
// only in a partition with more than limit entries that share the cursor's score. With ErrIncomplete
// the entries of partitions that do not answer are left out, and next is valid.
func (l *core) listPage(ctx context.Context, list byte, scores scoreRange, cursor string, limit int) (ids []delivery.AccountID, next string, err error) {
	after, err := parseListCursor(cursor)
	if err != nil {
		return nil, "", err
	}

	scores.first = max(scores.first, after.score)

	read, errs := pipelinedEach(ctx, l.rdb, "reading a list", l.partitions, func(pipe redis.Pipeliner, r partition) func() []redis.Z {
		return pipe.ZRangeByScoreWithScores(ctx, r.list(list), scores.page(0, limit)).Val
	})

	var found []listEntry
	for i, page := range read {
		if errs[i] != nil {
			continue
		}
		following, problem := l.following(ctx, l.partitions[i].list(list), scores, after, page, limit)
		errs[i] = problem
		found = append(found, following...)
	}

	err = partly(errs)
	if err != nil && !errors.Is(err, ErrIncomplete) {
		return nil, "", err
	}

	slices.SortFunc(found, listEntry.compare)

	if len(found) > limit {
		found = found[:limit]
		next = found[limit-1].cursor()
	}

	for _, entry := range found {
		ids = append(ids, entry.account)
	}

	return ids, next, err
}

// page asks for limit+1 entries from an offset on.
func (s scoreRange) page(offset, limit int) *redis.ZRangeBy {
	return &redis.ZRangeBy{
		Min: strconv.FormatInt(s.first, 10), Max: strconv.FormatInt(s.last, 10),
		Offset: int64(offset), Count: int64(limit) + 1,
	}
}

// following returns the entries of one partition after a place, up to limit+1. page is the
// beginning of the range, which has those with the same score again.
func (l *core) following(ctx context.Context, key string, scores scoreRange, after listEntry, page []redis.Z, limit int) ([]listEntry, error) {
	var found []listEntry
	for offset := 0; ; {
		for _, z := range page {
			member, _ := z.Member.(string)
			if len(member) != len(delivery.AccountID{}) {
				continue
			}
			entry := listEntry{score: int64(z.Score), account: delivery.AccountID([]byte(member))}
			if entry.compare(after) > 0 {
				found = append(found, entry)
			}
		}

		if len(page) <= limit || len(found) > limit {
			return found, nil
		}

		offset += len(page)
		var err error
		page, err = l.rdb.ZRangeByScoreWithScores(ctx, key, scores.page(offset, limit)).Result()
		if err != nil {
			return nil, failed("reading a list", err)
		}
	}
}

// eachAccount calls do with the ids of all accounts, some hundreds at a time, for what must visit
// every account: maintenance. An account that is added while it runs may be left out.
func (l *core) eachAccount(ctx context.Context, do func([]delivery.AccountID) error) error {
	return l.eachAccountOf(ctx, l.partitions, do)
}

// eachAccountOf is eachAccount for some partitions. It reads a partition's ids with one command: the
// cursor of a scan ends with its server, so a failover would leave accounts out unnoticed.
func (l *core) eachAccountOf(ctx context.Context, partitions []partition, do func([]delivery.AccountID) error) error {
	for _, r := range partitions {
		members, err := l.rdb.SMembers(ctx, r.key(kindAccounts)).Result()
		if err != nil {
			return failed("listing accounts", err)
		}

		for page := range slices.Chunk(members, itemsAtOnce) {
			var ids []delivery.AccountID
			for _, member := range page {
				if len(member) == len(delivery.AccountID{}) {
					ids = append(ids, delivery.AccountID([]byte(member)))
				}
			}

			if err := do(ids); err != nil {
				return err
			}
		}
	}

	return nil
}

// compareAccounts orders accounts by id.
func compareAccounts(a, b delivery.AccountID) int { return bytes.Compare(a[:], b[:]) }

func invalidCursor() error {
	return &delivery.Error{Code: delivery.CodeValidationFailed, Message: "cursor is not one that a listing returned",
		Fields: []delivery.FieldError{{Field: "cursor", Message: "must be a cursor from an earlier answer"}}}
}

// listCounts counts the entries of all partitions in each of the ranges. With ErrIncomplete the sums
// lack those of partitions that do not answer.
func (l *core) listCounts(ctx context.Context, list byte, ranges ...scoreRange) ([]int64, error) {
	counted, errs := pipelinedEach(ctx, l.rdb, "counting a list", l.partitions, func(pipe redis.Pipeliner, r partition) func() []int64 {
		counts := make([]*redis.IntCmd, len(ranges))
		for i, s := range ranges {
			counts[i] = pipe.ZCount(ctx, r.list(list), strconv.FormatInt(s.first, 10), strconv.FormatInt(s.last, 10))
		}

		return func() []int64 {
			values := make([]int64, len(counts))
			for i, c := range counts {
				values[i] = c.Val()
			}
			return values
		}
	})

	sums := make([]int64, len(ranges))
	for _, counts := range counted {
		for i, n := range counts {
			sums[i] += n
		}
	}

	return sums, partly(errs)
}
