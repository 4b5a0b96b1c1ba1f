package ledger

import (
	"reflect"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

func TestSuspendedAccount_IsRefusedAndCounted(t *testing.T) {
	s := newEnv(t)
	suspend := func(suspended bool) {
		get(s.UpdateAccount(t.Context(), s.account, func(a *delivery.Account) error { a.Suspended = suspended; return nil }))(t)
	}
	suspend(true)
	_, quota, err := s.CreateOrder(t.Context(), s.creation("X-1", ""))
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
	_, quota := get2(s.PollOrder(t.Context(), s.account, o.ID))(t)
	check(t, quota.Limit == 100_000 && quota.Remaining == 99_999, "quota %+v", quota)
	s.setClock(t, now+9_999_000)
	_, quota, err := s.PollOrder(t.Context(), s.account, o.ID)
	refusal := wantCode(t, err, delivery.CodeRateLimited)
	check(t, quota.Limit == 1 && quota.Remaining == 0 && refusal.RetryAfter == time.Millisecond, "quota %+v, retry after %s", quota, refusal.RetryAfter)
	s.setClock(t, now+10_000_000)
	_, quota = get2(s.PollOrder(t.Context(), s.account, o.ID))(t)
	check(t, quota.Remaining == 99_998, "%d remain: the refused poll was counted", quota.Remaining)
	// The clock jumps back: the order is not locked up for the length of the jump.
	s.setClock(t, now-1000*second)
	get2(s.PollOrder(t.Context(), s.account, o.ID))(t)

	stranger := newAccount(t, s.Ledger, plenty())
	_, quota, err = s.PollOrder(t.Context(), stranger, o.ID)
	wantCode(t, err, delivery.CodeOrderNotFound)
	check(t, quota.Remaining == 99_999, "quota %+v: an unknown order counts too", quota)
	day := delivery.MakeOrderID(o.ID.Partition(), o.ID.Day()+1, o.ID.Digest())
	wantCode(t, errOf(s.PollOrder(t.Context(), s.account, day)), delivery.CodeOrderNotFound)
	wantCode(t, errOf(s.Order(t.Context(), day)), delivery.CodeOrderNotFound)
}

func TestCancelOrder_BeforePickupOnly(t *testing.T) {
	for _, c := range []struct {
		name     string
		statuses []delivery.Status
		reported delivery.Status
		code     delivery.Code
		told     delivery.Status
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
			cancelled, quota, err := s.CancelOrder(t.Context(), s.account, o.ID, delivery.CustomerRequest, "vazgeçti", time.Now())
			check(t, quota.Remaining == 99_999, "quota %+v", quota)
			if c.code != "" {
				refusal := wantCode(t, err, c.code)
				check(t, refusal.Status == c.told, "told %s, want %s", refusal.Status, c.told)
				return
			}
			must(t, err)
			last := cancelled.Changes[len(cancelled.Changes)-1]
			check(t, cancelled.Status == delivery.Cancelled && last.Status == delivery.Cancelled && last.Cancel == delivery.CustomerRequest && last.Note == "vazgeçti",
				"cancelled %+v", cancelled)
			again, _ := get2(s.CancelOrder(t.Context(), s.account, o.ID, "", "", time.Now()))(t)
			check(t, reflect.DeepEqual(again, cancelled), "a second cancel answers\n%+v\nafter\n%+v", again, cancelled)
		})
	}
}

func TestCancelOrder_TimeNeverRunsBack(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	s.advance(t, o.ID, delivery.Assigned)
	cancelled, _ := get2(s.CancelOrder(t.Context(), s.account, o.ID, "", "", time.Now().Add(-time.Hour)))(t)
	check(t, !cancelled.Changes[1].At.Before(cancelled.Changes[0].At), "cancelled at %s, before %s", cancelled.Changes[1].At, cancelled.Changes[0].At)
}

func TestCancelOrder_NotFound(t *testing.T) {
	s := newEnv(t)
	o := s.create(t, "X-1")
	// Accounts of the same and of another partition.
	for range 8 {
		stranger := newAccount(t, s.Ledger, plenty())
		_, quota, err := s.CancelOrder(t.Context(), stranger, o.ID, "", "", time.Now())
		wantCode(t, err, delivery.CodeOrderNotFound)
		check(t, quota.Remaining == 99_999, "quota %+v", quota)
	}
}

// The reply to the last cancellation of a window is lost, and the connection
// sends the call again: the vendor is told of its success, not of the limit.
func TestCancelOrder_RepeatedCallIsAnsweredBeyondTheLimit(t *testing.T) {
	s := newEnv(t)
	first, second := s.create(t, "X-1"), s.create(t, "X-2")
	_, err := s.UpdateAccount(t.Context(), s.account, func(a *delivery.Account) error {
		a.Limits.Cancel = delivery.EndpointLimit{Sustained: delivery.Window{Count: 1, Seconds: 60}}
		return nil
	})
	must(t, err)
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
		reply, err := s.cancel(t.Context(), s.roomOf(s.account), s.account, call.order.ID, &change, call.nonce)
		if name := reply.name; name != call.want && (call.want != "limited" || delivery.CodeOf(err) != delivery.CodeRateLimited) {
			t.Errorf("nonce %d of %s: %s, %v", call.nonce, call.order.ID, name, err)
		}
	}
	o := get(s.Order(t.Context(), first.ID))(t)
	equal(t, len(o.Changes), 1, "changes")
}
