package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/overlay"
)

var (
	mehmet = delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5321112233", VehicleType: "Motorcycle"}
	ali    = delivery.Courier{Name: "Ali Veli", Phone: "5550000000", VehicleType: "Bicycle"}
)

func assigned() []delivery.Change {
	return []delivery.Change{{Status: delivery.Assigned, At: time.Now().Truncate(time.Millisecond), Courier: mehmet}}
}

// content is everything that a partition holds.
func (l *Ledger) content(t *testing.T, r core.Partition) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, key := range get(l.core.Redis.Keys(t.Context(), r.Prefix+"*").Result())(t) {
		all[key] = get(l.core.Redis.Dump(t.Context(), key).Result())(t)
	}
	return all
}

func TestAdvance_ComparesVersions(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	change := func(step *partitions.Step) { step.Change(o, assigned()) }
	for _, want := range []error{nil, core.ErrConflict} {
		wantError(t, s.advanceBy(t.Context(), o.ID.Partition(), change), want)
	}

	stored := get(s.Orders.Get(t.Context(), o.ID))(t)
	check(t, stored.Status == delivery.Assigned && delivery.Sequence(stored.Version) == 2 && stored.Courier == mehmet && len(stored.Changes) == 1, "stored %+v", stored)
	s.swap(t, stored, ali)
	swapped := get(s.Orders.Get(t.Context(), o.ID))(t)
	kept := len(swapped.Changes) == 2 && swapped.Changes[0].Courier == mehmet && swapped.Changes[1].Kind == delivery.CourierReplaced
	check(t, delivery.Sequence(swapped.Version) == 3 && swapped.Courier == ali && swapped.Status == delivery.Assigned && kept, "swapped %+v", swapped)
	unknown := &delivery.Order{ID: delivery.MakeOrderID(o.ID.Partition(), 2, [12]byte{3}), Version: 1<<32 | 1}
	wantError(t, s.advanceBy(t.Context(), o.ID.Partition(), func(step *partitions.Step) { step.Change(unknown, assigned()) }), core.ErrConflict)
}

// The defect no-version-check of the fault tests (loadtest/faults/mutants.yaml) must still be one: with it a step writes
// over a cancellation that came between the reading of its order and the step.
func TestAdvance_WithoutTheVersionsACancellationIsLost(t *testing.T) {
	module := get(stack.ModuleDir())(t)
	const script = "internal/ledger/partitions/advance.lua"
	changed := overlay.New(module)
	must(t, changed.Replace(filepath.Join(module, "loadtest/faults/testdata/mutants/no-version-check", script), script))
	text := get(changed.Read(filepath.Join(module, script)))(t)

	for _, c := range []struct {
		name   string
		edit   func(file, text string) string
		result error
		want   []delivery.Status
	}{
		{"as it is", nil, core.ErrConflict, []delivery.Status{delivery.Cancelled}},
		{"without the check", func(file, original string) string {
			if file == "advance" {
				return string(text)
			}
			return original
		}, nil, []delivery.Status{delivery.Cancelled, delivery.Assigned}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newEnv(t, func(config *core.Config) { config.Edit = c.edit })
			read := s.create(t, "X-1")
			get2(s.Orders.Cancel(t.Context(), s.account, read.ID, "", "", time.Now()))(t)

			wantError(t, s.advanceBy(t.Context(), read.ID.Partition(), func(step *partitions.Step) { step.Change(read, assigned()) }), c.result)

			o := get(s.Orders.Get(t.Context(), read.ID))(t)
			var got []delivery.Status
			for i := range o.Changes {
				got = append(got, o.Changes[i].Status)
			}

			equal(t, got, c.want, "the order has been")
			equal(t, o.Status, c.want[len(c.want)-1], "the order is")
		})
	}
}

func TestAdvance_KeepsListsAndTimers(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	r := s.core.Partitions[o.ID.Partition()]
	for range 2 {
		s.list(t, o.ID)
	}

	listed := func(status delivery.Status) int {
		orders, next := get2(s.Orders.Jobs(t.Context(), s.fleet.ID, status, "", 10))(t)
		check(t, next == "", "a cursor %q at the end", next)
		return len(orders)
	}

	check(t, listed(delivery.Searching) == 1, "the new order is not on its fleet's list")
	due := get(s.Ownership.Due(t.Context(), []int{o.ID.Partition()}, o.CreatedAt.Add(15*time.Minute), 10))(t)
	check(t, len(due[0]) == 1 && due[0][0] == o.ID, "due after 15 minutes: %v", due)
	s.advance(t, o.ID, delivery.Assigned)
	check(t, listed(delivery.Searching) == 0 && listed(delivery.Assigned) == 1, "the assigned order is not on the right list")
	s.list(t, o.ID)
	check(t, listed(delivery.Searching) == 0, "listing that comes late put the order back")
	s.advance(t, o.ID, delivery.Delivered)
	equal(t, s.core.Redis.ZCard(t.Context(), r.Key(core.KindTimers)).Val(), 0, "timers of ended orders")
	check(t, listed(delivery.Assigned) == 0, "the delivered order is still listed")
}

// One order that somebody has changed keeps all of the step from being written.
func TestAdvance_WritesAllOrNothing(t *testing.T) {
	s := newEnv(t)
	first, second, third := s.create(t, "X-1"), s.create(t, "X-2"), s.create(t, "X-3")
	r := s.core.PartitionOf(s.account)
	head := &partitions.Wanted{Partition: r.Number, New: []delivery.OrderID{first.ID, second.ID, third.ID}}
	must(t, s.Ownership.ReadOrders(t.Context(), []*partitions.Wanted{head}))
	get2(s.Orders.Cancel(t.Context(), s.account, second.ID, "", "", time.Now()))(t)
	s.report(t, third.ID, delivery.PickedUp)
	refused := &delivery.Update{Order: first.ID, Kind: delivery.KindStatus, Status: delivery.Delivered, At: time.Now()}
	for _, c := range []struct {
		name      string
		add       func(*partitions.Step)
		conflicts []delivery.OrderID
	}{
		{"a change of an order that was cancelled", func(step *partitions.Step) { step.Change(second, assigned()) }, []delivery.OrderID{second.ID}},
		{"a listing of one", func(step *partitions.Step) { step.List(head.News[1]) }, []delivery.OrderID{second.ID}},
		{"a time-out of one of which something was reported", func(step *partitions.Step) {
			step.TimeOut(third, delivery.Change{Status: delivery.Failed, At: time.Now()})
		},
			[]delivery.OrderID{third.ID, third.ID}}, // its status and its time
		{"two of them", func(step *partitions.Step) { step.List(head.News[1]); step.Change(second, assigned()) }, []delivery.OrderID{second.ID, second.ID}},
	} {
		before := s.content(t, r)
		var step *partitions.Step
		err := s.advanceBy(t.Context(), r.Number, func(of *partitions.Step) {
			step = of
			step.List(head.News[0])
			step.Change(first, []delivery.Change{{Status: delivery.Failed, At: time.Now()}})
			step.Refuse(refused, delivery.Searching, "illegal_move", true)
			step.DeadLetter(partitions.Unreadable{ID: "1-0", Reason: "r", Kind: core.KindUpdates}, core.RoleStatus)
			c.add(step)
		})

		wantError(t, err, core.ErrConflict)
		check(t, slices.Equal(step.Conflicts, c.conflicts), "%s: conflicts %v, want %v", c.name, step.Conflicts, c.conflicts)
		check(t, maps.Equal(s.content(t, r), before), "%s: something was written", c.name)
	}
}

// Of a batch, all of this comes into the ledger with one entry.
func TestAdvance_WritesWhatABatchDecides(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	fresh, moved, ended := s.create(t, "X-1"), s.create(t, "X-2"), s.create(t, "X-3")
	w := &partitions.Wanted{Partition: r.Number, New: []delivery.OrderID{fresh.ID, moved.ID, ended.ID}}
	must(t, s.Ownership.ReadOrders(t.Context(), []*partitions.Wanted{w}))
	u := &delivery.Update{Order: ended.ID, Fleet: s.fleet.ID, Kind: delivery.KindStatus, Status: delivery.Delivered, At: time.Now().UTC().Truncate(time.Millisecond)}
	var step *partitions.Step
	s.step(t, r.Number, func(of *partitions.Step) {
		step = of
		for _, o := range w.News {
			step.List(o)
		}
		step.Change(moved, append(assigned(), delivery.Change{Status: delivery.PickingUp, At: time.Now()}))
		step.Change(ended, []delivery.Change{{Status: delivery.Failed, At: time.Now()}})
		step.Refuse(u, delivery.Failed, "late_delivery", true)
	})

	entries := get(s.core.Redis.XRange(t.Context(), r.Key(core.KindEvents), step.Batch, "+").Result())(t)
	require(t, len(entries) == 1 && entries[0].ID == step.Batch, "entries behind %s: %v", step.Batch, entries)
	e := partitions.Entry{}
	must(t, e.Read(r, entries[0].Values))
	movedAfter, endedAfter := get(s.Orders.Get(t.Context(), moved.ID))(t), get(s.Orders.Get(t.Context(), ended.ID))(t)
	want := []partitions.Event{{Order: moved.ID, Version: movedAfter.Changes[0].Version}, {Order: moved.ID, Version: movedAfter.Version},
		{Order: ended.ID, Version: endedAfter.Version}, {Order: ended.ID, LateAt: u.At}}
	check(t, slices.EqualFunc(e.Events, want, func(a, b partitions.Event) bool {
		return a.Order == b.Order && a.Version == b.Version && a.LateAt.Equal(b.LateAt)
	}), "events %+v, want %+v", e.Events, want)
	refused := get(s.Monitor.RefusedUpdates(t.Context(), 10))(t)
	check(t, len(refused) == 1 && refused[0].Update == *u && refused[0].Late && refused[0].Reason == "late_delivery", "refused %+v", refused)
	for _, id := range w.New { // some leave their list in the step that listed them
		s.checkIndexes(t, id)
	}
}

// checkIndexes wants an order that has not ended to have a timer, and to be on the list of jobs of its status and on no
// other. One that was cancelled is on the list of those, and any other that has ended on none.
func (s *env) checkIndexes(t *testing.T, id delivery.OrderID) {
	t.Helper()
	o := get(s.Orders.Get(t.Context(), id))(t)
	r := s.core.Partitions[id.Partition()]
	has := func(key string) bool {
		err := s.core.Redis.ZScore(t.Context(), key, core.OrderMember(id)).Err()
		isMissing := errors.Is(err, redis.Nil)
		if !isMissing {
			must(t, err)
		}
		return !isMissing
	}

	hasEnded := o.Status.Terminal()
	equal(t, has(r.Key(core.KindTimers)), !hasEnded, "a timer of an order that is "+o.Status.String())
	for status := delivery.Searching; status <= delivery.Cancelled; status++ {
		isWanted := status == o.Status && (!hasEnded || status == delivery.Cancelled)
		equal(t, has(r.Jobs(status, o.Fleet.ID)), isWanted, "on the list "+status.String()+" an order that is "+o.Status.String())
	}
}

// What a gateway writes between the owner's read and its step survives.
func TestAdvance_KeepsWhatGatewaysWriteMeanwhile(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	key := s.core.Partitions[o.ID.Partition()].Order(o.ID.Digest())
	now := time.Now().Truncate(time.Millisecond)
	report := func(u delivery.Update) {
		t.Helper()
		u.Order, u.Fleet, u.At = o.ID, s.fleet.ID, now
		get(s.Orders.Report(t.Context(), u, now))(t)
	}

	report(delivery.Update{Kind: delivery.KindAccept, Status: delivery.Assigned, Courier: mehmet})
	report(delivery.Update{Kind: delivery.KindStatus, Status: delivery.PickedUp})
	report(delivery.Update{Kind: delivery.KindStatus, Status: delivery.Failed, Failure: delivery.OtherFailure})
	report(delivery.Update{Kind: delivery.KindSwap, Courier: ali})
	get2(s.Orders.Poll(t.Context(), s.account, o.ID))(t)
	get(s.Orders.ReportLocations(t.Context(), s.fleet.ID, []orders.Position{{Order: o.ID, Location: delivery.Location{Point: taksim, At: now}}}, now))(t)
	before := get(s.core.Redis.Get(t.Context(), key).Bytes())(t)
	s.change(t, o, assigned()...) // o is as it was created
	after := get(s.core.Redis.Get(t.Context(), key).Bytes())(t)
	require(t, len(after) > len(before), "the record did not grow")
	changed := []int{1} // the status
	for i := partitions.OrderVersionAt; i < partitions.OrderVersionAt+24; i++ {
		changed = append(changed, i) // version, time and estimate
	}

	for i := range before {
		check(t, before[i] == after[i] || slices.Contains(changed, i), "byte %d was %x, is %x", i, before[i], after[i])
	}

	stored := get(s.Orders.Get(t.Context(), o.ID))(t)
	check(t, stored.Status == delivery.Assigned && stored.Reported == delivery.PickedUp && stored.Accepted == ali && stored.LastCourierUpdate.Equal(now) && stored.Location.At.Equal(now),
		"stored %+v", stored)
	flags := after[partitions.OrderReportedAt+1]
	check(t, flags>>1 == 2, "%d reports are counted that are no step forward", flags>>1)
}

func TestAdvance_ListsWhatHasEndedByTheHour(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	var orders []*delivery.Order
	for i := range 5 {
		orders = append(orders, s.create(t, fmt.Sprint("X-", i)))
	}

	longAgo := time.Now().Add(-20 * time.Hour)
	var step *partitions.Step
	s.step(t, r.Number, func(of *partitions.Step) {
		step = of
		for _, o := range orders[:4] {
			step.Change(o, []delivery.Change{{Status: delivery.Failed, At: longAgo}})
		}
	})

	hour := fmt.Sprint(core.TimeOfEntry(step.Batch).Unix() / 3600) // of the entry, not of the changes
	members := get(s.core.Redis.LRange(t.Context(), r.KeyOf(core.KindEnded, []byte(hour)), 0, -1).Result())(t)
	var want []string
	for _, o := range orders[:4] {
		want = append(want, core.OrderMember(o.ID))
		stored := get(s.Orders.Get(t.Context(), o.ID))(t)
		check(t, stored.Status == delivery.Failed && len(stored.Changes) == 1, "the copy of %s: %+v", o.ID, stored)
	}

	check(t, slices.Equal(members, want), "ended in hour %s: %q, want %q", hour, members, want)
	check(t, s.core.Redis.Exists(t.Context(), r.Prefix+"y").Val() == 0, "the copy is still there")
	equal(t, get(s.core.Redis.ZRange(t.Context(), r.Key(core.KindEndedHours), 0, -1).Result())(t), []string{hour}, "hours")
}

// Lua spreads no more than about 8,000 values.
func TestAdvance_SplitsLongCommands(t *testing.T) {
	s := newEnv(t)
	r := s.core.Partitions[0]
	const orders = 2*partitions.WordsAtOnce + 10
	id := func(n int) delivery.OrderID {
		digest := [12]byte{1}
		binary.BigEndian.PutUint32(digest[4:], uint32(n))
		return delivery.MakeOrderID(0, 20_000, digest)
	}

	for _, until := range []time.Time{time.Now(), {}} {
		s.step(t, 0, func(step *partitions.Step) {
			for n := range orders {
				step.Postpone(id(n), until)
			}
		})
		timers := s.core.Redis.ZCard(t.Context(), r.Key(core.KindTimers)).Val()
		check(t, until.IsZero() && timers == 0 || timers == orders, "%d timers", timers)
	}
}

func TestAdvance_ComparesTheToken(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	r := s.core.PartitionOf(s.account)
	mine := partitions.Token{Owner: "w1", Epoch: 3, Sequence: 7, Events: "1-0", Updates: "2-0", Webhooks: "1-0"}
	next := mine
	next.Sequence++
	for _, c := range []struct {
		name   string
		stored partitions.Token
		want   string
	}{
		{"nobody owns it", partitions.Token{}, "lost"},
		{"another worker", partitions.Token{Owner: "w2", Epoch: 4, Events: "1-0", Updates: "2-0"}, "lost"},
		{"the same worker in another epoch", partitions.Token{Owner: "w1", Epoch: 4, Sequence: 7, Events: "1-0", Updates: "2-0"}, "lost"},
		{"it has written something else", partitions.Token{Owner: "w1", Epoch: 3, Sequence: 9, Events: "1-0", Updates: "2-0"}, "lost"},
		{"it has written this", next, "repeated"},
	} {
		must(t, s.core.Redis.Set(t.Context(), r.Key(core.KindOwner), string(c.stored.Stored()), 0).Err())
		before := s.content(t, r)
		step := s.Ownership.Step(r.Number, mine)
		step.Change(o, assigned())
		call := step.Call()
		reply := get(s.core.Redis.FCall(t.Context(), s.core.Library.Scripts["advance"].Name, call.Keys, call.Args...).Slice())(t)
		check(t, len(reply) == 1 && reply[0] == c.want, "%s: %v, want %s", c.name, reply, c.want)
		check(t, maps.Equal(s.content(t, r), before), "%s: something was written", c.name)
		err := s.Ownership.Advance(t.Context(), []*partitions.Step{step})[0]
		check(t, err != nil && errors.Is(err, partitions.ErrNotOwner) == (c.want == "lost"), "%s: %v", c.name, err)
	}
}

// Steps of several partitions do not depend on each other.
func TestAdvance_AnswersEachPartition(t *testing.T) {
	l := openTest(t)
	envs := envsEverywhere(t, l)
	steps, orders := make([]*partitions.Step, len(envs)), make([]*delivery.Order, len(envs))
	for p, s := range envs {
		orders[p] = s.create(t, "X-1")
		steps[p] = l.Ownership.Step(p, partitions.Token{})
		steps[p].Change(orders[p], assigned())
	}

	envs[1].change(t, orders[1], assigned()...) // then it has another token
	get2(l.Orders.Cancel(t.Context(), envs[2].account, orders[2].ID, "", "", time.Now()))(t)
	for p, err := range l.Ownership.Advance(t.Context(), steps) {
		wantError(t, err, []error{nil, partitions.ErrNotOwner, core.ErrConflict, nil}[p])
	}

	for p, want := range []delivery.Status{delivery.Assigned, delivery.Assigned, delivery.Cancelled, delivery.Assigned} {
		equal(t, get(l.Orders.Get(t.Context(), orders[p].ID))(t).Status, want, fmt.Sprint("the order of partition ", p))
	}
}

// A damaged record, or a head of another length, is nobody's new order.
func TestReadOrders_LeavesOutWhatCannotBeRead(t *testing.T) {
	s := newEnv(t)
	good, bad, cancelled := s.create(t, "X-1"), s.create(t, "X-2"), s.create(t, "X-3")
	r := s.core.PartitionOf(s.account)
	get2(s.Orders.Cancel(t.Context(), s.account, cancelled.ID, "", "", time.Now()))(t)
	must(t, s.core.Redis.Set(t.Context(), r.Order(bad.ID.Digest()), "\x01\x01short", 0).Err())
	gone := delivery.MakeOrderID(r.Number, 1, [12]byte{9})
	ids := []delivery.OrderID{good.ID, bad.ID, gone, cancelled.ID}
	w := &partitions.Wanted{Partition: r.Number, New: ids, Reported: ids}
	must(t, s.Ownership.ReadOrders(t.Context(), []*partitions.Wanted{w}))
	for i, there := range []bool{true, false, false, false} {
		check(t, (w.News[i] != nil) == there, "new %d: %+v", i, w.News[i])
	}

	for i, there := range []bool{true, false, false, true} {
		check(t, (w.Orders[i] != nil) == there && (w.Unreadable[ids[i]] != nil) == (i == 1), "order %d: %+v, %v", i, w.Orders[i], w.Unreadable[ids[i]])
	}
}

// Reports that nobody has decided are found per order, and are no longer known when there are too many.
func TestReadOrders_NamesWhatIsNotDecided(t *testing.T) {
	s := newEnv(t)
	o, other := s.create(t, "X-1"), s.create(t, "X-2")
	r := s.core.PartitionOf(s.account)
	after := "0-0"
	is := func(what string, known bool, orders ...delivery.OrderID) {
		t.Helper()
		w := &partitions.Wanted{Partition: r.Number, Reported: []delivery.OrderID{o.ID}, After: after}
		must(t, s.Ownership.ReadOrders(t.Context(), []*partitions.Wanted{w}))
		check(t, (w.Undecided != nil) == known && len(w.Undecided) == len(orders), "%s: %v", what, w.Undecided)
		for _, id := range orders {
			check(t, w.Undecided[id], "%s: it lacks %s", what, id)
		}
	}

	is("an empty stream", true)
	s.report(t, o.ID, delivery.Assigned)
	is("one report", true, o.ID)
	after = get(s.core.Redis.XInfoStream(t.Context(), r.Key(core.KindUpdates)).Result())(t).LastGeneratedID
	is("decided", true)
	s.report(t, o.ID, delivery.PickingUp)
	s.report(t, other.ID, delivery.Assigned)
	is("two orders", true, o.ID, other.ID)
	pipe := s.core.Redis.Pipeline()
	for range core.MostListed {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindUpdates), Values: []any{"u", core.EncodeUpdate(&delivery.Update{Order: o.ID})}})
	}

	get(pipe.Exec(t.Context()))(t)
	is("too many", false)
	after = get(s.core.Redis.XInfoStream(t.Context(), r.Key(core.KindUpdates)).Result())(t).LastGeneratedID
	must(t, s.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindUpdates), Values: []any{"u", "damaged"}}).Err())
	is("a damaged one", false)
}

// own makes a worker the owner of the partition of the environment's account.
func (s *env) own(t *testing.T, worker string) *partitions.Owned {
	t.Helper()
	r := s.core.PartitionOf(s.account)
	return get(s.Ownership.Take(t.Context(), r.Number, get(s.Ownership.Tokens(t.Context()))(t)[r.Number], worker))(t)
}

// process takes the owner behind all there is, which others are told unless it is silent.
func (s *env) process(t *testing.T, o *partitions.Owned, silent bool) {
	t.Helper()
	for {
		inboxes := get(s.Ownership.Read(t.Context(), []*partitions.Owned{o}, 1000, -1))(t)
		if len(inboxes) == 0 {
			return
		}

		in, step := inboxes[0], s.Ownership.Step(o.Partition, o.Token)
		if in.Events != "" {
			step.Token.Events, step.Token.Webhooks, o.From = in.Events, in.Events, in.Events
		}

		if in.Updates != "" {
			step.Token.Updates = in.Updates
		}

		for _, read := range []*int64{&o.ReadFrom, &o.Read.Events, &o.Read.Webhooks} {
			if *read >= 0 {
				*read += in.ReadEvents
			}
		}

		if o.Read.Updates >= 0 {
			o.Read.Updates += in.ReadUpdates
		}

		if !silent {
			step.Positions(o.Read)
		}

		equal(t, s.Ownership.Advance(t.Context(), []*partitions.Step{step})[0], nil, "a step")
		o.Token = step.Token
	}
}

// The groups' readers know how far the owner has told that it is: exactly, whatever
// the streams have been through.
func TestTake_KeepsLagExact(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*testing.T, *env, string) // to a stream with seven entries
	}{
		{"a stream as it is", func(*testing.T, *env, string) {}},
		{"entries were trimmed", func(t *testing.T, s *env, key string) {
			must(t, s.core.Redis.XTrimMaxLen(t.Context(), key, 5).Err())
		}},
		{"an entry in the middle was removed", func(t *testing.T, s *env, key string) {
			entries := get(s.core.Redis.XRange(t.Context(), key, "-", "+").Result())(t)
			must(t, s.core.Redis.XDel(t.Context(), key, entries[3].ID).Err())
			s.create(t, "instead")
		}},
		{"the group was destroyed", func(t *testing.T, s *env, key string) {
			must(t, s.core.Redis.XGroupDestroy(t.Context(), key, string(core.RoleStatus)).Err())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			s := newEnv(t)
			key := s.core.PartitionOf(s.account).Key(core.KindEvents)
			lags := func(want int64, what string) {
				t.Helper()
				lag := get(s.Streams.Lag(t.Context(), core.RoleStatus))(t)
				equal(t, lag.Entries, want, "lag "+what)
				equal(t, lag.Oldest.IsZero(), want == 0, "no oldest entry "+what)
				equal(t, s.stats(t).Unread[core.RoleStatus], want, "unread "+what)
			}

			s.createMany(t, "A", 4)
			o := s.own(t, "w1")
			lags(4, "at the beginning")
			s.process(t, o, false)
			lags(0, "after the first step")
			s.createMany(t, "B", 3)
			lags(3, "with three behind")
			c.do(t, s, key)
			s.process(t, o, true) // and it dies before it tells
			s.createMany(t, "C", 2)
			o = s.own(t, "w2")
			lags(2, "after another one took it")
			s.process(t, o, false)
			lags(0, "at the end")
			s.createMany(t, "D", 1)
			lags(1, "with one behind")
		})
	}
}

func TestTake_WithoutATokenGoesOnWhereTheGroupsAre(t *testing.T) {
	s := newEnv(t)
	for i := range 3 {
		s.create(t, fmt.Sprint("X-", i))
	}

	must(t, s.Streams.Ack(t.Context(), core.RoleStatus, collect(t, s.Ledger, core.RoleStatus, "old", 3)...))
	last := s.create(t, "last")
	in := get(s.Ownership.Read(t.Context(), []*partitions.Owned{s.own(t, "w1")}, 100, -1))(t)
	require(t, len(in) == 1 && len(in[0].Entries) == 1 && in[0].Entries[0].Events[0].Order == last.ID, "%+v", in)
}

func TestTake_OnlyWhileTheTokenIsAsSeen(t *testing.T) {
	s := newEnv(t)
	first := s.own(t, "w1")
	r := s.core.PartitionOf(s.account)
	_, err := s.Ownership.Take(t.Context(), r.Number, "", "w2")
	wantError(t, err, partitions.ErrNotOwner)
	second := s.own(t, "w2")
	check(t, second.Token.Owner == "w2" && second.Token.Epoch == first.Token.Epoch+1, "%+v after %+v", second.Token, first.Token)
	wantError(t, s.Ownership.Advance(t.Context(), []*partitions.Step{s.Ownership.Step(r.Number, first.Token)})[0], partitions.ErrNotOwner)
	equal(t, s.Ownership.Advance(t.Context(), []*partitions.Step{s.Ownership.Step(r.Number, second.Token)})[0], nil, "a step of the owner")
}

// Trimming and retirement wait for the position that the owner has told.
func TestTrimAndRetire_WaitForTheOwner(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	ended := s.create(t, "X-1")
	s.report(t, ended.ID, delivery.Delivered)
	o := s.own(t, "w1")
	step := s.Ownership.Step(r.Number, o.Token)
	step.Change(ended, []delivery.Change{{Status: delivery.Failed, At: time.Now()}})
	equal(t, s.Ownership.Advance(t.Context(), []*partitions.Step{step})[0], nil, "a step")
	o.Token = step.Token
	later := time.Now().Add(3 * time.Hour)
	must(t, s.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindEvents), ID: fmt.Sprintf("%d-0", later.UnixMilli()), Values: []any{"e", "\x02evt_x"}}).Err())
	for _, role := range []core.Role{core.RoleWebhook, core.RoleExport} {
		must(t, s.Streams.Ack(t.Context(), role, collect(t, s.Ledger, role, "c", 3)...))
	}

	sweep := func() (int64, int) {
		return get(s.Streams.Trim(t.Context(), r.Number, -24*time.Hour))(t), get(s.Orders.Retire(t.Context(), r.Number, later, 100))(t)
	}
	trimmed, retired := sweep()
	check(t, trimmed == 0 && retired == 0, "%d trimmed, %d retired before the owner has read", trimmed, retired)
	lags := func(role core.Role) int64 { return get(s.Streams.Lag(t.Context(), role))(t).Entries }
	equal(t, lags(core.RoleStatus), 4, "entries that the owner has to read") // three events and a report
	equal(t, lags(core.RoleWebhook)+lags(core.RoleExport), 0, "entries that others have to read")
	s.process(t, o, false)
	trimmed, retired = sweep()
	check(t, trimmed == 2 && retired == 1, "%d trimmed, %d retired", trimmed, retired)
	equal(t, lags(core.RoleStatus)+lags(core.RoleWebhook)+lags(core.RoleExport), 0, "entries that somebody has to read")
}

// A group that somebody has destroyed is made again where the owner is, by a step that is whole.
func TestAdvance_MakesADestroyedGroupAgain(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	order := s.create(t, "X-1")
	s.list(t, order.ID)
	o := s.own(t, "w1")
	for _, kind := range []byte{core.KindEvents, core.KindUpdates} {
		must(t, s.core.Redis.XGroupDestroy(t.Context(), r.Key(kind), string(core.RoleStatus)).Err())
	}

	step := s.Ownership.Step(r.Number, o.Token)
	step.Change(order, assigned())
	step.Positions(o.Read)
	equal(t, s.Ownership.Advance(t.Context(), []*partitions.Step{step})[0], nil, "a step")
	o.Token = step.Token
	s.checkIndexes(t, order.ID)
	s.process(t, o, false)
	equal(t, get(s.Streams.Lag(t.Context(), core.RoleStatus))(t).Entries, 0, "lag")
}

// A dead letter shows what it was about although its stream was trimmed.
func TestDeadLetters_OfTheOwnerKeepTheirFields(t *testing.T) {
	s := newEnv(t)
	order := s.create(t, "X-1")
	r := s.core.PartitionOf(s.account)
	s.report(t, order.ID, delivery.Assigned)
	must(t, s.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindUpdates), Values: []any{"u", "damaged"}}).Err())
	o := s.own(t, "w1")
	o.From = o.CatchUp
	in := get(s.Ownership.Read(t.Context(), []*partitions.Owned{o}, 100, -1))(t)
	require(t, len(in) == 1 && len(in[0].Unreadable) == 1, "%+v", in)
	s.step(t, r.Number, func(step *partitions.Step) {
		for _, e := range in[0].Entries {
			if e.Update != nil {
				step.DeadLetter(e.Undecided("a defect"), core.RoleStatus)
			}
		}
		step.DeadLetter(in[0].Unreadable[0], core.RoleStatus)
	})

	must(t, s.core.Redis.Del(t.Context(), r.Key(core.KindUpdates)).Err())
	letters := get(s.Monitor.DeadLetters(t.Context(), 10))(t)
	require(t, len(letters) == 2, "%+v", letters)
	for i, want := range []string{"unreadable: ", "a defect"} {
		check(t, strings.HasPrefix(letters[i].Reason, want) && letters[i].Stream == "updates" && letters[i].Role == "status" && letters[i].Fields["u"] != "", "%+v", letters[i])
	}

	equal(t, letters[1].Fields["order"], order.ID.String(), "order")
}

// A worker's beats are counted; who stands still, or is forgotten, is seen by all.
func TestWorkers_CountTheirBeats(t *testing.T) {
	l := openTest(t)
	other := openTest(t, sameDatabase(l))
	for count := range 2 {
		must(t, l.Ownership.Beat(t.Context(), "w1", int64(count+1)))
	}

	must(t, other.Ownership.Beat(t.Context(), "w2", 1))
	must(t, other.Ownership.Released(t.Context()))
	workers, released := get2(other.Ownership.Workers(t.Context()))(t)
	equal(t, workers, map[string]string{"w1": "2", "w2": "1"}, "workers")
	equal(t, released, "1", "releases")
	must(t, other.Ownership.Forget(t.Context(), "w1", "w3"))
	workers, released = get2(l.Ownership.Workers(t.Context()))(t)
	equal(t, workers, map[string]string{"w2": "1"}, "workers")
	equal(t, released, "1", "releases, which outlive a worker")
}

func TestStep_ErrorsNameTheScriptThatAnswered(t *testing.T) {
	s := newEnv(t)
	step := &partitions.Step{Ledger: s.core, Partition: s.core.Partitions[0]}
	for _, script := range []string{partitions.Advance, partitions.RenewTokens} {
		for _, reply := range [][]any{nil, {"nonsense"}} {
			err := step.Read(script, reply)
			check(t, err != nil && strings.Contains(err.Error(), "script "+script), "%v of %s: %v", reply, script, err)
		}
	}
}

// A report may be decided before its order is listed. The order has a timer all the same: it must end
// when its courier falls silent. Later moves leave the timer as it is.
func TestAdvance_GivesATimerToAnOrderThatWasNeverListed(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	o := s.create(t, "X-1")
	timers := s.core.PartitionOf(s.account).Key(core.KindTimers)
	timer := func() time.Time {
		score := get(s.core.Redis.ZScore(t.Context(), timers, core.OrderMember(o.ID)).Result())(t)
		return core.TimeOf(int64(score))
	}

	s.advance(t, o.ID, delivery.Assigned)

	equal(t, timer(), o.CreatedAt.Add(partitions.FirstTimerAfter), "first timer")
	later := o.CreatedAt.Add(time.Hour)
	s.step(t, o.ID.Partition(), func(step *partitions.Step) { step.Postpone(o.ID, later) })
	s.advance(t, o.ID, delivery.PickingUp)
	equal(t, timer(), later, "timer after the next move")
	s.advance(t, o.ID, delivery.PickedUp, delivery.Delivered)
	err := s.core.Redis.ZScore(t.Context(), timers, core.OrderMember(o.ID)).Err()
	check(t, errors.Is(err, redis.Nil), "the timer of a delivered order: %v", err)
}

// Lua spreads less than 8,000 values. status.batch may be 10,000.
func TestAdvance_EndsAsManyOrdersAsABatchMayHave(t *testing.T) {
	t.Parallel()

	_, own := ownServer(t)
	s := newEnv(t, own)
	const batch = 10_000
	s.createMany(t, "X", batch)
	r := s.core.PartitionOf(s.account)
	orders := get(s.Orders.GetAll(t.Context(), s.createdIDs(t, r)))(t)
	equal(t, len(orders), batch, "orders")

	err := s.advanceBy(t.Context(), r.Number, func(step *partitions.Step) {
		for _, o := range orders {
			step.Change(o, []delivery.Change{{Status: delivery.Failed, At: time.Now()}})
		}
	})

	// On a busy machine the script may take so long that the client asks again, and hears that it is done.
	isDone := err != nil && strings.Contains(err.Error(), `answered "repeated"`)
	if !isDone {
		must(t, err)
	}

	ended := int64(0)
	for _, hour := range get(s.core.Redis.ZRange(t.Context(), r.Key(core.KindEndedHours), 0, -1).Result())(t) {
		ended += get(s.core.Redis.LLen(t.Context(), r.KeyOf(core.KindEnded, []byte(hour))).Result())(t)
	}

	equal(t, ended, int64(batch), "orders in the lists of those that have ended")
	equal(t, get(s.core.Redis.ZCard(t.Context(), r.Key(core.KindTimers)).Result())(t), int64(0), "timers of ended orders")
	token := get(get(s.Ownership.Tokens(t.Context()))(t)[r.Number].Token())(t)
	check(t, token.Epoch == 1 && token.Sequence == 1, "token %+v", token)
}

// createdIDs are the orders of a partition's events.
func (s *env) createdIDs(t *testing.T, r core.Partition) (ids []delivery.OrderID) {
	t.Helper()
	must(t, s.Streams.EachEntry(t.Context(), core.RoleWebhook, time.Time{}, func(page []partitions.Entry) error {
		for _, entry := range page {
			for _, event := range entry.Events {
				if !event.Order.IsZero() && entry.Partition == r.Number {
					ids = append(ids, event.Order)
				}
			}
		}
		return nil
	}))

	return ids
}

// Somebody may have written such an entry by hand; it must not keep the partition from going on.
func TestAdvance_PutsAwayAnEntryOfManyFields(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	entry := partitions.Unreadable{ID: "1-0", Reason: "r", Kind: core.KindUpdates}
	for i := range 8_000 {
		entry.Values = append(entry.Values, fmt.Sprint(partitions.FieldPrefix, i), "value")
	}

	s.step(t, r.Number, func(step *partitions.Step) { step.DeadLetter(entry, core.RoleStatus) })

	letters := get(s.Monitor.DeadLetters(t.Context(), 10))(t)
	check(t, len(letters) == 1 && letters[0].Fields["7"] == "value", "%d dead letters", len(letters))
}
