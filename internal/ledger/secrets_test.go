package ledger

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
)

// secretsEnv are the client secrets of an account or of a fleet; a secret is called
// by its hash's first byte.
type secretsEnv struct {
	*Ledger
	now     time.Time
	rotate  func(n byte, revokeOld bool) error
	right   func(n byte) bool
	subject [16]byte
}

func newSecretsEnv(t *testing.T, kind string) *secretsEnv {
	e := &secretsEnv{now: time.UnixMilli(1_795_000_000_500)}
	e.Ledger = openTest(t, func(c *core.Config) { c.Now = func() time.Time { return e.now } })
	account, fleet := newAccount(t, e.Ledger, plenty()), newFleet(t, e.Ledger)
	e.subject = account
	e.rotate = func(n byte, revokeOld bool) error {
		return errOf(e.Accounts.RotateSecret(t.Context(), account, [32]byte{n}, 24*time.Hour, revokeOld))
	}
	e.right = func(n byte) bool {
		_, _, err := e.Limits.CountToken(t.Context(), account, [32]byte{n})
		return err == nil
	}

	if kind == "account" {
		return e
	}

	e.subject = fleet.ID
	e.rotate = func(n byte, revokeOld bool) error {
		return errOf(e.Fleets.RotateSecret(t.Context(), fleet.ID, [32]byte{n}, 24*time.Hour, revokeOld))
	}
	e.right = func(n byte) bool {
		must(t, e.Fleets.Load(t.Context()))
		return e.Fleets.VerifySecret(fleet.ID, [32]byte{n}, e.now)
	}

	return e
}

// at sets the clocks to a time after the start.
func (e *secretsEnv) at(t *testing.T, after time.Duration) {
	e.now = time.UnixMilli(1_795_000_000_500).Add(after)
	e.setClock(t, e.now.UnixMicro())
}

func (e *secretsEnv) want(t *testing.T, want ...byte) {
	t.Helper()
	var got []byte
	for n := byte(10); n < 20; n++ {
		if e.right(n) {
			got = append(got, n)
		}
	}

	check(t, bytes.Equal(got, want), "%v work, want %v", got, want)
}

func forAccountAndFleet(t *testing.T, test func(*testing.T, *secretsEnv)) {
	for _, kind := range []string{"account", "fleet"} {
		t.Run(kind, func(t *testing.T) {
			e := newSecretsEnv(t, kind)
			e.at(t, 0)
			must(t, e.rotate(10, true))
			test(t, e)
		})
	}
}

//rule:admin-api/post-accounts-id-credentials admin-api/post-fleets-id-credentials
func TestRotateSecret_EachWorksUntilItsOwnTime(t *testing.T) {
	forAccountAndFleet(t, func(t *testing.T, e *secretsEnv) {
		for n := range byte(core.MostEarlier) {
			e.at(t, time.Duration(n)*time.Hour)
			must(t, e.rotate(11+n, false))
		}

		e.want(t, 10, 11, 12, 13, 14)
		wantCode(t, e.rotate(15, false), delivery.CodeTooManySecrets)
		must(t, e.rotate(12, false)) // it was issued before, and its answer was lost
		e.want(t, 10, 11, 12, 13, 14)
		e.at(t, 24*time.Hour-time.Millisecond)
		e.want(t, 10, 11, 12, 13, 14)
		e.at(t, 24*time.Hour)
		e.want(t, 11, 12, 13, 14)
		must(t, e.rotate(15, false))
		e.want(t, 11, 12, 13, 14, 15)
		e.at(t, 27*time.Hour)
		e.want(t, 14, 15)
		must(t, e.rotate(16, true))
		e.want(t, 16)
	})
}

func TestRotateSecret_SeveralAtOnceAllWork(t *testing.T) {
	forAccountAndFleet(t, func(t *testing.T, e *secretsEnv) {
		var all sync.WaitGroup
		for n := range byte(core.MostEarlier) {
			all.Go(func() { equal(t, e.rotate(11+n, false), nil, "rotation") })
		}
		all.Wait()
		e.want(t, 10, 11, 12, 13, 14)
	})
}

// Tokens of the second of a revocation, and of all seconds before, are good no more;
// one that is issued after it says so.
func TestRevoke_TokensOfTheSecondAndBefore(t *testing.T) {
	forAccountAndFleet(t, func(t *testing.T, e *secretsEnv) {
		other := openTest(t, sameDatabase(e.Ledger))
		from := func(l *Ledger) int64 {
			must(t, l.Fleets.Load(t.Context()))
			return l.Fleets.Snapshot().NotBefore(e.subject)
		}

		second := e.now.Unix() + 1 // gateways' clocks may be half a second ahead
		check(t, from(e.Ledger) == second+1 && from(other) == second+1, "good from %d and %d on, in second %d", from(e.Ledger), from(other), second)
		e.at(t, time.Minute)
		must(t, e.rotate(11, false))
		equal(t, from(other), second+1, "after a rotation without revokeOld, good from")
		must(t, e.rotate(12, true))
		must(t, e.rotate(12, true)) // the first answer was lost
		equal(t, from(other), second+61, "after the second revocation, good from")
		// A revocation is kept for two hours: one for the tokens, and one for clocks that are wrong.
		e.at(t, 2*time.Hour)
		get(e.Fleets.RotateSecret(t.Context(), newFleet(t, e.Ledger).ID, [32]byte{1}, 0, true))(t)
		equal(t, from(other), second+61, "two hours later, good from")
		// What no token can be of any more is forgotten with the next revocation.
		e.at(t, 4*time.Hour)
		get(e.Fleets.RotateSecret(t.Context(), newFleet(t, e.Ledger).ID, [32]byte{1}, 0, true))(t)
		equal(t, from(other), 0, "three hours later, good from")
	})
}

func TestCountToken_TellsFromWhenOnTokensAreGood(t *testing.T) {
	e := newSecretsEnv(t, "account")
	e.at(t, 0)
	_, from := get2(e.Limits.CountToken(t.Context(), e.subject, testHash))(t)
	equal(t, from, limits.Known{}, "never revoked")
	must(t, e.rotate(10, true))
	_, from = get2(e.Limits.CountToken(t.Context(), e.subject, [32]byte{10}))(t)
	equal(t, from, limits.Known{NotBefore: e.now.Unix() + 2}, "revoked")
}

// Of a webhook every secret signs until its own time, and the spec's header stays
// with the one that the receiver is known to have.
//
//rule:admin-api/post-accounts-id-webhook-rotate
func TestRotateWebhookSecret_EachSignsUntilItsOwnTime(t *testing.T) {
	s := newWebhookEnv(t)
	issued := []string{s.endpoint(t).Secret}
	rotate := func() {
		issued = append(issued, get(s.Webhooks.RotateSecret(t.Context(), s.account, false))(t))
	}
	signing := func(want ...int) {
		t.Helper()
		var got []int
		for _, secret := range s.endpoint(t).Secrets(s.now()) {
			got = append(got, slices.Index(issued, secret))
		}
		check(t, slices.Equal(got, want), "%v sign, want %v", got, want)
	}

	for range 3 {
		rotate()
		s.pass(t, time.Hour)
	}

	signing(3, 0, 1, 2) // the spec's header is of the second one here
	must(t, s.core.Redis.HSet(t.Context(), s.key(core.KindEndpoint), "proven", "1").Err())
	rotate()
	signing(4, 3, 0, 1, 2)
	wantCode(t, errOf(s.Webhooks.RotateSecret(t.Context(), s.account, false)), delivery.CodeTooManySecrets)
	s.pass(t, 21*time.Hour)
	signing(4, 3, 1, 2)
	rotate()
	signing(5, 3, 1, 2, 4)
	s.pass(t, 3*time.Hour)
	signing(5, 4) // the one that it was known to have ended with its day
	issued = append(issued, get(s.Webhooks.RotateSecret(t.Context(), s.account, true))(t))
	signing(6)
}
