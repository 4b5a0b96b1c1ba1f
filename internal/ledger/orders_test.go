package ledger

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
)

func TestSuspendedAccount_IsRefusedAndCounted(t *testing.T) {
	s := newEnv(t)
	suspend := func(suspended bool) {
		get(s.Accounts.Update(t.Context(), s.account, func(a *delivery.Account) error { a.Suspended = suspended; return nil }))(t)
	}
	suspend(true)
	_, quota, err := s.Orders.Create(t.Context(), s.creation("X-1", ""))
	wantCode(t, err, delivery.CodeAccountSuspended)
	check(t, quota.Remaining == 99_999, "quota %+v", quota)
	suspend(false)
	s.create(t, "X-1")
}

//rule:limits-and-idempotency/get-3000-60-s-per-account limits-and-idempotency/headers-on-every-such-response limits-and-idempotency/redis_rate
func TestPollOrder_OncePerInterval(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	now := time.Now().Add(1000 * time.Hour).UnixMicro()
	s.setClock(t, now)
	_, quota := get2(s.Orders.Poll(t.Context(), s.account, o.ID))(t)
	check(t, quota.Limit == 100_000 && quota.Remaining == 99_999, "quota %+v", quota)
	s.setClock(t, now+9_999_000)
	_, quota, err := s.Orders.Poll(t.Context(), s.account, o.ID)
	refusal := wantCode(t, err, delivery.CodeRateLimited)
	check(t, quota.Limit == 1 && quota.Remaining == 0 && refusal.RetryAfter == time.Millisecond, "quota %+v, retry after %s", quota, refusal.RetryAfter)
	s.setClock(t, now+10_000_000)
	_, quota = get2(s.Orders.Poll(t.Context(), s.account, o.ID))(t)
	check(t, quota.Remaining == 99_998, "%d remain: the refused poll was counted", quota.Remaining)
	// The clock jumps back: the order is not locked up for the length of the jump.
	s.setClock(t, now-1000*second)
	get2(s.Orders.Poll(t.Context(), s.account, o.ID))(t)

	stranger := newAccount(t, s.Ledger, plenty())
	_, quota, err = s.Orders.Poll(t.Context(), stranger, o.ID)
	wantCode(t, err, delivery.CodeOrderNotFound)
	check(t, quota.Remaining == 99_999, "quota %+v: an unknown order counts too", quota)
	day := delivery.MakeOrderID(o.ID.Partition(), o.ID.Day()+1, o.ID.Digest())
	wantCode(t, errOf(s.Orders.Poll(t.Context(), s.account, day)), delivery.CodeOrderNotFound)
	wantCode(t, errOf(s.Orders.Get(t.Context(), day)), delivery.CodeOrderNotFound)
}

func TestCancelOrder_BeforePickupOnly(t *testing.T) {
	for _, c := range []struct {
		name     string
		statuses []delivery.Status
		reported delivery.Status
		code     delivery.Code
		shown    delivery.Status
	}{
		{"searching", nil, 0, "", 0},
		{"assigned", []delivery.Status{delivery.Assigned}, 0, "", 0},
		{"picking up", []delivery.Status{delivery.Assigned, delivery.PickingUp}, 0, "", 0},
		{"reported assigned", nil, delivery.Assigned, "", 0},
		{"reported pickup waits in the stream", nil, delivery.PickedUp, delivery.CodeOrderNotCancellable, delivery.PickedUp},
		{"picked up", []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp}, 0, delivery.CodeOrderNotCancellable, delivery.PickedUp},
		{"delivered", []delivery.Status{delivery.Delivered}, 0, delivery.CodeOrderNotCancellable, delivery.Delivered},
		{"failed", []delivery.Status{delivery.Failed}, 0, delivery.CodeOrderNotCancellable, delivery.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newEnv(t)
			o := s.create(t, "X-1")
			s.advance(t, o.ID, c.statuses...)
			if c.reported != 0 {
				s.report(t, o.ID, c.reported)
			}

			cancelled, quota, err := s.Orders.Cancel(t.Context(), s.account, o.ID, delivery.CustomerRequest, "vazgeçti", time.Now())
			check(t, quota.Remaining == 99_999, "quota %+v", quota)
			if c.code != "" {
				refusal := wantCode(t, err, c.code)
				check(t, refusal.Status == c.shown, "shown %s, want %s", refusal.Status, c.shown)
				return
			}

			must(t, err)
			last := cancelled.Changes[len(cancelled.Changes)-1]
			check(t, cancelled.Status == delivery.Cancelled && last.Status == delivery.Cancelled && last.Cancel == delivery.CustomerRequest && last.Note == "vazgeçti",
				"cancelled %+v", cancelled)
			again, _ := get2(s.Orders.Cancel(t.Context(), s.account, o.ID, "", "", time.Now()))(t)
			check(t, reflect.DeepEqual(again, cancelled), "a second cancel answers\n%+v\nafter\n%+v", again, cancelled)
		})
	}
}

func TestCancelOrder_TimeNeverRunsBack(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	cancelled, _ := get2(s.Orders.Cancel(t.Context(), s.account, o.ID, "", "", time.Now().Add(-time.Hour)))(t)
	check(t, !cancelled.Changes[1].At.Before(cancelled.Changes[0].At), "cancelled at %s, before %s", cancelled.Changes[1].At, cancelled.Changes[0].At)
}

func TestCancelOrder_NotFound(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	// Accounts of the same and of another partition.
	for range 8 {
		stranger := newAccount(t, s.Ledger, plenty())
		_, quota, err := s.Orders.Cancel(t.Context(), stranger, o.ID, "", "", time.Now())
		wantCode(t, err, delivery.CodeOrderNotFound)
		check(t, quota.Remaining == 99_999, "quota %+v", quota)
	}
}

// The reply to the last cancellation of a window is lost, and the connection
// sends the call again: the answer is its success, not the limit.
func TestCancelOrder_RepeatedCallIsAnsweredBeyondTheLimit(t *testing.T) {
	s := newEnv(t)
	first, second := s.create(t, "X-1"), s.create(t, "X-2")
	get(s.Accounts.Update(t.Context(), s.account, func(a *delivery.Account) error {
		a.Limits.Cancel = delivery.EndpointLimit{Sustained: delivery.Window{Count: 1, Seconds: 60}}
		return nil
	}))(t)

	for _, call := range []struct {
		order *delivery.Order
		nonce uint64
		want  string
	}{
		{first, 1, "cancelled"},
		{first, 1, "cancelled"}, // the same call
		{first, 2, "limited"},   // another request for the same order
		{second, 1, "limited"},
	} {
		change := delivery.Change{Status: delivery.Cancelled, At: time.Now()}
		reply, err := s.Orders.CancelWithNonce(t.Context(), s.core.PartitionOf(s.account), s.account, call.order.ID, &change, call.nonce)
		if name := reply.Name; name != call.want && (call.want != "limited" || delivery.CodeOf(err) != delivery.CodeRateLimited) {
			t.Errorf("nonce %d of %s: %s, %v", call.nonce, call.order.ID, name, err)
		}
	}

	o := get(s.Orders.Get(t.Context(), first.ID))(t)
	equal(t, len(o.Changes), 1, "changes")
}

func TestJobs_AnUnreadableOrderIsLeftOut(t *testing.T) {
	s := newEnv(t)
	orders := []*delivery.Order{s.create(t, "X-1"), s.create(t, "X-2"), s.create(t, "X-3")}
	for _, o := range orders {
		s.list(t, o.ID)
	}

	must(t, s.core.Redis.Set(t.Context(), s.core.PartitionOf(s.account).Order(orders[1].ID.Digest()), garbage, 0).Err())

	jobs, _ := get2(s.Orders.Jobs(t.Context(), s.fleet.ID, delivery.Searching, "", 10))(t)

	equal(t, len(jobs), 2, "jobs")
	for _, job := range jobs {
		check(t, job.ID != orders[1].ID, "the order that cannot be read is listed: %+v", job)
	}
}

func TestJobs_PagesOverEverything(t *testing.T) {
	s := newEnv(t)
	// All in one millisecond, so that pages are cut between equal scores.
	at, want := time.Now(), 25
	for i := range want {
		c := s.creation(fmt.Sprint("X-", i), "")
		c.Now = at
		created, _ := get2(s.Orders.Create(t.Context(), c))(t)
		s.list(t, created.Order.ID)
	}

	for _, limit := range []int{1, 4, 5, 25, 100} {
		seen := make(map[delivery.OrderID]bool)
		for cursor := ""; ; {
			orders, next := get2(s.Orders.Jobs(t.Context(), s.fleet.ID, delivery.Searching, cursor, limit))(t)
			for _, o := range orders {
				require(t, !seen[o.ID], "limit %d: %s is listed twice", limit, o.ID)
				seen[o.ID] = true
			}
			cursor = next
			if next == "" {
				break
			}
		}

		check(t, len(seen) == want, "limit %d: %d orders listed, want %d", limit, len(seen), want)
	}

	wantCode(t, errOf(s.Orders.Jobs(t.Context(), s.fleet.ID, delivery.Searching, "nonsense", 10)), delivery.CodeValidationFailed)
}

func TestReport_ChecksTheOwner(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	u := delivery.Update{Order: o.ID, Fleet: delivery.NewFleetID(), Kind: delivery.KindStatus, Status: delivery.Assigned, At: time.Now()}
	wantCode(t, errOf(s.Orders.Report(t.Context(), u, time.Now())), delivery.CodeOrderNotFound)
	u.Fleet = s.fleet.ID
	before := get(s.Orders.Report(t.Context(), u, time.Now()))(t)
	check(t, before == delivery.Searching, "before %s", before)
	s.advance(t, o.ID, delivery.Failed)
	u.Kind = delivery.KindAccept
	_, err := s.Orders.Report(t.Context(), u, time.Now())
	refusal := wantCode(t, err, delivery.CodeJobNotAvailable)
	check(t, refusal.Status == delivery.Failed, "shown %s", refusal.Status)
	equal(t, s.core.Redis.XLen(t.Context(), s.core.Partitions[o.ID.Partition()].Key(core.KindUpdates)).Val(), 1, "updates in the stream")
}

// updates is how many reports of an order's partition were appended.
func (s *env) updates(t *testing.T, id delivery.OrderID) int64 {
	t.Helper()
	return s.core.Redis.XLen(t.Context(), s.core.Partitions[id.Partition()].Key(core.KindUpdates)).Val()
}

// wantReport expects the code (none: it is taken) and how many reports of the
// partition have been appended by then.
func (s *env) wantReport(t *testing.T, u delivery.Update, code delivery.Code, appended int64) *delivery.Error {
	t.Helper()
	u.Fleet, u.At = s.fleet.ID, time.Now()
	_, err := s.Orders.Report(t.Context(), u, u.At)
	var refusal *delivery.Error
	errors.As(err, &refusal)
	if code == "" && err != nil || code != "" && (refusal == nil || refusal.Code != code) {
		t.Errorf("%+v: got %v, want %q", u, err, code)
	}

	check(t, s.updates(t, u.Order) == appended, "%+v: %d reports appended, want %d", u, s.updates(t, u.Order), appended)
	return refusal
}

//rule:fleets-and-operators/of-an-ended-order-one
func TestReport_OfAnEndedOrderTakesOneDelivery(t *testing.T) {
	for _, end := range []delivery.Change{{Status: delivery.Delivered}, {Status: delivery.Failed, Failure: delivery.TimedOut}, {Status: delivery.Cancelled}} {
		t.Run(end.Status.String(), func(t *testing.T) {
			s := newEnv(t)
			o := s.create(t, "X-1")
			u := delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: delivery.Assigned}
			s.wantReport(t, u, "", 1)
			s.wantReport(t, u, "", 1) // its answer was lost, and it is still to be decided
			end.At = time.Now().Truncate(time.Millisecond)
			s.change(t, o, delivery.Change{Status: delivery.Assigned, At: end.At}, end)
			s.wantReport(t, u, "", 1)
			failed := delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: delivery.Failed, Failure: delivery.TimedOut}
			later, delivered := u, u
			later.Status, delivered.Status = delivery.Delivering, delivery.Delivered
			if end.Status == delivery.Delivered {
				s.wantReport(t, later, "", 1)
				s.wantReport(t, delivered, "", 1)
				s.wantReport(t, failed, delivery.CodeOrderEnded, 1)
				return
			}

			refusal := s.wantReport(t, later, delivery.CodeOrderEnded, 1)
			check(t, refusal == nil || refusal.Status == end.Status, "%+v", refusal)
			if end.Status == delivery.Failed {
				s.wantReport(t, failed, "", 1)
				failed.Failure = delivery.OtherFailure
			}

			s.wantReport(t, failed, delivery.CodeOrderEnded, 1)
			s.wantReport(t, delivered, "", 2)
			s.wantReport(t, delivered, "", 2)
		})
	}
}

//rule:fleets-and-operators/what-an-order-holds-already fleet-api/put-jobs-orderid-courier
func TestReport_TheSameCourierAgainChangesNothing(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	swap := delivery.Update{Order: o.ID, Kind: delivery.KindSwap, Courier: delivery.Courier{Name: "Ayşe Kaya", Phone: "5551112233", VehicleType: "Car"}}
	s.wantReport(t, swap, delivery.CodeJobNotAvailable, 0) // nobody has it
	s.wantReport(t, delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: delivery.Assigned}, "", 1)
	s.wantReport(t, swap, "", 2)
	before := get(s.Orders.Get(t.Context(), o.ID))(t)
	record := get(s.core.Redis.Get(t.Context(), s.core.Partitions[o.ID.Partition()].Order(o.ID.Digest())).Result())(t)
	s.tick(t)
	s.wantReport(t, swap, "", 2)
	s.swap(t, before, swap.Courier)
	s.wantReport(t, swap, "", 2)
	after := get(s.Orders.Get(t.Context(), o.ID))(t)
	check(t, after.LastCourierUpdate.Equal(before.LastCourierUpdate), "a report that says nothing puts the time-out off")
	grown := get(s.core.Redis.StrLen(t.Context(), s.core.Partitions[o.ID.Partition()].Order(o.ID.Digest())).Result())(t) - int64(len(record))
	changed := core.AppendChange(nil, &after.Changes[len(after.Changes)-1])
	check(t, len(after.Changes) == 1 && grown == int64(len(changed)), "the record grew by %d bytes for %d changes", grown, len(after.Changes))
}

// A read that was refused because the account is suspended is none of the order's reads.
func TestPoll_OfASuspendedAccountUsesNothingUp(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	suspend := func(suspended bool) {
		get(s.Accounts.Update(t.Context(), s.account, func(a *delivery.Account) error { a.Suspended = suspended; return nil }))(t)
	}
	suspend(true)
	wantCode(t, errOf(s.Orders.Poll(t.Context(), s.account, o.ID)), delivery.CodeAccountSuspended)
	suspend(false)

	other := openTest(t, sameDatabase(s.Ledger)) // this one remembers the refusal
	polled, _ := get2(other.Orders.Poll(t.Context(), s.account, o.ID))(t)

	equal(t, polled.ID, o.ID, "the order")
	wantCode(t, errOf(other.Orders.Poll(t.Context(), s.account, o.ID)), delivery.CodeRateLimited)
}

// Who repeats a status is still on the way.
//
//rule:states/every-order-reaches-a-terminal
func TestReport_ARepeatedStatusPutsTheTimeOutOff(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	assigned := delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: delivery.Assigned}
	s.wantReport(t, assigned, "", 1)
	before := get(s.Orders.Get(t.Context(), o.ID))(t).LastCourierUpdate
	s.tick(t)

	s.wantReport(t, assigned, "", 1)

	after := get(s.Orders.Get(t.Context(), o.ID))(t).LastCourierUpdate
	check(t, after.After(before), "the last update is of %s, before of %s", after, before)
}

//rule:fleets-and-operators/what-is-no-step-forward
func TestReport_BoundsWhatIsNoStepForward(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	s.wantReport(t, delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: delivery.Assigned}, "", 1)
	u := delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: delivery.Failed, Failure: delivery.CustomerRefused}
	swap := delivery.Update{Order: o.ID, Kind: delivery.KindSwap}
	for n := range int64(orders.MaxSideReports) {
		swap.Courier = (delivery.Courier{Name: fmt.Sprint("Courier ", n), Phone: "5551112233", VehicleType: "Car"})
		if n%2 == 0 {
			s.wantReport(t, swap, "", 2+n)
		} else {
			s.wantReport(t, u, "", 2+n)
		}
	}

	s.advance(t, o.ID, delivery.Assigned) // which leaves the count as it is
	swap.Courier.Name = "Another"
	s.wantReport(t, swap, delivery.CodeTooManyReports, 1+orders.MaxSideReports)
	s.wantReport(t, u, delivery.CodeTooManyReports, 1+orders.MaxSideReports)
	for status := delivery.PickingUp; status <= delivery.Delivered; status++ {
		s.wantReport(t, delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: status}, "", orders.MaxSideReports+int64(status)-1)
	}

	entries := collectFrom(t, s.Ledger, []core.Partition{s.core.Partitions[o.ID.Partition()]}, core.RoleStatus, 1+orders.MaxSideReports+5)
	check(t, entries[len(entries)-1].Update.Status == delivery.Delivered, "the last report is %+v", entries[len(entries)-1].Update)
	stored := get(s.Orders.Get(t.Context(), o.ID))(t)
	check(t, stored.Reported == delivery.Delivered && stored.Accepted.Name == fmt.Sprint("Courier ", orders.MaxSideReports-2), "stored %+v", stored)
}

//rule:fleet-api/post-jobs-orderid-accept
func TestReport_OnlyOneCourierIsConfirmed(t *testing.T) {
	s := newEnv(t)
	mehmet := delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5321112233", VehicleType: "Motorcycle"}
	ayse := delivery.Courier{Name: "Ayşe Kaya", Phone: "5551112233", VehicleType: "Car"}
	accept := func(id delivery.OrderID, c delivery.Courier) delivery.Update {
		return delivery.Update{Order: id, Kind: delivery.KindAccept, Status: delivery.Assigned, Courier: c}
	}
	o := s.create(t, "X-1")
	wantTaken := func(u delivery.Update, by string, appended int64) {
		t.Helper()
		refusal := s.wantReport(t, u, delivery.CodeJobTaken, appended)
		check(t, refusal == nil || refusal.Courier == by, "%+v, want %s", refusal, by)
	}

	s.wantReport(t, accept(o.ID, mehmet), "", 1)
	wantTaken(accept(o.ID, ayse), "Mehmet Y.", 1) // before the worker has decided
	s.wantReport(t, accept(o.ID, mehmet), "", 1)
	at := time.Now().Truncate(time.Millisecond)
	s.change(t, o, delivery.Change{Status: delivery.Assigned, At: at, Courier: mehmet})
	wantTaken(accept(o.ID, ayse), "Mehmet Y.", 1)
	swap := accept(o.ID, ayse)
	swap.Kind, swap.Status = delivery.KindSwap, 0
	s.wantReport(t, swap, "", 2)
	wantTaken(accept(o.ID, mehmet), "Ayşe K.", 2)
	s.wantReport(t, accept(o.ID, ayse), "", 2)

	// The courier of the commit counts where no report named one.
	unnamed := s.create(t, "X-2")
	s.change(t, unnamed, delivery.Change{Status: delivery.Assigned, At: at, Courier: mehmet}, delivery.Change{Status: delivery.PickingUp, At: at})
	wantTaken(accept(unnamed.ID, ayse), "Mehmet Y.", 2)
	s.wantReport(t, accept(unnamed.ID, mehmet), "", 2)
	s.swap(t, get(s.Orders.Get(t.Context(), unnamed.ID))(t), ayse)
	wantTaken(accept(unnamed.ID, mehmet), "Ayşe K.", 2)

	// A status without a courier: the acceptance that follows names one, once.
	nobody := s.create(t, "X-3")
	s.wantReport(t, delivery.Update{Order: nobody.ID, Kind: delivery.KindStatus, Status: delivery.PickedUp}, "", 3)
	s.wantReport(t, accept(nobody.ID, ayse), "", 4)
	wantTaken(accept(nobody.ID, mehmet), "Ayşe K.", 4)
}

// From the moment that a swap is answered the former courier's position counts no more, nor what the
// former phone reports of the time before, also until the worker has decided.
//
//rule:fleet-api/put-jobs-orderid-courier
func TestReport_ASwapForgetsWhereTheFormerCourierWas(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	accepted := time.Now().Truncate(time.Millisecond)
	s.reports(t, o, delivery.Update{Kind: delivery.KindAccept, Status: delivery.Assigned, Courier: mehmet, At: accepted})
	locate := func(p delivery.Point, at time.Time, ignored int) {
		t.Helper()
		position := orders.Position{Order: o.ID, Location: delivery.Location{Point: p, At: at}}
		equal(t, get(s.Orders.ReportLocations(t.Context(), s.fleet.ID, []orders.Position{position}, at))(t), ignored, "ignored")
	}

	wantAt := func(want delivery.Point) {
		t.Helper()
		equal(t, get(s.Orders.Get(t.Context(), o.ID))(t).Location.Point, want, "the position")
	}

	there, elsewhere := delivery.Point{Latitude: 41.01, Longitude: 29.02}, delivery.Point{Latitude: 40.97, Longitude: 29.04}

	corrected := mehmet
	corrected.Name, corrected.VehicleType = "Mehmet YILMAZ", "Car"
	locate(there, accepted.Add(time.Second), 0)
	s.reports(t, o, delivery.Update{Kind: delivery.KindSwap, Courier: corrected, At: accepted.Add(2 * time.Second)})
	wantAt(there)

	swap := delivery.Update{Order: o.ID, Fleet: s.fleet.ID, Kind: delivery.KindSwap, Courier: ali, At: accepted.Add(10 * time.Second)}
	get(s.Orders.Report(t.Context(), swap, swap.At))(t)
	locate(there, accepted.Add(9*time.Second), 1)
	locate(elsewhere, accepted.Add(10*time.Second), 0)

	read := get(s.Orders.Get(t.Context(), o.ID))(t)
	decided := delivery.Decide(read, swap, swap.At)
	s.change(t, read, decided.Changes...)
	wantAt(elsewhere)
	locate(there, accepted.Add(9*time.Second), 1)
	stored := get(s.Orders.Get(t.Context(), o.ID))(t)
	check(t, stored.Courier == ali && stored.UpdatedAt().Equal(swap.At), "%s since %s", stored.Courier.Name, stored.UpdatedAt())

	again := swap
	again.Courier, again.At = mehmet, accepted.Add(20*time.Second)
	s.reports(t, o, again)
	wantAt(delivery.Point{})
	locate(elsewhere, accepted.Add(19*time.Second), 1)
	s.reports(t, o, delivery.Update{Kind: delivery.KindStatus, Status: delivery.PickingUp, At: accepted.Add(18 * time.Second),
		Location: delivery.Location{Point: elsewhere, At: accepted.Add(18 * time.Second)}})
	wantAt(delivery.Point{})
}

// The former courier's position is forgotten also where a status has brought it, which the worker's
// decision would forget later.
//
//rule:fleet-api/put-jobs-orderid-courier
func TestReport_ASwapForgetsThePositionOfAStatusAtOnce(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	at := time.Now().Truncate(time.Millisecond)
	s.reports(t, o, delivery.Update{Kind: delivery.KindAccept, Status: delivery.Assigned, Courier: mehmet, At: at,
		Location: delivery.Location{Point: taksim, At: at}})
	s.wantReport(t, delivery.Update{Order: o.ID, Kind: delivery.KindSwap, Courier: ali, At: at.Add(time.Second)}, "", 2)

	undecided := get(s.Orders.Get(t.Context(), o.ID))(t)
	check(t, undecided.Courier == mehmet && undecided.Location.IsZero(), "%s at %+v", undecided.Courier.Name, undecided.Location)
}

// A status carries a position, too: it is the courier's like any other.
func TestReport_APositionWithAStatusIsTheCouriers(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	at := time.Now().Truncate(time.Millisecond)
	s.reports(t, o, delivery.Update{Kind: delivery.KindAccept, Status: delivery.Assigned, Courier: mehmet, At: at},
		delivery.Update{Kind: delivery.KindStatus, Status: delivery.PickingUp, At: at, Location: delivery.Location{Point: taksim, At: at}})
	equal(t, get(s.Orders.Get(t.Context(), o.ID))(t).Location.Point, taksim, "the position")
	s.reports(t, o, delivery.Update{Kind: delivery.KindStatus, Status: delivery.PickedUp, At: at.Add(time.Second)})
	equal(t, get(s.Orders.Get(t.Context(), o.ID))(t).Changes[2].Location.Point, taksim, "the position with the next status")
}

// The webhook of the latest status has what GET answers, with the position: however the status came.
//
//rule:order-status-delivery-state/the-same-object-without-events
func TestOrders_AWebhookShowsWhatGETShows(t *testing.T) {
	now := time.Now().Truncate(time.Millisecond)
	way := delivered(now.Add(-30 * time.Minute))
	way[1].ETA = now.Add(10 * time.Minute)
	status := func(u delivery.Update) func(*testing.T, *env, *delivery.Order) {
		return func(t *testing.T, s *env, o *delivery.Order) { s.reports(t, o, u) }
	}
	cancel := func(t *testing.T, s *env, o *delivery.Order) {
		get2(s.Orders.Cancel(t.Context(), s.account, o.ID, delivery.CustomerRequest, "vazgeçti", now))(t)
	}
	timeOut := func(t *testing.T, s *env, o *delivery.Order) {
		read := get(s.Orders.Get(t.Context(), o.ID))(t)
		change, due, _ := delivery.DecideTimeout(read, now.Add(5*time.Hour))
		require(t, due, "the order is not due")
		s.step(t, o.ID.Partition(), func(step *partitions.Step) { step.TimeOut(read, change) })
	}

	swap := func(t *testing.T, s *env, o *delivery.Order) {
		s.reports(t, o, delivery.Update{Kind: delivery.KindSwap, Courier: ali, At: now})
	}
	for name, c := range map[string]struct {
		steps int // of the usual way, each with a position between
		ends  []func(*testing.T, *env, *delivery.Order)
	}{
		"Assigned":               {steps: 1},
		"PickingUp":              {steps: 2},
		"PickedUp":               {steps: 3},
		"Delivering":             {steps: 4},
		"Delivered":              {steps: 5},
		"failed by the fleet":    {2, []func(*testing.T, *env, *delivery.Order){status(delivery.Update{Kind: delivery.KindStatus, Status: delivery.Failed, Failure: delivery.OtherFailure, At: now})}},
		"nobody found":           {0, []func(*testing.T, *env, *delivery.Order){timeOut}},
		"timed out":              {4, []func(*testing.T, *env, *delivery.Order){timeOut}},
		"timed out after a swap": {2, []func(*testing.T, *env, *delivery.Order){swap, timeOut}},
		"cancelled at once":      {0, []func(*testing.T, *env, *delivery.Order){cancel}},
		"cancelled, Assigned":    {1, []func(*testing.T, *env, *delivery.Order){cancel}},
		"cancelled, PickingUp":   {2, []func(*testing.T, *env, *delivery.Order){cancel}},
		"cancelled after a swap": {2, []func(*testing.T, *env, *delivery.Order){swap, cancel}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			o := s.create(t, "X-1")
			for i, u := range way[:c.steps] {
				if i > 0 {
					at := u.At.Add(-time.Second)
					get(s.Orders.ReportLocations(t.Context(), s.fleet.ID, []orders.Position{{Order: o.ID, Location: delivery.Location{Point: taksim, At: at}}}, at))(t)
				}
				s.reports(t, o, u)
			}

			if c.steps > 0 {
				at := now.Add(-time.Second)
				get(s.Orders.ReportLocations(t.Context(), s.fleet.ID, []orders.Position{{Order: o.ID, Location: delivery.Location{Point: taksim, At: at}}}, at))(t)
			}

			for _, end := range c.ends {
				end(t, s, o)
			}

			stored := get(s.Orders.Get(t.Context(), o.ID))(t)
			webhook := string(stored.AppendStatus(nil, stored.Version, false, false))
			equal(t, webhook, string(stored.AppendStatus(nil, 0, false, false)), "the webhook's object")
			if len(c.ends) > 0 {
				located := string(stored.AppendStatus(nil, stored.Version, false, true))
				equal(t, located, string(stored.AppendStatus(nil, 0, false, true)), "the webhook's object with the position")
				hasCourier := strings.Contains(webhook, `"courier":`) && strings.Contains(webhook, `"etaDropoffAt":`)
				check(t, hasCourier == (c.steps > 0), "%s", webhook)
				isKnown := c.steps > 0 && len(c.ends) == 1
				check(t, strings.Contains(located, `"location":`) == isKnown, "%s", located)
			}
		})
	}
}

func TestReportLocations_KeepsTheNewest(t *testing.T) {
	s := newEnv(t)
	o, ended := s.create(t, "X-1"), s.create(t, "X-2")
	s.advance(t, ended.ID, delivery.Delivered)
	at := time.Now().Truncate(time.Millisecond)
	here := delivery.Location{Point: taksim, At: at}
	older := delivery.Location{Point: delivery.Point{Latitude: 1, Longitude: 2}, At: at.Add(-time.Second)}
	ignored := get(s.Orders.ReportLocations(t.Context(), s.fleet.ID, []orders.Position{{Order: o.ID, Location: here}, {Order: o.ID, Location: older}, {Order: ended.ID, Location: here}, {Order: delivery.MakeOrderID(3, 4, [12]byte{}), Location: here}, {Order: delivery.MakeOrderID(999, 4, [12]byte{}), Location: here}}, at))(t)
	check(t, ignored == 4, "%d ignored, want 4", ignored)
	stored := get(s.Orders.Get(t.Context(), o.ID))(t)
	check(t, stored.Location.Point == taksim && stored.Location.At.Equal(at) && stored.LastCourierUpdate.Equal(at),
		"location %+v, last update %s", stored.Location, stored.LastCourierUpdate)
	equal(t, get(s.Orders.ReportLocations(t.Context(), delivery.NewFleetID(), []orders.Position{{Order: o.ID, Location: here}}, at))(t), 1, "another fleet: ignored")
}

//rule:post-orders/synchronous
func TestCreateOrder_StoresWhatItAnswers(t *testing.T) {
	s := newEnv(t)
	c := s.creation("X-1", "")
	c.Draft.OrderedAt = time.Now().Add(-time.Minute)
	c.Draft.PackageNote = "kırılacak"
	created, quota := get2(s.Orders.Create(t.Context(), c))(t)
	check(t, quota.Limit == 100_000 && quota.Remaining == 99_999, "quota %+v", quota)
	stored := get(s.Orders.Get(t.Context(), created.Order.ID))(t)
	want := *created.Order
	for _, at := range []*time.Time{&want.CreatedAt, &want.ReadyAt, &want.OrderedAt} {
		*at = at.UTC()
	}

	check(t, reflect.DeepEqual(stored, &want), "stored\n%+v\nanswered\n%+v", stored, &want)
	check(t, !created.Replayed && stored.Status == delivery.Searching && stored.Fleet == s.fleet.Terms(), "created %+v", stored)
}

//rule:order-creation-request/externalStoreId errors/STORE_NOT_CONFIGURED errors/DUPLICATE_ORDER errors/FLEET_SUSPENDED errors/FLEET_UNAVAILABLE
//rule:decisions/several-faults-at-once
func TestCreateOrder_Refusals(t *testing.T) {
	s := newEnv(t)
	s.create(t, "used")
	pending := &delivery.Store{Account: s.account, ExternalID: "pending", State: delivery.AwaitingFleetApproval, Fleet: s.fleet.ID}
	must(t, s.Stores.Write(t.Context(), pending))
	other := delivery.NewFleetID()
	for name, c := range map[string]struct {
		change func(*orders.Creation)
		code   delivery.Code
	}{
		"unknown store":   {func(c *orders.Creation) { c.Draft.ExternalStoreID = "nowhere" }, delivery.CodeStoreNotConfigured},
		"pending store":   {func(c *orders.Creation) { c.Draft.ExternalStoreID = "pending" }, delivery.CodeStoreNotConfigured},
		"suspended fleet": {func(c *orders.Creation) { c.Candidates[0].Suspended = true }, delivery.CodeFleetSuspended},
		"suspended fleet that does not cover": {func(c *orders.Creation) {
			c.Candidates[0].Suspended, c.Candidates[0].Covers = true, false
		}, delivery.CodeFleetSuspended},
		"no candidate at all": {func(c *orders.Creation) { c.Candidates = nil }, delivery.CodeDropoffOutOfCoverage},
		"only another fleet covers": {func(c *orders.Creation) {
			c.Candidates = []accounts.Candidate{{Terms: delivery.FleetTerms{ID: other}, Covers: true}}
		}, delivery.CodeDropoffOutOfCoverage},
		"no couriers":             {func(c *orders.Creation) { c.Candidates[0].NoCouriers = true }, delivery.CodeFleetUnavailable},
		"used id":                 {func(c *orders.Creation) { c.Draft.ExternalOrderID = "used" }, delivery.CodeDuplicateOrder},
		"used id and pending":     {func(c *orders.Creation) { c.Draft.ExternalOrderID, c.Draft.ExternalStoreID = "used", "pending" }, delivery.CodeStoreNotConfigured},
		"used id and no couriers": {func(c *orders.Creation) { c.Draft.ExternalOrderID, c.Candidates[0].NoCouriers = "used", true }, delivery.CodeFleetUnavailable},
		"unknown account":         {func(c *orders.Creation) { c.Account = delivery.NewAccountID() }, delivery.CodeTokenInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			creation := s.creation("new-"+name, "")
			c.change(creation)
			created, _, err := s.Orders.Create(t.Context(), creation)
			wantCode(t, err, c.code)
			check(t, created.Order == nil, "an order came with the refusal")
		})
	}
}

func TestCreateOrder_FindsItsFleetAmongMany(t *testing.T) {
	s := newEnv(t)
	c := s.creation("X-1", "")
	mine := c.Candidates[0]
	c.Candidates = nil
	for range 50 {
		c.Candidates = append(c.Candidates, accounts.Candidate{Terms: delivery.FleetTerms{ID: delivery.NewFleetID(), Name: "another"}, Covers: true})
	}

	// The script must find the fleet by its whole id: not across two neighbouring ids, and not in a note that has the
	// same bytes.
	c.Draft.PackageNote = string(mine.Terms.ID[:])
	var left, right delivery.FleetID
	copy(left[8:], mine.Terms.ID[:8])
	copy(right[:8], mine.Terms.ID[8:])
	c.Candidates = append(c.Candidates, accounts.Candidate{Terms: delivery.FleetTerms{ID: left}}, accounts.Candidate{Terms: delivery.FleetTerms{ID: right}}, mine)
	created, _ := get2(s.Orders.Create(t.Context(), c))(t)
	stored := get(s.Orders.Get(t.Context(), created.Order.ID))(t)
	check(t, created.Order.Fleet == s.fleet.Terms() && stored.Fleet == s.fleet.Terms(), "answered is fleet %+v, stored %+v", created.Order.Fleet, stored.Fleet)
}

// Both ways to remember a key: in the order, when it equals the external id, and
// in a record of its own.
//
//rule:post-orders/idempotency-same-key-with-the errors/DUPLICATE_ORDER limits-and-idempotency/idempotency-scope-account-key
//rule:decisions/several-faults-at-once
func TestCreateOrder_Idempotency(t *testing.T) {
	for _, key := range []string{"X-1", "another-key"} {
		t.Run("key "+key, func(t *testing.T) {
			s := newEnv(t)
			first, _ := get2(s.Orders.Create(t.Context(), s.creation("X-1", key)))(t)

			again, _ := get2(s.Orders.Create(t.Context(), s.creation("X-1", key)))(t)
			check(t, again.Replayed && again.Order.ID == first.Order.ID && again.Order.CreatedAt.Equal(first.Order.CreatedAt), "replayed %+v", again)

			// Whatever became of store, fleet and coverage since.
			gone := s.creation("X-1", key)
			gone.Candidates = nil
			store := get(s.Stores.Get(t.Context(), s.account, "S-1"))(t)
			store.State = delivery.Deactivated
			must(t, s.Stores.Write(t.Context(), store))
			again, _ = get2(s.Orders.Create(t.Context(), gone))(t)
			check(t, again.Replayed, "not replayed after the store was deactivated")

			other := s.creation("X-1", key)
			other.Body = []byte("another body")
			_, _, err := s.Orders.Create(t.Context(), other)
			refusal := wantCode(t, err, delivery.CodeDuplicateOrder)
			check(t, refusal.OrderID.IsZero(), "a key conflict names an order")

			// The same key with another external id.
			otherID := s.creation("X-2", key)
			wantCode(t, errOf(s.Orders.Create(t.Context(), otherID)), delivery.CodeDuplicateOrder)

			// A body that broke a rule: a conflict, a replay, or the rule's error.
			broken := delivery.Refuse(delivery.CodeInvalidPhone, "broken")
			for _, c := range []struct {
				key, body string
				code      delivery.Code
				replayed  bool
			}{{key, "broken", delivery.CodeDuplicateOrder, false}, {key, "body of X-1", "", true}, {"fresh", "broken", broken.Code, false}, {"", "broken", broken.Code, false}} {
				created, quota, err := s.Orders.Replay(t.Context(), &orders.Creation{Account: s.account, IdempotencyKey: c.key, Body: []byte(c.body), Now: time.Now()}, broken)
				if c.code != "" {
					wantCode(t, err, c.code)
				} else {
					must(t, err)
				}
				check(t, created.Replayed == c.replayed && quota.Limit != 0, "%+v: created %+v, quota %+v", c, created, quota)
			}
		})
	}
}

// The key of one order is another order's external id: what is new is refused,
// whichever of the two came first, and each is still replayed.
func TestCreateOrder_KeyThatIsAnotherOrdersExternalID(t *testing.T) {
	for name, order := range map[string][2][2]string{ // external id and key of the first and of the second
		"the external id comes later": {{"X-1", "X-2"}, {"X-2", "X-2"}},
		"the external id comes first": {{"X-2", "X-2"}, {"X-1", "X-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			first, _ := get2(s.Orders.Create(t.Context(), s.creation(order[0][0], order[0][1])))(t)
			wantCode(t, errOf(s.Orders.Create(t.Context(), s.creation(order[1][0], order[1][1]))), delivery.CodeDuplicateOrder)
			again, _ := get2(s.Orders.Create(t.Context(), s.creation(order[0][0], order[0][1])))(t)
			check(t, again.Replayed && again.Order.ID == first.Order.ID, "replayed %+v", again)
		})
	}
}

//rule:decisions/idempotency-header-absent decisions/duplicate-order
func TestCreateOrder_KeyIsForgottenAfterADay(t *testing.T) {
	s := newEnv(t)
	created, _ := get2(s.Orders.Create(t.Context(), s.creation("X-1", "X-1")))(t)
	s.setClock(t, created.Order.CreatedAt.Add(24*time.Hour-time.Second).UnixMicro())
	again, _ := get2(s.Orders.Create(t.Context(), s.creation("X-1", "X-1")))(t)
	check(t, again.Replayed, "not replayed within the day")
	s.setClock(t, created.Order.CreatedAt.Add(24*time.Hour+time.Second).UnixMicro())
	_, _, err := s.Orders.Create(t.Context(), s.creation("X-1", "X-1"))
	refusal := wantCode(t, err, delivery.CodeDuplicateOrder)
	check(t, refusal.OrderID == created.Order.ID, "after a day the external id alone must decide")
	life := func(key string) time.Duration {
		digest := delivery.OrderDigest(s.account, key)
		return s.core.Redis.PTTL(t.Context(), s.core.PartitionOf(s.account).KeyOf(core.KindIdempotency, digest[:])).Val()
	}
	if ttl := life("X-1"); ttl > 0 {
		t.Error("a record of its own was written for a key that equals the external id")
	}

	get2(s.Orders.Create(t.Context(), s.creation("X-2", "key")))(t)
	if ttl := life("key"); ttl < 23*time.Hour || ttl > 24*time.Hour {
		t.Errorf("the key's record is kept for %s", ttl)
	}
}

// The reply was lost and the connection repeats the very same call.
func TestCreateOrder_RepeatedCallAnswersTheFirstResult(t *testing.T) {
	s := newEnv(t)
	c := s.creation("X-1", "")
	r := s.core.PartitionOf(s.account)
	s.Orders.PrepareCreation(r, c)
	for i, want := range []string{"created", "recovered", "recovered"} {
		reply := get(s.countCall(t.Context(), &c.Call, s.account))(t)
		require(t, reply.Name == want, "call %d answered %s, want %s", i, reply.Name, want)
	}

	equal(t, s.core.Redis.XLen(t.Context(), r.Key(core.KindEvents)).Val(), 1, "events")
	reply := get(s.Limits.Count(t.Context(), "consume", s.account, limits.EndpointCancel, []string{limits.WindowsKey(r, limits.EndpointOrders, s.account)}))(t)
	check(t, reply.Quota.Remaining == 100_000-2, "%d remain: repeated calls were counted", reply.Quota.Remaining)
}

func TestCreateOrder_RepeatedCallIsAnsweredBeyondTheLimit(t *testing.T) {
	s := newEnv(t)
	one := plenty()
	one.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 1, Seconds: 60}}
	get(s.Accounts.Update(t.Context(), s.account, func(a *delivery.Account) error { a.Limits = one; return nil }))(t)
	s.setClock(t, 4_000_000_000*second)
	c := s.creation("X-1", "")
	s.Orders.PrepareCreation(s.core.PartitionOf(s.account), c)
	for _, want := range []string{"created", "recovered"} {
		reply := get(s.countCall(t.Context(), &c.Call, s.account))(t)
		require(t, reply.Name == want, "answered %s, want %s", reply.Name, want)
	}

	_, quota, err := s.Orders.Create(t.Context(), s.creation("X-2", ""))
	refusal := wantCode(t, err, delivery.CodeRateLimited)
	check(t, quota.Remaining == 0 && quota.Limit == 1 && refusal.RetryAfter == time.Minute, "quota %+v, retry after %s", quota, refusal.RetryAfter)
}

func TestCreateOrder_ConcurrentSameKey(t *testing.T) {
	for name, c := range map[string]struct {
		key      string
		sameBody bool
		created  int
		replayed int
		refused  int
	}{
		"same key, same body":     {"k", true, 1, 49, 0},
		"same key, other bodies":  {"k", false, 1, 0, 49},
		"no key, one external id": {"", true, 1, 0, 49},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEnv(t)
			var mu sync.Mutex
			var created, replayed, refused int
			var all sync.WaitGroup
			for i := range 50 {
				creation := s.creation("X-1", c.key)
				if !c.sameBody {
					creation = s.creation(fmt.Sprint("X-", i), c.key)
				}

				all.Go(func() {
					got, _, err := s.Orders.Create(t.Context(), creation)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case delivery.CodeOf(err) == delivery.CodeDuplicateOrder && err != nil:
						refused++
					case err != nil:
						t.Error(err)
					case got.Replayed:
						replayed++
					default:
						created++
					}
				})
			}

			all.Wait()
			check(t, created == c.created && replayed == c.replayed && refused == c.refused, "created %d, replayed %d, refused %d", created, replayed, refused)
		})
	}
}

// A fleet asks every few seconds, and mostly there is nothing.
func TestJobIDs_AsksEmptyPartitionsForTheirSizeOnly(t *testing.T) {
	_, own := ownServer(t)
	l := openTest(t, own, func(c *core.Config) { c.Partitions = 256 })
	fleet := delivery.NewFleetID()

	calls := commandsOf(t, l, func() {
		ids, next := get2(l.Orders.JobIDs(t.Context(), fleet, delivery.Searching, "", 100))(t)
		check(t, len(ids) == 0 && next == "", "%d jobs, next %q", len(ids), next)
	})

	check(t, calls["zcard"] == 256 && calls["zrangebyscore"] == 0, "%v", calls)

	for i, p := range []int{3, 70, 255} {
		job := redis.Z{Score: float64(1000 + i), Member: "12345678901234567890"}
		must(t, l.core.Redis.ZAdd(t.Context(), l.core.Partitions[p].Jobs(delivery.Searching, fleet), job).Err())
	}

	calls = commandsOf(t, l, func() {
		ids, next := get2(l.Orders.JobIDs(t.Context(), fleet, delivery.Searching, "", 100))(t)
		check(t, len(ids) == 3 && next == "", "%d jobs, next %q", len(ids), next)
	})

	check(t, calls["zcard"] == 256 && calls["zrangebyscore"] == 3, "%v", calls)
}
