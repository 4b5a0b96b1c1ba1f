package validate

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// redisReader reads from Redis what must be empty in a settled ledger, and the indexes of its orders, by the names of
// layout.go.
type redisReader struct {
	client     redis.UniversalClient
	partitions []partition
}

func (s *Sources) reader() *redisReader {
	return &redisReader{client: s.Redis, partitions: partitionsOf(s.Ledger.Environment(), s.Ledger.Partitions())}
}

// unsettledGroup is a group, and what it has yet to settle of a stream.
type unsettledGroup struct {
	partition int
	stream    string
	group     ledger.Role
	unread    int   // entries behind the last one that the group was given; at most maxUnread
	pending   int64 // entries that it was given and has not acknowledged
}

// maxUnread bounds how many unread entries of a stream are counted.
const maxUnread = 1000

// groupPosition is how far a group has got in a stream.
type groupPosition struct {
	unsettledGroup
	key  string
	last string // id of the last entry that the group was given
}

// unsettledGroups lists the groups that have not settled everything. It counts the entries behind the last one that a
// group was given. Redis's own figure (lag) depends on what the owner sets, and is wrong once entries in the middle were
// removed.
func (r *redisReader) unsettledGroups(ctx context.Context) ([]unsettledGroup, error) {
	positions, err := r.groupPositions(ctx)
	if err != nil {
		return nil, err
	}

	pipe := r.client.Pipeline()
	unread := make([]*redis.XMessageSliceCmd, len(positions))
	for i, position := range positions {
		unread[i] = pipe.XRangeN(ctx, position.key, "("+position.last, "+", maxUnread)
	}

	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("reading unread entries: %w", err)
	}

	var left []unsettledGroup
	for i, position := range positions {
		u := position.unsettledGroup
		u.unread = len(unread[i].Val())
		if u.unread > 0 || u.pending > 0 {
			left = append(left, u)
		}
	}

	return left, nil
}

// groupPositions returns the position of every group that a stream must have. One that does not exist is before the first
// entry. Streams that do not exist are left out.
func (r *redisReader) groupPositions(ctx context.Context) ([]groupPosition, error) {
	type question struct {
		partition partition
		stream    stream
		groups    *redis.XInfoGroupsCmd
	}

	var questions []question
	pipe := r.client.Pipeline()
	for _, p := range r.partitions {
		for _, s := range streams {
			questions = append(questions, question{partition: p, stream: s, groups: pipe.XInfoGroups(ctx, p.stream(s))})
		}
	}

	_, _ = pipe.Exec(ctx) // each question carries its own error

	var positions []groupPosition
	for _, q := range questions {
		groups, err := q.groups.Result()
		isMissing := redis.HasErrorPrefix(err, "no such key")
		if isMissing {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the groups of %s: %w", q.stream.name, err)
		}

		for _, role := range q.stream.groups {
			position := groupPosition{
				unsettledGroup: unsettledGroup{partition: q.partition.number, stream: q.stream.name, group: role},
				key:            q.partition.stream(q.stream),
				last:           "0-0",
			}

			for _, g := range groups {
				if g.Name == string(role) {
					position.last, position.pending = g.LastDeliveredID, g.Pending
				}
			}

			positions = append(positions, position)
		}
	}

	return positions, nil
}

// remains returns, of each account for which there are any, the scheduled events and how many counts of attempts are kept.
func (r *redisReader) remains(ctx context.Context) ([]Remains, error) {
	var all []Remains
	for _, p := range r.partitions {
		accounts, err := r.accountsOf(ctx, p)
		if err != nil {
			return nil, err
		}
		found, err := r.remainsOf(ctx, p, accounts)
		if err != nil {
			return nil, err
		}

		all = append(all, found...)
	}

	return all, nil
}

// accountsOf returns the accounts of a partition, and finance's, which is in no set and has a receiver all the same. The
// keys of finance are in one partition, and are looked for in all of them.
func (r *redisReader) accountsOf(ctx context.Context, p partition) ([]delivery.AccountID, error) {
	members, err := r.client.SMembers(ctx, p.accounts()).Result()
	if err != nil {
		return nil, fmt.Errorf("reading the accounts of partition %d: %w", p.number, err)
	}

	slices.Sort(members)

	accounts := []delivery.AccountID{delivery.FinanceAccount}
	for _, member := range members {
		if len(member) != len(delivery.AccountID{}) {
			return nil, fmt.Errorf("the accounts of partition %d: %q is none", p.number, member)
		}
		accounts = append(accounts, delivery.AccountID([]byte(member)))
	}

	return accounts, nil
}

func (r *redisReader) remainsOf(ctx context.Context, p partition, accounts []delivery.AccountID) ([]Remains, error) {
	type question struct {
		scheduled *redis.StringSliceCmd
		attempts  *redis.IntCmd
		replayed  *redis.IntCmd
	}

	questions := make([]question, len(accounts))
	pipe := r.client.Pipeline()
	for i, id := range accounts {
		questions[i] = question{
			scheduled: pipe.ZRange(ctx, p.schedule(id), 0, -1),
			attempts:  pipe.HLen(ctx, p.attempts(id)),
			replayed:  pipe.SCard(ctx, p.replayed(id)),
		}
	}

	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("reading what waits for webhooks in partition %d: %w", p.number, err)
	}

	var found []Remains
	for i, q := range questions {
		left := Remains{Account: accounts[i].String(), Counts: int(q.attempts.Val() + q.replayed.Val())}
		for _, item := range q.scheduled.Val() {
			left.Waiting = append(left.Waiting, p.waitingEvent(item))
		}
		if len(left.Waiting) > 0 || left.Counts > 0 {
			found = append(found, left)
		}
	}

	return found, nil
}
