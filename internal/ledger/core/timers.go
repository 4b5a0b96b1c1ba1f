package core

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Due lists the members of each partition's sorted set of a kind whose times have come, at most
// limit of each. On a single server a call reads the sets of many partitions. After an error members
// has what could be read; nothing is read again, because the caller does so at its next interval. The
// reply may be lost in a failover, so a caller must only act through a script that compares first.
func (l *Client) Due(ctx context.Context, kind byte, partitions []int, now time.Time, limit int) (members [][]string, err error) {
	pageSize := KeysAtOnce
	if l.IsCluster {
		pageSize = 1 // each partition is a slot of its own
	}

	var calls []Call
	for page := range slices.Chunk(partitions, pageSize) {
		read := Call{Args: []any{now.UnixMilli(), limit}}
		for _, p := range page {
			read.Keys = append(read.Keys, l.Partitions[p].Key(kind))
		}
		calls = append(calls, read)
	}

	replies, err := l.RunAll(WithoutPauses(Unconfirmed(ctx)), "list_due", calls)

	members = make([][]string, len(partitions))
	for page, reply := range replies {
		first := page * pageSize
		ofPage := members[first:min(first+pageSize, len(members))]
		problem := readDue(reply, ofPage)
		err = cmp.Or(err, problem)
	}

	return members, err
}

// readDue appends to members[i] those that a reply of list_due has of the i-th key.
func readDue(reply *redis.Cmd, members [][]string) error {
	sets, _ := reply.Val().([]any)
	for _, set := range sets {
		placed, _ := set.([]any)
		if len(placed) != 2 {
			return UnreadableReply("list_due")
		}

		place, _ := placed[0].(int64)
		if place < 1 || int(place) > len(members) {
			return UnreadableReply("list_due")
		}

		found, _ := placed[1].([]any)
		for _, member := range found {
			members[place-1] = append(members[place-1], Text(member))
		}
	}

	return nil
}

// KeysAtOnce bounds the keys of one script call over many partitions, so that it blocks Redis for less
// than 1 ms.
const KeysAtOnce = 256
