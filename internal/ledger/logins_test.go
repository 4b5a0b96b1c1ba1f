package ledger

import (
	"strconv"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
)

func TestLogins_RememberABoundedNumber(t *testing.T) {
	now := time.UnixMilli(1_795_000_000_000)
	l := openTest(t, func(c *core.Config) { c.Now = func() time.Time { return now } })
	untilRefused(t, 10, 6*time.Second, func(int) error {
		equal(t, l.Limits.LoginWait("ven_1", "192.0.2.1"), 0, "before the first refusal the wait")
		return l.Limits.CountFailedLogin(t.Context(), "ven_1", "192.0.2.1")
	})

	wait := l.Limits.LoginWait("ven_1", "192.0.2.1")
	check(t, wait > 0 && l.Limits.LoginWait("ven_1", "192.0.2.2") <= 0 && l.Limits.LoginWait("ven_2", "192.0.2.1") <= 0, "wait %s", wait)
	now = now.Add(wait)
	check(t, l.Limits.LoginWait("ven_1", "192.0.2.1") <= 0, "it goes on for longer than it said")
	for i := range 2*limits.ThrottledKept + 1 {
		core.Remember(&l.Limits.Logins.Throttled, limits.ThrottledKept, strconv.Itoa(i), now.Add(time.Minute))
	}

	check(t, len(l.Limits.Logins.Throttled) <= limits.ThrottledKept, "%d are remembered", len(l.Limits.Logins.Throttled))
	l.Limits.Logins.Secrets = map[delivery.AccountID]*limits.KnownSecrets{}
	for len(l.Limits.Logins.Secrets) < limits.SecretsKept {
		l.Limits.Logins.Secrets[delivery.NewAccountID()] = &limits.KnownSecrets{}
	}

	id := newAccount(t, l, plenty())
	check(t, get(l.Limits.KnowsAccountSecret(t.Context(), id, testHash))(t), "a right secret is not known")
	check(t, len(l.Limits.Logins.Secrets) <= limits.SecretsKept, "of %d accounts secrets are remembered", len(l.Limits.Logins.Secrets))
}

// What is known of an account is read again before a change is a second old.
func TestKnowsAccountSecret_SeesChangesWithinASecond(t *testing.T) {
	check(t, limits.AccountsKnown <= time.Second && limits.SecretsKnown < time.Second, "known for %s and %s", limits.AccountsKnown, limits.SecretsKnown)
	e := newSecretsEnv(t, "account")
	e.at(t, 0)
	knows := func(n byte) bool {
		return get(e.Limits.KnowsAccountSecret(t.Context(), e.subject, [32]byte{n}))(t)
	}
	must(t, e.rotate(10, true))
	check(t, knows(10) && !knows(11), "known: %t, %t", knows(10), knows(11))
	must(t, e.rotate(11, true))
	e.at(t, limits.SecretsKnown)
	check(t, !knows(10) && knows(11), "a rotation is not seen")
	e.at(t, limits.AccountsKnown)
	other := newAccount(t, e.Ledger, plenty())
	e.at(t, 2*limits.AccountsKnown)
	check(t, get(e.Limits.KnowsAccountSecret(t.Context(), other, testHash))(t), "a new account is not seen")
	check(t, !get(e.Limits.KnowsAccountSecret(t.Context(), delivery.NewAccountID(), testHash))(t), "an account that is none is known")
}

// HasAccountSecret sees a change at once, and what no account has pushes nothing out of memory.
func TestHasAccountSecret_SeesEveryChangeAtOnce(t *testing.T) {
	e := newSecretsEnv(t, "account")
	e.at(t, 0)
	has := func(account delivery.AccountID, n byte) bool {
		return get(e.Limits.HasAccountSecret(t.Context(), account, [32]byte{n}))(t)
	}
	for n := range byte(3) {
		must(t, e.rotate(10+n, true))
		check(t, has(e.subject, 10+n) && !has(e.subject, 9+n), "secret %d is not the only one", n)
	}

	remembered := len(e.Limits.Logins.Secrets)
	check(t, !has(delivery.NewAccountID(), 12), "an account that is none has a secret")
	equal(t, len(e.Limits.Logins.Secrets), remembered, "after a guess the accounts that are remembered")
}

// Who has shown no right secret, and a token of no account, adds to nobody's requests.
func TestActivity_CountsNothingForStrangers(t *testing.T) {
	l := openTest(t)
	account := newAccount(t, l, plenty())
	_, _, err := l.Limits.CountToken(t.Context(), account, [32]byte{1})
	wantCode(t, err, delivery.CodeInvalidCredentials)
	_, err = l.Limits.Consume(t.Context(), delivery.NewAccountID(), limits.EndpointOrders)
	wantCode(t, err, delivery.CodeTokenInvalid)

	accounts, _ := l.Limits.Counts.Drain()
	equal(t, len(accounts), 0, "accounts with requests")
}
