package ledger

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
)

// benchDraft is an order of loadtest/bench.
func benchDraft(n int) *delivery.OrderDraft {
	amount := delivery.Money{Minor: 34990, Set: true}
	return &delivery.OrderDraft{
		ExternalStoreID: "branch-1", ExternalOrderID: fmt.Sprintf("POS-%016d", n),
		OrderedAt: time.Date(2026, time.November, 21, 9, 30, 0, 0, time.UTC), ReadyAt: time.Now(),
		Recipient:   delivery.Recipient{Name: "Ayşe Yılmaz", Phone: "5321234567"},
		Dropoff:     delivery.Dropoff{Text: "Caferağa Mah. Moda Cad. No:12 D:5", Point: taksim, BuildingNo: "12", DoorNo: "5", Floor: "2"},
		PackageNote: "Kapıya bırakın", OrderAmount: amount, Payment: delivery.Payment{Type: delivery.Card, CollectionAmount: amount},
	}
}

// reports has the order's fleet report what happened, each decided at once.
func (s *env) reports(t *testing.T, o *delivery.Order, updates ...delivery.Update) {
	t.Helper()
	for _, u := range updates {
		u.Order, u.Fleet = o.ID, s.fleet.ID
		get(s.Orders.Report(t.Context(), u, u.At))(t)
		o := get(s.Orders.Get(t.Context(), o.ID))(t)
		if changes := delivery.Decide(o, u, u.At).Changes; len(changes) > 0 {
			s.change(t, o, changes...)
		}
	}
}

// delivered are the reports of an order of loadtest/bench, minutes apart.
func delivered(from time.Time) []delivery.Update {
	from = from.Truncate(time.Millisecond)
	updates := []delivery.Update{{Kind: delivery.KindAccept, Status: delivery.Assigned, Courier: mehmet}}
	for status := delivery.PickingUp; status <= delivery.Delivered; status++ {
		updates = append(updates, delivery.Update{Kind: delivery.KindStatus, Status: status})
	}

	for i := range updates {
		updates[i].At = from.Add(time.Duration(i) * 431 * time.Second)
	}

	updates[3].Location = delivery.Location{Point: taksim, At: updates[3].At}

	return updates
}

func (s *env) memory(t *testing.T, key string) int64 {
	t.Helper()
	return get(s.core.Redis.MemoryUsage(t.Context(), key, 0).Result())(t)
}

// keys are those of the account's partition with a prefix.
func (s *env) keys(t *testing.T, kind byte) []string {
	t.Helper()
	return get(s.core.Redis.Keys(t.Context(), s.core.PartitionOf(s.account).Key(kind)+"*").Result())(t)
}

// shrink shrinks all that has ended and returns how many were looked at.
func (s *env) shrink(t *testing.T) (looked int) {
	t.Helper()
	for {
		n := get(s.Orders.Shrink(t.Context(), s.core.PartitionOf(s.account).Number, time.Now().Add(time.Hour)))(t)
		looked += n
		if n == 0 {
			return looked
		}
	}
}

// An order of loadtest/bench needs 856 bytes before, and loses the rest of its keys, the
// idempotency key, after a day.
func TestShrink_LeavesAtMost400BytesOfAnOrder(t *testing.T) {
	const n = orders.RetireBatch + 50 // of the list, pages of one hour
	s := newEnv(t)
	must(t, s.Stores.Write(t.Context(), &delivery.Store{Account: s.account, ExternalID: "branch-1", State: delivery.Active, Fleet: s.fleet.ID}))
	for i := range n {
		c := s.creation("", "")
		c.Draft = benchDraft(i)
		c.IdempotencyKey = c.Draft.ExternalOrderID
		created, _ := get2(s.Orders.Create(t.Context(), c))(t)
		s.reports(t, created.Order, delivered(time.Now().Add(-time.Hour))...)
	}

	perOrder := func() (bytes int64) {
		for _, key := range append(s.keys(t, core.KindOrder), s.keys(t, core.KindEnded)...) {
			bytes += s.memory(t, key)
		}
		return bytes / n
	}

	before := perOrder()
	equal(t, s.shrink(t), n, "orders looked at")
	check(t, before > 800 && perOrder() <= 400, "%d bytes an order, %d before", perOrder(), before)
	equal(t, len(s.keys(t, core.KindIdempotency)), 0, "idempotency keys of orders whose key is the external id")
}

func TestShrink_KeepsWhatIsStillRead(t *testing.T) {
	now := time.Now().Truncate(time.Millisecond)
	whole := delivered(now.Add(-time.Hour))
	whole[1].ETA, whole[2].Courier = now, ali
	for name, end := range map[string]func(*testing.T, *env, *delivery.Order){
		"delivered": func(t *testing.T, s *env, o *delivery.Order) { s.reports(t, o, whole...) },
		"swapped": func(t *testing.T, s *env, o *delivery.Order) {
			s.reports(t, o, whole[0], whole[1], delivery.Update{Kind: delivery.KindSwap, Courier: ali, At: whole[1].At}, whole[4])
		},
		"expected at other times": func(t *testing.T, s *env, o *delivery.Order) {
			later := delivery.Update{Kind: delivery.KindStatus, Status: delivery.PickingUp, ETA: now.Add(time.Hour), At: whole[1].At}
			earlier := delivery.Update{Kind: delivery.KindStatus, Status: delivery.PickingUp, ETA: now.Add(-time.Hour), At: whole[1].At}
			s.reports(t, o, whole[0], whole[1], later, earlier, whole[4])
		},
		"failed": func(t *testing.T, s *env, o *delivery.Order) {
			s.reports(t, o, whole[0], delivery.Update{Kind: delivery.KindStatus, Status: delivery.Failed, Failure: delivery.OtherFailure, At: now})
		},
		"cancelled": func(t *testing.T, s *env, o *delivery.Order) {
			get2(s.Orders.Cancel(t.Context(), s.account, o.ID, delivery.CustomerRequest, "vazgeçti", now))(t)
		},
		"timed out": func(t *testing.T, s *env, o *delivery.Order) {
			s.change(t, o, delivery.Change{Status: delivery.Failed, At: now, Failure: delivery.NoCourierFound})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			c := s.creation("X-1", "K-1")
			c.Draft.OrderedAt, c.Draft.ReadyAt = now.Add(-3*time.Millisecond), now.Add(time.Hour)
			c.Draft.Payment.CollectionAmount = delivery.Money{} // so that the answer has warnings
			created, _ := get2(s.Orders.Create(t.Context(), c))(t)
			answer := string(created.Order.AppendCreated(nil, ""))
			end(t, s, created.Order)
			want := get(s.Orders.Get(t.Context(), created.Order.ID))(t)
			must(t, s.core.Redis.RPush(t.Context(), s.keys(t, core.KindEnded)[0], core.OrderMember(want.ID), "damaged").Err())
			equal(t, s.shrink(t), 3, "list entries looked at")

			want.Recipient, want.Dropoff, want.PackageNote = delivery.Recipient{}, delivery.Dropoff{}, ""
			want.Location, want.Accepted = delivery.Location{}, delivery.Courier{}
			for i := range want.Changes {
				want.Changes[i].Location = delivery.Location{}
			}

			polled, _ := get2(s.Orders.Poll(t.Context(), s.account, want.ID))(t)
			equal(t, polled, want, "GET")
			check(t, polled.Shrunk(), "an order without a recipient is no shrunk one")
			again, _ := get2(s.Orders.Create(t.Context(), c))(t)
			check(t, again.Replayed && string(again.Order.AppendCreated(nil, "")) == answer, "a replay after %s: %+v", answer, again.Order)
			equal(t, partitions.OfOrder(polled, 2).EventID, partitions.OfOrder(want, 2).EventID, "the event to replay")
			if want.Status == delivery.Failed {
				s.wantReport(t, delivery.Update{Order: want.ID, Kind: delivery.KindStatus, Status: delivery.Delivered}, "", s.updates(t, want.ID)+1)
			}

			u := delivery.Update{Order: want.ID, Kind: delivery.KindAccept, Status: delivery.Assigned, Courier: ali}
			s.wantReport(t, u, delivery.CodeJobNotAvailable, s.updates(t, want.ID))
			_, _, err := s.Orders.Cancel(t.Context(), s.account, want.ID, "", "", now)
			check(t, (err == nil) == (want.Status == delivery.Cancelled), "cancelled again: %v", err)
		})
	}
}

// The worker ended before it was kept how far it had got.
func TestShrink_RepeatedChangesNothing(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	s.reports(t, o, delivered(time.Now().Add(-time.Hour))...)
	equal(t, s.shrink(t), 1, "orders looked at")
	equal(t, s.shrink(t), 0, "orders looked at again")
	r := s.core.PartitionOf(s.account)
	once := s.content(t, r)
	must(t, s.core.Redis.Del(t.Context(), r.Key(core.KindShrunk)).Err())
	equal(t, s.shrink(t), 1, "orders looked at after the crash")
	equal(t, s.content(t, r), once, "the partition")

	later := s.create(t, "X-2") // ends in the same hour
	s.reports(t, later, delivered(time.Now().Add(-time.Hour))...)
	equal(t, s.shrink(t), 1, "new orders looked at")
	check(t, get(s.Orders.Get(t.Context(), later.ID))(t).Shrunk(), "a later order of the hour is as it was")
	n := get(s.Orders.Shrink(t.Context(), r.Number, time.Now().Add(-time.Hour)))(t)
	equal(t, n, 0, "orders looked at that ended later")
}

// What others write between the reading and the script stays.
func TestShrink_TakesAnOrderAsItIs(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	open, failed := s.create(t, "open"), s.create(t, "failed")
	s.change(t, failed, delivery.Change{Status: delivery.Failed, At: time.Now(), Failure: delivery.OtherFailure})
	read := get(s.Orders.GetAll(t.Context(), []delivery.OrderID{open.ID, failed.ID}))(t)
	s.advance(t, open.ID, delivery.Assigned)
	s.report(t, failed.ID, delivery.Delivered)
	moved := get(s.Orders.Get(t.Context(), open.ID))(t)
	args := []any{"0 0"}
	for _, o := range read {
		args = append(args, r.Order(o.ID.Digest()), binary.BigEndian.AppendUint64(nil, o.Version), core.EncodeShrunk(o))
	}

	equal(t, get(s.core.Run(t.Context(), "shrink_orders", []string{r.Key(core.KindShrunk)}, args...))(t), any(int64(1)), "orders shrunk")
	equal(t, get(s.Orders.Get(t.Context(), open.ID))(t), moved, "an order that was changed meanwhile")
	late := get(s.Orders.Get(t.Context(), failed.ID))(t)
	check(t, late.Shrunk() && late.Status == delivery.Failed && late.Reported == delivery.Delivered && !late.LastCourierUpdate.IsZero(), "%+v", late)
	s.step(t, r.Number, func(step *partitions.Step) { // the owner had read it before, too
		step.Refuse(&delivery.Update{Order: failed.ID, Status: delivery.Delivered, At: time.Now()}, delivery.Failed, "late_delivery", true)
	})
	equal(t, get(s.Orders.Get(t.Context(), failed.ID))(t), late, "the order after the decision")
}
