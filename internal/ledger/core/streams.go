package core

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Role is a consumer group. Every partition has every group from the first start,
// so that trimming never overtakes a role that has yet to run.
type Role string

// The roles that must have consumed an entry before it may be dropped (roleStreams).
const (
	RoleStatus  Role = "status"
	RoleWebhook Role = "webhook"
	RoleExport  Role = "export"
)

var RoleStreams = map[Role][]byte{RoleStatus: {KindEvents, KindUpdates}, RoleWebhook: {KindEvents}, RoleExport: {KindEvents, KindOutcomes, KindTries, KindAudit}}

func requiredRoles(streamKey string) (roles []Role) {
	for _, role := range []Role{RoleStatus, RoleWebhook, RoleExport} {
		if bytes.IndexByte(RoleStreams[role], streamKey[len(streamKey)-1]) >= 0 {
			roles = append(roles, role)
		}
	}
	return roles
}

// MakeGroups makes each group that a stream must have. When Redis refuses that for want of memory, a
// script makes it that may exceed it.
func (l *Client) MakeGroups(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		for _, role := range requiredRoles(key) {
			err := l.Redis.XGroupCreateMkStream(ctx, key, string(role), "0").Err()
			if IsFull(err) { // said also of a group that is there
				err = l.Evaluate(ctx, "make_group", makeGroup, []string{key}, string(role))
			}
			if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
				return fmt.Errorf("creating group %s: %w", role, Failure(err))
			}
		}
	}

	return nil
}

// ReadFailure keeps NOGROUP recognisable. Nothing to read is none.
func ReadFailure(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if redis.HasErrorPrefix(err, "NOGROUP") {
		return err
	}
	return Failed("reading a stream", err)
}

func (l *Client) EachStream(role Role, do func(p Partition, key string) error) error {
	for _, p := range l.Partitions {
		for _, kind := range RoleStreams[role] {
			if err := do(p, p.Key(kind)); err != nil {
				return fmt.Errorf("streams of group %s: %w", role, err)
			}
		}
	}
	return nil
}

// GroupsOf lists a stream's groups; the stream may not exist.
func (l *Client) GroupsOf(ctx context.Context, key string) (groups []redis.XInfoGroup, there bool, err error) {
	groups, err = l.Redis.XInfoGroups(ctx, key).Result()
	if redis.HasErrorPrefix(err, "no such key") {
		return nil, false, nil
	}
	return groups, err == nil, Failed("reading groups", err)
}

// GroupOf is a role's group; a missing one has read nothing.
func GroupOf(groups []redis.XInfoGroup, role Role) (group redis.XInfoGroup, found bool) {
	for _, g := range groups {
		if g.Name == string(role) {
			return g, true
		}
	}
	return redis.XInfoGroup{Name: string(role), LastDeliveredID: "0-0", Lag: -1}, false
}

// OldestPending is the first pending entry of a group; empty: none.
func (l *Client) OldestPending(ctx context.Context, key string, g redis.XInfoGroup) (string, error) {
	if g.Pending == 0 {
		return "", nil
	}

	pending, err := l.Redis.XPending(ctx, key, g.Name).Result()
	if err != nil {
		return "", Failed("reading pending entries", err)
	}
	return pending.Lower, nil
}

// FirstUnsettled is the first entry that a group has yet to settle; empty: there is none.
func (l *Client) FirstUnsettled(ctx context.Context, key string, g redis.XInfoGroup) (string, error) {
	pending, err := l.OldestPending(ctx, key, g)
	if err != nil || pending != "" {
		return pending, err
	}
	next, err := l.Redis.XRangeN(ctx, key, "("+g.LastDeliveredID, "+", 1).Result()
	if err != nil || len(next) == 0 {
		return "", Failure(err)
	}
	return next[0].ID, nil
}

// Unread is how many entries of a stream a group has yet to read.
func (l *Client) Unread(ctx context.Context, key string, g *redis.XInfoGroup) (int64, error) {
	if g.Lag >= 0 {
		return g.Lag, nil
	}
	return l.CountBetween(ctx, key, g.LastDeliveredID, "+") // Redis does not know it
}

// CountBetween counts the entries of a stream after one id, up to another.
func (l *Client) CountBetween(ctx context.Context, key, after, last string) (n int64, err error) {
	err = l.EachPage(ctx, key, "("+after, last, func(page []redis.XMessage) error { n += int64(len(page)); return nil })
	return n, err
}

// Floor is the oldest id that some group needs, or the last that all have read; empty
// when a required group is missing. unsettled: some group has pending entries.
func (l *Client) Floor(ctx context.Context, key string) (floor string, unsettled bool, err error) {
	groups, _, err := l.GroupsOf(ctx, key)
	if err != nil {
		return "", false, err
	}

	for _, role := range requiredRoles(key) {
		if _, found := GroupOf(groups, role); !found {
			return "", false, nil
		}
	}

	for _, g := range groups {
		if HoldExpired(g.Name, l.Now()) {
			continue
		}

		pending, err := l.OldestPending(ctx, key, g)
		if err != nil {
			return "", false, err
		}

		unsettled = unsettled || pending != ""
		if needs := cmp.Or(pending, g.LastDeliveredID); floor == "" || StreamIDLess(needs, floor) {
			floor = needs
		}
	}

	return floor, unsettled, nil
}

func StreamIDLess(a, b string) bool { return CompareStreamIDs(a, b) < 0 }

func CompareStreamIDs(a, b string) int {
	am, as := SplitStreamID(a)
	bm, bs := SplitStreamID(b)
	return cmp.Or(cmp.Compare(am, bm), cmp.Compare(as, bs))
}

func TimeOfEntry(id string) time.Time {
	ms, _ := SplitStreamID(id)
	return TimeOf(int64(ms))
}

func SplitStreamID(id string) (ms, sequence uint64) {
	front, back, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(front, 10, 64)
	sequence, _ = strconv.ParseUint(back, 10, 64)
	return ms, sequence
}

// EachPage calls do with a stream's entries between two ids, 1000 at a time.
func (l *Client) EachPage(ctx context.Context, key, start, end string, do func([]redis.XMessage) error) error {
	for {
		page, err := l.Redis.XRangeN(ctx, key, start, end, 1000).Result()
		if err != nil || len(page) == 0 {
			return Failed("reading a stream", err)
		}
		if err := do(page); err != nil {
			return err
		}
		start = "(" + page[len(page)-1].ID
	}
}

func HoldExpired(group string, now time.Time) bool {
	text, ok := strings.CutPrefix(group, HoldPrefix)
	if !ok {
		return false
	}
	began, err := strconv.ParseInt(text, 10, 64)
	return err != nil || now.Sub(time.Unix(began, 0)) > HoldLifetime
}

const HoldPrefix = "backup@"

// HoldLifetime ends the hold of a backup that died.
const HoldLifetime = 24 * time.Hour
