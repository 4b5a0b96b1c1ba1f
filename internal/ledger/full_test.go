package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
)

// fill leaves the server of a ledger without memory.
func (l *Ledger) fill(t *testing.T) {
	t.Helper()
	must(t, l.core.Redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
}

// whenFull says of every operation whether a Redis without memory runs it. Whoever adds one decides:
// what makes room, and what those need who make it, must run; what takes in something new must not.
var whenFull = map[string]bool{
	// Make room.
	"retire_orders": true, "shrink_orders": true,
	// Keep and take the partitions in which room is made.
	"advance": true, "renew_tokens": true, "beat": true, "announce_release": true,
	// Read.
	"usage": true, "list_due": true, "consume": true, "poll_order": true, "read_store": true, "count_token": true,

	"create_order": false, "check_body": false, "cancel_order": false, "report_update": false, "report_locations": false, "write_store": false,
	"publish_notices": false, "write_account": false, "rotate_credentials": false, "revoke_tokens": false, "write_fleet": false,
	"rotate_fleet_secret": false, "set_couriers": false, "write_endpoint": false, "reseal_secret": false, "queue_replays": false,
	"count_activity": false, "count_minutes": false,
}

func TestFullRedis_RunsWhatMakesRoomAndRefusesTheRest(t *testing.T) {
	t.Parallel()

	_, own := ownServer(t)
	s := newEnv(t, own)
	equal(t, slices.Sorted(maps.Keys(s.core.Library.Scripts)), slices.Sorted(maps.Keys(whenFull)), "the operations of which whenFull says something")
	s.fill(t)

	for operation, want := range whenFull {
		// Without keys most fail, once they run.
		err := s.core.Redis.FCall(t.Context(), s.core.Library.Scripts[operation].Name, nil).Err()
		check(t, !core.IsUnknownFunction(err), "%s is not there", operation)
		equal(t, !core.IsFull(err), want, operation+" runs")
	}
}

func TestNewLibrary_WantsADecisionAboutEachOperation(t *testing.T) {
	undecided := partitions.Operations
	undecided.WhenFull = maps.Clone(undecided.WhenFull)
	delete(undecided.WhenFull, "beat")

	_, err := core.NewLibrary(&core.Config{}, []core.Operations{undecided}, false)

	check(t, err != nil && strings.Contains(err.Error(), "beat"), "%v", err)
}

// What a worker does at its start, and again and again.
func TestFullRedis_OwnersKeepAndTakePartitions(t *testing.T) {
	t.Parallel()

	server, own := ownServer(t)
	s := newEnv(t, own)
	o := s.create(t, "X-1")
	partition := o.ID.Partition()
	other := (partition + 1) % s.Partitions()
	s.fill(t)

	started := openTest(t, func(c *core.Config) { c.URL = server.URL })
	must(t, started.core.CheckScripts(t.Context(), get(started.Monitor.Servers(t.Context()))(t)))
	must(t, started.Ownership.Beat(t.Context(), "w1", 1))
	must(t, started.Ownership.Released(t.Context()))
	counts, released, err := started.Ownership.Workers(t.Context())
	check(t, err == nil && counts["w1"] == "1" && released == "1", "workers %v, releases %s, %v", counts, released, err)

	owned := get(started.Ownership.Take(t.Context(), partition, "", "w1"))(t)
	idle := get(started.Ownership.Take(t.Context(), other, "", "w1"))(t) // it has no streams yet
	renewal, work := started.Ownership.Step(other, idle.Token), started.Ownership.Step(partition, owned.Token)
	work.Change(o, assigned())
	for _, err := range started.Ownership.Advance(t.Context(), []*partitions.Step{renewal, work}) {
		must(t, err)
	}

	equal(t, get(s.Orders.Get(t.Context(), o.ID))(t).Status, delivery.Assigned, "what was accepted before is decided")
	must(t, started.Ownership.Forget(t.Context(), "w1"))
}

// The exporter makes missing groups, reads, puts away what is unreadable and acknowledges.
func TestFullRedis_ExporterGoesOn(t *testing.T) {
	t.Parallel()

	_, own := ownServer(t)
	s := newEnv(t, own)
	r := s.core.PartitionOf(s.account)
	s.create(t, "X-1")
	get(s.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindEvents), Values: []any{"m", "?"}}).Result())(t)
	s.fill(t)

	var entries []partitions.Entry
	f := partitions.Feed{Role: core.RoleExport, Consumer: "one", Batch: 100, ClaimAfter: time.Minute, Log: func(string, ...any) {}, Handle: func(_ context.Context, batch []partitions.Entry) error {
		entries = append(entries, batch...)
		return s.Streams.Ack(t.Context(), core.RoleExport, batch...)
	}}

	reader := partitions.NewFeedReader(s.core, &f, s.core.Partitions)
	must(t, reader.Turn(t.Context()))

	equal(t, len(entries), 1, "readable entries")
	equal(t, get(s.core.Redis.XLen(t.Context(), r.Key(core.KindDeadLetters)).Result())(t), int64(1), "dead letters")
	groups, _, err := s.core.GroupsOf(t.Context(), r.Key(core.KindEvents))
	group, found := core.GroupOf(groups, core.RoleExport)
	check(t, err == nil && found && group.Pending == 0 && group.Lag == 0, "%+v, %v", group, err)
}

// A process of the same release asks for nothing that needs memory; the scripts of another one cannot
// be loaded, and it says so.
func TestFullRedis_ANewReleaseSaysWhyItCannotStart(t *testing.T) {
	t.Parallel()

	server, own := ownServer(t)
	s := newEnv(t, own)
	s.fill(t)
	next := openTest(t, func(c *core.Config) {
		c.URL, c.Partitions = server.URL, 0
		c.Edit = func(file, text string) string {
			if file == "names" {
				text += "local next_release = true\n"
			}
			return text
		}
	})

	atStart := next.core.CheckScripts(t.Context(), get(next.Monitor.Servers(t.Context()))(t))
	_, later := next.Limits.Consume(t.Context(), s.account, limits.EndpointOrders)

	for _, err := range []error{atStart, later} {
		check(t, errors.Is(err, core.ErrScriptsMissing) && errors.Is(err, delivery.ErrUnavailable), "%v", err)
		for _, part := range []string{"full", "maxmemory", "RedisMemoryFull", "release that ran before"} {
			check(t, err != nil && strings.Contains(err.Error(), part), "%v does not name %q", err, part)
		}
	}

	must(t, s.core.Redis.ConfigSet(t.Context(), "maxmemory", "0").Err())
	must(t, next.core.CheckScripts(t.Context(), get(next.Monitor.Servers(t.Context()))(t)))
	get(next.Limits.Consume(t.Context(), s.account, limits.EndpointOrders))(t)
}

// More than one command drops at once, from the streams of a partition and of an account.
func TestFullRedis_TrimsInSteps(t *testing.T) {
	t.Parallel()

	_, own := ownServer(t)
	s := newEnv(t, own)
	r := s.core.PartitionOf(s.account)
	accountEvents := r.KeyOf(core.KindAccountEvents, s.account[:])
	const entries = 2*partitions.TrimmedAtOnce + 150
	long := time.Now().Add(-30 * time.Hour).UnixMilli()
	pipe := s.core.Redis.Pipeline()
	for i := range entries {
		id := fmt.Sprintf("%d-%d", long, i+1)
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindOutcomes), ID: id, Values: []any{"o", "x"}})
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: accountEvents, ID: id, Values: []any{"m", "x"}})
	}

	pipe.XGroupCreate(t.Context(), r.Key(core.KindOutcomes), string(core.RoleExport), "$")
	get(pipe.Exec(t.Context()))(t)
	young := get(s.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: accountEvents, Values: []any{"m", "x"}}).Result())(t)
	s.fill(t)

	var dropped, ofAccounts int64
	commands := s.commandsOf(t, func() {
		dropped = get(s.Streams.Trim(t.Context(), r.Number, 25*time.Hour))(t)
		ofAccounts = get(s.Streams.TrimAccounts(t.Context(), r.Number))(t)
	})

	equal(t, dropped, int64(entries-1), "entries dropped; the last one marks the place")
	equal(t, ofAccounts, int64(entries), "entries dropped of the account")
	left := get(s.core.Redis.XRange(t.Context(), accountEvents, "-", "+").Result())(t)
	check(t, len(left) == 1 && left[0].ID == young, "left of the account: %v", left)
	check(t, commands["xtrim"] >= 6, "%d commands that drop entries, each of at most %d", commands["xtrim"], partitions.TrimmedAtOnce)
}

func TestKept_CountsOrdersAndSaysWhenTheFirstEnded(t *testing.T) {
	t.Parallel()

	_, own := ownServer(t)
	s := newEnv(t, own)
	live, ended := s.create(t, "X-1"), s.create(t, "X-2")
	s.list(t, live.ID)
	get2(s.Orders.Cancel(t.Context(), s.account, ended.ID, "", "", time.Now()))(t)
	r := s.core.PartitionOf(s.account)
	hours := get(s.core.Redis.ZRange(t.Context(), r.Key(core.KindEndedHours), 0, -1).Result())(t)
	s.fill(t)

	kept := get(s.Orders.Kept(t.Context(), []int{(r.Number + 1) % 4, r.Number}))(t)

	hour := get(strconv.ParseInt(hours[0], 10, 64))(t)
	equal(t, kept, []orders.Kept{{}, {Live: 1, Ended: 1, FirstEnded: time.Unix((hour+1)*3600, 0)}}, "kept")
}
