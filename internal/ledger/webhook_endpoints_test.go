package ledger

import (
	"context"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
)

// beside is another account with a receiver, in the same ledger.
func (s *env) beside(t *testing.T) *env {
	t.Helper()
	other := &env{Ledger: s.Ledger, account: newAccount(t, s.Ledger, plenty()), fleet: s.fleet, ms: s.ms, breaker: s.breaker}
	other.register(t)
	return other
}

func TestReceivers_NothingStaleIsUsed(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	gateway := openTest(t, sameDatabase(s.Ledger), func(c *Config) { c.Now = s.now })
	next := func() *Receiver {
		t.Helper()
		s.publish(t, 1)
		d := s.take(t, 1)[0]
		s.ends(t, accepts, d)
		return d.Receiver
	}
	first := next()
	again := next()
	check(t, again == first, "read again, though nothing has changed")
	get2(gateway.Webhooks.SetURL(t.Context(), s.account, "https://second.example/hook"))(t)
	if r := next(); r.URL != "https://second.example/hook" || r.Secret != first.Secret {
		t.Errorf("after a changed URL: %+v", r)
	}
	secret := get(gateway.Webhooks.RotateSecret(t.Context(), s.account, false))(t)
	rotated := next()
	check(t, rotated.Secret == secret && rotated.Earlier[0].Secret == first.Secret && !rotated.Proven, "after a rotation: %+v", rotated)
	// The previous secret ends while the receiver is remembered.
	equal(t, rotated.Secrets(s.now()), []string{secret, first.Secret}, "secrets")
	s.pass(t, secretOverlap)
	late := next()
	check(t, late == rotated, "read again, though nothing has changed")
	equal(t, late.Secrets(s.now()), []string{secret}, "secrets when the previous one has ended")
	must(t, gateway.Webhooks.Delete(t.Context(), s.account))
	left := s.rdb.HMGet(t.Context(), s.key(kindEndpoint), "url", "secret", "old_secret").Val()
	check(t, slices.Equal(left, []any{nil, nil, nil}), "a deleted endpoint still has %q", left)
	_, issued := get2(gateway.Webhooks.SetURL(t.Context(), s.account, "https://third.example/hook"))(t)
	if r := next(); r.URL != "https://third.example/hook" || r.Secret != issued || issued == secret || r.Earlier != nil || !r.Proven {
		t.Errorf("after a deletion and a new registration: %+v, issued %s", r, issued)
	}
}

// What waited when a receiver was removed is recorded as not sent, and does not
// come back with the next one: whatever it waited for, whoever is in between.
//
//rule:webhooks/without-a-registered-url-events
func TestDelete_WhatWaitedIsNotSent(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	s.moved(t, delivery.Assigned, delivery.PickingUp, delivery.PickedUp) // two wait behind the first
	s.publish(t, 5+2*dropPage)
	ds := s.take(t, 6)
	s.ends(t, accepts, ds[0])
	s.ends(t, failsFor(time.Hour), ds[1:3]...)
	all := 3 + 5 + 2*dropPage
	must(t, s.Webhooks.Delete(t.Context(), s.account))
	s.lease(t, 0)
	s.ends(t, accepts, ds[3]) // it was on its way
	s.ends(t, failsFor(time.Hour), ds[4])
	e, _ := get2(s.Webhooks.SetURL(t.Context(), s.account, "https://second.example/hook"))(t)
	check(t, e.Backlog == 0 && e.Delivered == 2 && int(e.NotSent) == all-2, "%+v of %d events", e, all)
	s.lease(t, 0)
	s.pass(t, 2*time.Hour)
	s.lease(t, 0)
	seen := make(map[string]int)
	for _, a := range s.outcomes(t) {
		seen[a.EventID]++
	}
	equal(t, len(seen), all, "events with an outcome")
	equal(t, len(s.outcomes(t)), all, "outcomes")
	for _, kind := range []byte{kindQueue, kindRetries, kindLeases, kindAttempts, kindWaiting} {
		equal(t, s.rdb.Exists(t.Context(), s.key(kind)).Val(), 0, "key "+string(rune(kind)))
	}
	s.publish(t, 1)
	s.ends(t, accepts, s.one(t))
}

func TestReceivers_ProofIsSeenAtOnce(t *testing.T) {
	s := newWebhookEnv(t, 1)
	secret := get(s.Webhooks.RotateSecret(t.Context(), s.account, false))(t)
	id := get(s.Webhooks.QueueTest(t.Context(), s.account, s.now()))(t)
	s.pump(t, 1)
	test := s.one(t)
	require(t, !test.Receiver.Proven && test.Receiver.Secret == secret, "receiver %+v", test.Receiver)
	check(t, test.EventID == id && test.Type == delivery.WebhookTest && strings.Contains(string(test.Data), s.account.String()), "test event %+v", test)
	s.publish(t, 3)
	more := s.recordMore(t, test, accepts).Deliveries
	require(t, len(more) == 1 && more[0].Receiver.Proven && more[0].Receiver.Version == s.endpoint(t).Version, "handed out with the proof: %+v", more[0].Receiver)
	s.ends(t, failsFor(time.Hour), more...)
	e := s.endpoint(t)
	check(t, e.BreakerOpen && e.State == EndpointFailing && e.Proven, "its failure did not count: %+v", e)
}

func TestReceivers_ManyAreRemembered(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	vendors := []*env{s, s.beside(t), s.beside(t)}
	for _, one := range vendors {
		one.publish(t, 1)
	}
	s.receivers.last = make(map[delivery.AccountID]*Receiver)
	for len(s.receivers.last) < receiversKept-1 {
		s.receivers.last[delivery.NewAccountID()] = &Receiver{}
	}
	ds := s.lease(t, len(vendors))
	for _, d := range ds {
		check(t, d.Receiver != nil && d.Receiver.URL != "", "receiver %+v", d.Receiver)
	}
	n := len(s.receivers.last)
	check(t, n <= receiversKept, "%d receivers are remembered", n)
}

// cutAfter is a connection that breaks after the first reply of a pipeline.
type cutAfter struct{ cuts int }

func (c *cutAfter) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (c *cutAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (c *cutAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if c.cuts == 0 || len(cmds) < 2 || cmds[0].Name() != "get" {
			return err
		}
		c.cuts--
		for _, cmd := range cmds[1:] {
			cmd.SetErr(io.ErrUnexpectedEOF)
			if values, ok := cmd.(*redis.MapStringStringCmd); ok {
				values.SetVal(nil)
			}
		}
		return cmds[0].Err()
	}
}

// A connection that broke half-way means neither that an endpoint has no URL nor
// that an event has no body.
func TestReceivers_BrokenReadSettlesNothing(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	other := s.beside(t)
	s.publish(t, 1)
	s.ends(t, accepts, s.one(t)) // its receiver is remembered
	s.publish(t, 1)
	bodies := get(s.rdb.Keys(t.Context(), s.partitions[0].prefix+"n*").Result())(t)
	must(t, s.rdb.Del(t.Context(), bodies...).Err()) // the first reply will say that there is none
	s.pass(t, time.Millisecond)
	other.publish(t, 2)
	hook := &cutAfter{cuts: 1}
	s.rdb.AddHook(hook)
	ds, _, err := s.Queue.Lease(t.Context(), 0, grant(10))
	require(t, hook.cuts == 0 && len(ds) == 0, "%d cuts left, %d leased, %v", hook.cuts, len(ds), err)
	got := other.outcomes(t)
	check(t, len(got) == 0, "settled after a broken read: %+v", got)
	s.pass(t, lease)
	if ds := s.lease(t, 2); ds[0].Receiver.URL == "" {
		t.Errorf("receiver %+v", ds[0].Receiver)
	}
}

func TestSecrets_OldKeysStillOpen(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	first := s.endpoint(t).Secret
	with := func(current string, ids ...string) *Ledger {
		keys := SecretKeys{Current: current, Keys: make(map[string][]byte)}
		for _, id := range ids {
			keys.Keys[id] = []byte(strings.Repeat(id, 16))
		}
		keys.Keys["k1"] = testSecrets.Keys["k1"]
		return openTest(t, sameDatabase(s.Ledger), func(c *Config) { c.Secrets, c.Now = keys, s.now })
	}
	renewed := with("k2", "k2")
	e := get(renewed.Webhooks.Endpoint(t.Context(), s.account))(t)
	check(t, e.Secret == first, "secret %s, want %s", e.Secret, first)
	second := get(renewed.Webhooks.RotateSecret(t.Context(), s.account, false))(t)
	sealed := s.rdb.HMGet(t.Context(), s.key(kindEndpoint), "secret", "old_secret").Val()
	check(t, strings.HasPrefix(text(sealed[0]), "k2:") && strings.HasPrefix(text(sealed[1]), "k1:"), "sealed with %.3q and %.3q", sealed[0], sealed[1])
	e = get(renewed.Webhooks.Endpoint(t.Context(), s.account))(t)
	check(t, e.Secret == second && e.Earlier[0].Secret == first, "endpoint %+v", e)
	// A process that has not been given the new key yet sends nothing to that
	// account, serves the others, and loses nothing.
	other := s.beside(t)
	s.publish(t, 1)
	other.publish(t, 1)
	ds := s.lease(t, 1)
	require(t, ds[0].Account == other.account, "leased for %s", ds[0].Account)
	s.pass(t, lease)
	ds, _ = get2(renewed.Queue.Lease(t.Context(), 0, grant(10)))(t)
	check(t, len(ds) == 2 && ds[0].Attempt == 1 && len(s.outcomes(t)) == 0, "%d events leased", len(ds))
}

func TestEndpoints_AreListedWithoutTheirKey(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	stranger := openTest(t, sameDatabase(s.Ledger), func(c *Config) {
		c.Secrets = SecretKeys{Current: "k2", Keys: map[string][]byte{"k2": make([]byte, 32)}}
	})
	other := newAccount(t, stranger, plenty())
	_, issued := get2(stranger.Webhooks.SetURL(t.Context(), other, "https://other.example/hook"))(t)
	for _, l := range []*Ledger{s.Ledger, stranger} {
		all := get(l.Webhooks.Endpoints(t.Context()))(t)
		require(t, len(all) == 2, "%d endpoints", len(all))
		for _, e := range all {
			ours := (l == stranger) == (e.Account == other) // the process has its key
			check(t, e.URL != "" && (e.Secret != "") == ours && (!ours || e.Account != other || e.Secret == issued), "endpoint %+v", e)
		}
	}
}

//rule:admin-api/post-accounts-id-webhook-rotate decisions/webhook-url-and-secret
func TestWebhook_SecretsRotateAndAreSealed(t *testing.T) {
	s := newUnregistered(t, breakerAt)
	wantCode(t, errOf(s.Webhooks.RotateSecret(t.Context(), s.account, false)), delivery.CodeWebhookNotConfigured)
	first := s.register(t)
	same, issued := get2(s.Webhooks.SetURL(t.Context(), s.account, "https://other.example/hook"))(t)
	check(t, issued == "" && same.Secret == first.Secret && same.URL == "https://other.example/hook" && same.Version > first.Version,
		"changed URL: %+v, issued %q", same, issued)
	secret := get(s.Webhooks.RotateSecret(t.Context(), s.account, false))(t)
	e := s.endpoint(t)
	check(t, e.Secret == secret && reflect.DeepEqual(e.Earlier, []EarlierSecret{{first.Secret, s.now().Add(secretOverlap)}}) && !e.Proven, "rotated: %+v", e)
	raw := get(s.rdb.HGetAll(t.Context(), s.key(kindEndpoint)).Result())(t)
	for field, value := range raw {
		check(t, !strings.Contains(value, "whsec_"), "field %s holds a secret in clear", field)
	}
	// Another key opens nothing, and the right one nothing for another account.
	stranger := openTest(t, func(c *Config) {
		c.Secrets = SecretKeys{Current: "k2", Keys: map[string][]byte{"k2": make([]byte, 32)}}
	})
	check(t, errOf(stranger.secrets.open(s.account[:], raw["secret"])) != nil, "opened without the key")
	other := delivery.NewAccountID()
	check(t, errOf(s.secrets.open(other[:], raw["secret"])) != nil, "opened for another account")
}

func TestWebhookEndpoints_WithoutKeysAllButTheSecrets(t *testing.T) {
	s := newWebhookEnv(t, breakerAt)
	get(s.Webhooks.RotateSecret(t.Context(), s.account, false))(t)
	s.publish(t, 1)
	logged := new(strings.Builder)
	panel := openTest(t, sameDatabase(s.Ledger), func(c *Config) {
		c.Now, c.Secrets, c.Log = s.now, SecretKeys{}, slog.New(slog.NewTextHandler(logged, nil))
	})
	want := get(s.Webhooks.Endpoint(t.Context(), s.account))(t)
	require(t, want.Secret != "" && len(want.Earlier) == 1, "%+v", want)
	want.Secret, want.Earlier[0].Secret = "", ""
	one := get(panel.Webhooks.Endpoint(t.Context(), s.account))(t)
	all := get(panel.Webhooks.Endpoints(t.Context()))(t)
	check(t, reflect.DeepEqual(one, want) && len(all) == 1 && reflect.DeepEqual(all[0], want), "without keys %+v and %+v, want %+v", one, all[0], want)
	check(t, logged.Len() <= 0, "it complains: %s", logged)
	check(t, errOf(panel.Webhooks.SetURL(t.Context(), s.account, "https://other.example/hook")) != nil, "a secret is issued without a key")
}

func TestSeverity_RanksTheStates(t *testing.T) {
	for state, want := range map[EndpointState]int{
		EndpointHealthy: 0, EndpointFailing: 1, EndpointGone: 2, EndpointUnreachable: 3, "": -1, "Healthy": -1, endpointProven: -1,
	} {
		got := state.Severity()
		check(t, got == want, "%q: %d, want %d", state, got, want)
	}
}

func TestWorstFirst_ByStateThenBreakerThenBacklogThenAge(t *testing.T) {
	since := time.UnixMilli(1_795_000_000_000)
	want := []*WebhookEndpoint{ // in this order
		{State: EndpointUnreachable},
		{State: EndpointGone, BreakerOpen: true},
		{State: EndpointGone, Backlog: 9, StateSince: since},
		{State: EndpointGone, Backlog: 3, StateSince: since},
		{State: EndpointGone, Backlog: 3, StateSince: since.Add(time.Second)},
		{State: EndpointFailing, Backlog: 100},
		{State: EndpointHealthy, Account: delivery.AccountID{1}},
		{State: EndpointHealthy, Account: delivery.AccountID{2}},
	}
	rapid.Check(t, func(t *rapid.T) {
		got := rapid.Permutation(want).Draw(t, "list")
		if slices.SortFunc(got, WorstFirst); !slices.Equal(got, want) {
			t.Fatalf("%+v", got)
		}
	})
}

func TestRotateFleetSecret_OldOneWorksUntilItsTimeIsOver(t *testing.T) {
	l := openTest(t)
	f := newFleet(t, l)
	now := time.Now()
	until := now.Add(24 * time.Hour)
	second, third := [32]byte{2}, [32]byte{3}
	verify := func(hash [32]byte, at time.Time, want bool) {
		t.Helper()
		must(t, l.Fleets.Load(t.Context()))
		got := l.Fleets.VerifySecret(f.ID, hash, at)
		check(t, got == want, "secret %d at %s: %t", hash[0], at.Sub(now), got)
	}
	for range 2 { // the second time nothing changes
		must(t, l.Fleets.RotateSecret(t.Context(), f.ID, second, until, false))
		verify(second, now, true)
		verify(testHash, until.Add(-time.Second), true)
		verify(testHash, until.Add(time.Second), false)
	}
	// A change of the fleet keeps both.
	get(l.Fleets.Update(t.Context(), f.ID, func(f *delivery.Fleet) error { f.Name = "Yeni"; return nil }))(t)
	verify(second, now, true)
	verify(testHash, now, true)
	must(t, l.Fleets.RotateSecret(t.Context(), f.ID, third, until, false))
	verify(testHash, now, true)
	verify(second, now, true)
	verify([32]byte{}, now, false)
	wantCode(t, l.Fleets.RotateSecret(t.Context(), delivery.NewFleetID(), third, until, false), delivery.CodeFleetNotFound)
}

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
		_, issued := get2(old.Webhooks.SetURL(t.Context(), id, "https://example.com/"))(t)
		secrets[id] = issued
	}
	get(old.Webhooks.RotateSecret(t.Context(), accounts[1], false))(t)
	rotated := get(old.Webhooks.RotateSecret(t.Context(), accounts[1], false))(t)

	both := openTest(t, again, with("b", "a", "b"))
	for _, want := range []int{4, 0} { // three of them are one account's; then there is nothing left
		equal(t, get(both.Webhooks.Reseal(t.Context()))(t), want, "sealed again")
	}
	alone := openTest(t, again, with("b", "b"))
	first := get(alone.Webhooks.Endpoint(t.Context(), accounts[0]))(t)
	second := get(alone.Webhooks.Endpoint(t.Context(), accounts[1]))(t)
	check(t, first.Secret == secrets[accounts[0]] && second.Secret == rotated && second.Earlier[0].Secret == secrets[accounts[1]],
		"secrets are others after they were sealed again")

	// What cannot be opened is said, and left alone.
	strange := openTest(t, again, with("c", "c"))
	if n, err := strange.Webhooks.Reseal(t.Context()); err == nil || n != 0 {
		t.Errorf("sealed %d secrets again without the key that opens them: %v", n, err)
	}
	equal(t, get(alone.Webhooks.Reseal(t.Context()))(t), 0, "after the vain try secrets were to be sealed")
}
