package ledger

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
)

// What is refused from memory Redis would refuse, too, and no refusal names a shorter wait than
// Redis would name.
//
//rule:limits-and-idempotency/per-account-and-endpoint-an
func TestRefused_NothingThatRedisWouldAdmit(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	l := openTest(t, func(c *core.Config) { c.Now = func() time.Time { return now } })
	fromMemory := 0
	rapid.Check(t, func(rt *rapid.T) {
		bounds := plenty()
		bounds.Cancel = delivery.EndpointLimit{Sustained: delivery.Window{
			Count: rapid.IntRange(1, 4).Draw(rt, "count"), Seconds: rapid.IntRange(1, 4).Draw(rt, "seconds")}}
		account := newAccount(t, l, bounds)

		for range rapid.IntRange(1, 20).Draw(rt, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(rt, "pause in ms")) * time.Millisecond)
			l.setClock(t, now.UnixMicro())
			_, remembered := l.Limits.Refused(account, limits.EndpointCancel, delivery.OrderID{})
			_, decided := l.Limits.Consume(t.Context(), account, limits.EndpointCancel)

			if remembered == nil {
				continue
			}

			fromMemory++
			if decided == nil {
				rt.Fatal("Redis admits what is refused from memory")
			}

			told, left := waitOf(remembered), waitOf(decided)
			if told < left {
				rt.Fatalf("told to wait %s, where Redis says %s", told, left)
			}
		}
	})

	if fromMemory == 0 {
		t.Error("nothing was refused from memory")
	}
}

func waitOf(err error) time.Duration {
	refusal, _ := errors.AsType[*delivery.Error](err)
	return refusal.RetryAfter
}

// A suspension, and what was refused for a limit, is asked about again after a second at the
// latest, and at once where the account was changed.
func TestRefused_IsHeldForASecondAtMost(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	l := openTest(t, func(c *core.Config) { c.Now = func() time.Time { return now } })
	l.setClock(t, now.UnixMicro())
	account := newAccount(t, l, plenty())
	suspend := func(suspended bool) {
		_, err := l.Accounts.Update(t.Context(), account, func(a *delivery.Account) error { a.Suspended = suspended; return nil })
		must(t, err)
	}

	suspend(true)
	_, err := l.Limits.Consume(t.Context(), account, limits.EndpointOrders)
	equal(t, delivery.CodeOf(err), delivery.CodeAccountSuspended, "a suspended account")

	now = now.Add(999 * time.Millisecond)
	_, err = l.Limits.Refused(account, limits.EndpointOrders, delivery.OrderID{})
	equal(t, delivery.CodeOf(err), delivery.CodeAccountSuspended, "within a second")
	_, err = l.Limits.Refused(account, limits.EndpointCancel, delivery.OrderID{})
	must(t, err) // another endpoint

	now = now.Add(time.Millisecond)
	_, err = l.Limits.Refused(account, limits.EndpointOrders, delivery.OrderID{})
	must(t, err)

	_, err = l.Limits.Consume(t.Context(), account, limits.EndpointOrders)
	equal(t, delivery.CodeOf(err), delivery.CodeAccountSuspended, "still suspended")
	suspend(false)
	_, err = l.Limits.Refused(account, limits.EndpointOrders, delivery.OrderID{})
	must(t, err)
}

// A read that came too soon is refused of its order only.
func TestRefused_PolledOrdersAreApart(t *testing.T) {
	s := newEnv(t)
	first, second := s.create(t, "POS-1").ID, s.create(t, "POS-2").ID
	get2(s.Orders.Poll(t.Context(), s.account, first))(t)
	_, _, err := s.Orders.Poll(t.Context(), s.account, first)
	equal(t, delivery.CodeOf(err), delivery.CodeRateLimited, "a second read")

	_, err = s.Limits.Refused(s.account, limits.EndpointOrderStatus, first)
	equal(t, delivery.CodeOf(err), delivery.CodeRateLimited, "a third read")

	_, err = s.Limits.Refused(s.account, limits.EndpointOrderStatus, second)
	must(t, err)
}

func TestRefused_OnlyLimitsAndSuspensionsAreKept(t *testing.T) {
	now := time.Now()
	for code, isKept := range map[delivery.Code]bool{
		delivery.CodeRateLimited: true, delivery.CodeAccountSuspended: true,
		delivery.CodeOrderNotFound: false, delivery.CodeDuplicateOrder: false, delivery.CodeServiceUnavailable: false,
	} {
		var r limits.RefusedRequests
		key := limits.RefusedRequest{Account: delivery.NewAccountID()}

		r.Keep(key, &delivery.Error{Code: code, RetryAfter: time.Minute}, limits.Quota{}, now, now)

		if _, err := r.Find(key, now); (err != nil) != isKept {
			t.Errorf("%s is kept: %t, want %t", code, err != nil, isKept)
		}
	}
}

// Callers who are refused again and again take a bounded place in memory.
func TestRefused_RemembersABoundedNumber(t *testing.T) {
	var r limits.RefusedRequests
	now := time.Now()
	refusal := delivery.Refuse(delivery.CodeAccountSuspended, "suspended")
	for range 3 * limits.RefusalShards * limits.RefusalsKept {
		r.Keep(limits.RefusedRequest{Account: delivery.NewAccountID()}, refusal, limits.Quota{}, now, now)
	}

	kept := 0
	for i := range r {
		kept += len(r[i].Kept)
	}

	if kept > limits.RefusalShards*limits.RefusalsKept {
		t.Errorf("%d refusals are remembered, want at most %d", kept, limits.RefusalShards*limits.RefusalsKept)
	}
}
