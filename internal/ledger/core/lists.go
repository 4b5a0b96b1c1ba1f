package core

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

func (r Partition) List(list byte) string { return r.KeyOf(kindListed, []byte{list}) }

// ScoreRange is a part of a list. Both ends belong to it.
type ScoreRange struct{ First, Last int64 }

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
		return listEntry{}, InvalidCursor()
	}

	entry.account = delivery.AccountID(account)
	if entry.score < 0 || entry.cursor() != strings.ToLower(text) {
		return listEntry{}, InvalidCursor()
	}

	return entry, nil
}

// ListPage reads the accounts that follow a cursor in a list of all partitions, at most limit.
// next is empty at the end. It reads at most limit+1 entries of each partition. It reads further
// only in a partition with more than limit entries that share the cursor's score. With ErrIncomplete
// the entries of partitions that do not answer are left out, and next is valid.
func (l *Client) ListPage(ctx context.Context, list byte, scores ScoreRange, cursor string, limit int) (ids []delivery.AccountID, next string, err error) {
	after, err := parseListCursor(cursor)
	if err != nil {
		return nil, "", err
	}

	scores.First = max(scores.First, after.score)

	read, errs := PipelinedEach(ctx, l.Redis, "reading a list", l.Partitions, func(pipe redis.Pipeliner, r Partition) func() []redis.Z {
		return pipe.ZRangeByScoreWithScores(ctx, r.List(list), scores.page(0, limit)).Val
	})

	var found []listEntry
	for i, page := range read {
		if errs[i] != nil {
			continue
		}
		following, problem := l.following(ctx, l.Partitions[i].List(list), scores, after, page, limit)
		errs[i] = problem
		found = append(found, following...)
	}

	err = Partly(errs)
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
func (s ScoreRange) page(offset, limit int) *redis.ZRangeBy {
	return &redis.ZRangeBy{
		Min: strconv.FormatInt(s.First, 10), Max: strconv.FormatInt(s.Last, 10),
		Offset: int64(offset), Count: int64(limit) + 1,
	}
}

// following returns the entries of one partition after a place, up to limit+1. page is the
// beginning of the range, which has those with the same score again.
func (l *Client) following(ctx context.Context, key string, scores ScoreRange, after listEntry, page []redis.Z, limit int) ([]listEntry, error) {
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
		page, err = l.Redis.ZRangeByScoreWithScores(ctx, key, scores.page(offset, limit)).Result()
		if err != nil {
			return nil, Failed("reading a list", err)
		}
	}
}

// EachAccount calls do with the ids of all accounts, some hundreds at a time, for what must visit
// every account: maintenance. An account that is added while it runs may be left out.
func (l *Client) EachAccount(ctx context.Context, do func([]delivery.AccountID) error) error {
	return l.EachAccountOf(ctx, l.Partitions, do)
}

// EachAccountOf is eachAccount for some partitions. It reads a partition's ids with one command: the
// cursor of a scan ends with its server, so a failover would leave accounts out unnoticed.
func (l *Client) EachAccountOf(ctx context.Context, partitions []Partition, do func([]delivery.AccountID) error) error {
	for _, r := range partitions {
		members, err := l.Redis.SMembers(ctx, r.Key(KindAccounts)).Result()
		if err != nil {
			return Failed("listing accounts", err)
		}

		for page := range slices.Chunk(members, ItemsAtOnce) {
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

// CompareAccounts orders accounts by id.
func CompareAccounts(a, b delivery.AccountID) int { return bytes.Compare(a[:], b[:]) }

func InvalidCursor() error {
	return &delivery.Error{Code: delivery.CodeValidationFailed, Message: "cursor is not one that a listing returned",
		Fields: []delivery.FieldError{{Field: "cursor", Message: "must be a cursor from an earlier answer"}}}
}

// ListCounts counts the entries of all partitions in each of the ranges. With ErrIncomplete the sums
// lack those of partitions that do not answer.
func (l *Client) ListCounts(ctx context.Context, list byte, ranges ...ScoreRange) ([]int64, error) {
	counted, errs := PipelinedEach(ctx, l.Redis, "counting a list", l.Partitions, func(pipe redis.Pipeliner, r Partition) func() []int64 {
		counts := make([]*redis.IntCmd, len(ranges))
		for i, s := range ranges {
			counts[i] = pipe.ZCount(ctx, r.List(list), strconv.FormatInt(s.First, 10), strconv.FormatInt(s.Last, 10))
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

	return sums, Partly(errs)
}
