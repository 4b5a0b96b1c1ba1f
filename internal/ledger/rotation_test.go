package ledger

import (
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

func TestRotateFleetSecret_OldOneWorksUntilItsTimeIsOver(t *testing.T) {
	l := openTest(t)
	f := newFleet(t, l)
	now := time.Now()
	until := now.Add(24 * time.Hour)
	second, third := [32]byte{2}, [32]byte{3}
	verify := func(hash [32]byte, at time.Time, want bool) {
		t.Helper()
		must(t, l.LoadFleets(t.Context()))
		got := l.VerifyFleetSecret(f.ID, hash, at)
		check(t, got == want, "secret %d at %s: %t", hash[0], at.Sub(now), got)
	}
	for range 2 { // the second time nothing changes
		must(t, l.RotateFleetSecret(t.Context(), f.ID, second, until))
		verify(second, now, true)
		verify(testHash, until.Add(-time.Second), true)
		verify(testHash, until.Add(time.Second), false)
	}
	// A change of the fleet keeps both.
	get(l.UpdateFleet(t.Context(), f.ID, func(f *delivery.Fleet) error { f.Name = "Yeni"; return nil }))(t)
	verify(second, now, true)
	verify(testHash, now, true)
	must(t, l.RotateFleetSecret(t.Context(), f.ID, third, until))
	verify(testHash, now, false)
	verify(second, now, true)
	verify([32]byte{}, now, false)
	wantCode(t, l.RotateFleetSecret(t.Context(), delivery.NewFleetID(), third, until), delivery.CodeFleetNotFound)
}

// After Reseal the older key can be taken out, whatever it had sealed.
func TestReseal_OlderKeyIsNeededNoMore(t *testing.T) {
	with := func(current string, ids ...string) func(*Config) {
		keys := SecretKeys{Current: current, Keys: map[string][]byte{}}
		for _, id := range ids {
			keys.Keys[id] = []byte(strings.Repeat(id, 32))
		}
		return func(c *Config) { c.Secrets = keys }
	}
	old := openTest(t, with("a", "a"))
	again := sameDatabase(old)
	accounts := []delivery.AccountID{newAccount(t, old, plenty()), newAccount(t, old, plenty()), newAccount(t, old, plenty())}
	secrets := map[delivery.AccountID]string{}
	for _, id := range accounts[:2] {
		_, issued := get2(old.SetWebhookURL(t.Context(), id, "https://example.com/"))(t)
		secrets[id] = issued
	}
	rotated := get(old.RotateWebhookSecret(t.Context(), accounts[1]))(t)

	both := openTest(t, again, with("b", "a", "b"))
	for _, want := range []int{3, 0} { // two of them are one account's; then there is nothing left
		equal(t, get(both.Reseal(t.Context()))(t), want, "sealed anew")
	}
	alone := openTest(t, again, with("b", "b"))
	first := get(alone.WebhookEndpoint(t.Context(), accounts[0]))(t)
	second := get(alone.WebhookEndpoint(t.Context(), accounts[1]))(t)
	check(t, first.Secret == secrets[accounts[0]] && second.Secret == rotated && second.PreviousSecret == secrets[accounts[1]],
		"secrets are others after they were sealed anew")

	// What cannot be opened is said, and left alone.
	strange := openTest(t, again, with("c", "c"))
	if n, err := strange.Reseal(t.Context()); err == nil || n != 0 {
		t.Errorf("sealed %d secrets anew without the key that opens them: %v", n, err)
	}
	equal(t, get(alone.Reseal(t.Context()))(t), 0, "after the vain try secrets were to be sealed")
}
