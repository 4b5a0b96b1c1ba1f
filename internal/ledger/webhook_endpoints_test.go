package ledger

import (
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/ledger/webhooks"
)

// writes calls the script as the gateway does, and returns its answer, of a refusal the code.
func (s *env) writes(t *testing.T, mode string, args ...any) string {
	t.Helper()
	answer, err := s.Webhooks.WriteEndpoint(t.Context(), s.account, mode, args...)
	if refusal, ok := err.(*delivery.Error); ok {
		return string(refusal.Code)
	}
	must(t, err)
	return answer
}

func TestWriteEndpoint_AnswersAndNotes(t *testing.T) {
	const one, two = "https://one.example/", "https://two.example/"
	until := time.Now().Add(time.Hour).UnixMilli()
	for _, c := range []struct {
		name  string
		calls [][]any // before the last one
		last  []any
		want  string
		notes bool // of the last one
		raise int64
	}{
		{"the first URL", nil, []any{"set", one, "s1"}, "issued", true, 1},
		{"the first URL, repeated", [][]any{{"set", one, "s1"}}, []any{"set", one, "s1"}, "issued", true, 0},
		{"another URL", [][]any{{"set", one, "s1"}}, []any{"set", two, "s2"}, "written", true, 1},
		{"a URL after a deletion", [][]any{{"set", one, "s1"}, {"delete"}}, []any{"set", one, "s2"}, "issued", true, 1},
		{"a rotation", [][]any{{"set", one, "s1"}}, []any{"rotate", "0", "s2", until}, "written", true, 1},
		{"a rotation, repeated", [][]any{{"set", one, "s1"}, {"rotate", "0", "s2", until}}, []any{"rotate", "0", "s2", until}, "written", true, 0},
		{"a rotation too many", [][]any{{"set", one, "s1"}, {"rotate", "0", "s2", until}, {"rotate", "0", "s3", until}, {"rotate", "0", "s4", until}, {"rotate", "0", "s5", until}},
			[]any{"rotate", "0", "s6", until}, string(delivery.CodeTooManySecrets), false, 0},
		{"limits", [][]any{{"set", one, "s1"}}, []any{"limit", "7", ""}, "written", true, 0},
		{"a probe", [][]any{{"set", one, "s1"}}, []any{"probe"}, "written", true, 0},
		{"a deletion", [][]any{{"set", one, "s1"}}, []any{"delete"}, "written", true, 1},
		{"a deletion, repeated", [][]any{{"set", one, "s1"}, {"delete"}}, []any{"delete"}, string(delivery.CodeWebhookNotConfigured), false, 0},
		{"a rotation of nothing", nil, []any{"rotate", "0", "s2", until}, string(delivery.CodeWebhookNotConfigured), false, 0},
		{"limits of nothing", nil, []any{"limit", "7", ""}, string(delivery.CodeWebhookNotConfigured), false, 0},
		{"a probe of nothing", nil, []any{"probe"}, string(delivery.CodeWebhookNotConfigured), false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newUnregistered(t)
			for _, call := range c.calls {
				s.writes(t, call[0].(string), call[1:]...)
			}

			version := func() int64 {
				return core.ParseNumber(s.core.Redis.HGet(t.Context(), s.key(core.KindEndpoint), "version").Val())
			}
			notes, before := s.noted(t), version()
			equal(t, s.writes(t, c.last[0].(string), c.last[1:]...), c.want, "answer")
			check(t, s.noted(t)-notes == int(core.FlagText(c.notes)[0]-'0') && version()-before == c.raise, "%d notes, version %d higher", s.noted(t)-notes, version()-before)
		})
	}
}

// A new URL forgets what was known of the old receiver; the same one says that it is repaired.
func TestWriteEndpoint_GateAndProbe(t *testing.T) {
	until := time.Now().Add(time.Hour).UnixMilli()
	for _, c := range []struct {
		name        string
		call        []any
		open, probe bool
	}{
		{"the same URL", []any{"set", "https://vendor.example/hook", "s"}, true, true},
		{"another URL", []any{"set", "https://other.example/hook", "s"}, false, false},
		{"a deletion", []any{"delete"}, false, false},
		{"a rotation", []any{"rotate", "0", "s2", until}, true, false},
		{"limits", []any{"limit", "1", "1"}, true, false},
		{"a test event", []any{"probe"}, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newWebhookEnv(t)
			s.owns(t, func(step *partitions.Step) {
				step.Endpoint(s.account, &partitions.EndpointChange{Breaker: &partitions.Breaker{Open: true, Failures: 5, Since: 1}, State: partitions.EndpointGone, StateSince: 1})
			})
			s.pass(t, time.Second)
			s.writes(t, c.call[0].(string), c.call[1:]...)
			f := get(s.worker.Ownership.EndpointFacts(t.Context(), endpointsAt(0, s.account)))(t)[0]
			want := partitions.Facts{State: partitions.EndpointGone, StateSince: 1}
			if !c.open {
				want = partitions.Facts{State: partitions.EndpointHealthy, StateSince: s.ms.Load()}
			}

			check(t, f.Breaker.Open == c.open && (f.ProbeRequest > 0) == c.probe && f.State == want.State && f.StateSince == want.StateSince && (f.Moved == f.Version) == (!c.open || c.call[0] != "rotate"),
				"facts %+v", f)
		})
	}
}

// The owner may read the endpoint only once a URL is set again. Then it must see that the one it knew was deleted,
// because what it has in memory for that one must not go to another.
//
//rule:webhooks/without-a-registered-url-events
func TestFacts_TellThatAURLWasDeletedBeforeTheNextOne(t *testing.T) {
	s := newWebhookEnv(t)
	facts := func() *partitions.Facts {
		return get(s.worker.Ownership.EndpointFacts(t.Context(), endpointsAt(0, s.account)))(t)[0]
	}
	s.writes(t, "set", "https://second.example/", "s")
	known := facts()
	equal(t, known.Deleted, 0, "of a URL that was changed")

	s.writes(t, "delete")
	deleted := facts()
	s.writes(t, "set", "https://third.example/", "s")
	read := facts()

	check(t, deleted.Deleted == known.Version+1 && deleted.Deleted == deleted.Version && deleted.Deleted == deleted.Moved, "deleted: %+v", deleted)
	check(t, read.URL == "https://third.example/" && read.Deleted > known.Version && read.Moved == read.Deleted+1, "registered again: %+v", read)
	s.writes(t, "set", "https://fourth.example/", "s")
	equal(t, facts().Deleted, read.Deleted, "after a change that deletes nothing")
}

// A vendor repairs its receiver while the owner acts on an earlier request: the later one must not be lost with
// it, or the vendor waits for the next probe.
func TestProbe_AskedForAgainIsNotAnsweredWithTheFirst(t *testing.T) {
	for _, c := range []struct {
		name string
		ask  []any
	}{
		{"a test event", []any{"probe"}},
		{"the same URL", []any{"set", "https://vendor.example/hook", "s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newWebhookEnv(t)
			request := func() int64 {
				return get(s.worker.Ownership.EndpointFacts(t.Context(), endpointsAt(0, s.account)))(t)[0].ProbeRequest
			}
			answer := func(request int64) {
				s.owns(t, func(step *partitions.Step) {
					step.Endpoint(s.account, &partitions.EndpointChange{ProbeAnswered: request})
				})
			}
			equal(t, request(), 0, "before anybody has asked")

			s.writes(t, "probe")
			first := request()
			s.writes(t, c.ask[0].(string), c.ask[1:]...)
			answer(first)

			second := request()
			check(t, first > 0 && second > first, "requests %d and %d", first, second)
			answer(second)
			equal(t, request(), 0, "once both are answered")
			s.writes(t, "probe")
			check(t, request() > second, "what is asked for after that has number %d, and was answered before", request())
		})
	}
}

// What waited when a receiver was removed is recorded as not sent, before another one may come.
//
//rule:webhooks/without-a-registered-url-events
func TestSetURL_AwaitsTheEndOfWhatWaitedForADeletedOne(t *testing.T) {
	s := newWebhookEnv(t)
	keys := s.publish(t, 2)
	s.schedules(t, 0, keys...)
	e, _ := get2(s.Webhooks.SetURL(t.Context(), s.account, "https://second.example/"))(t)
	check(t, e.Backlog == 2, "a changed URL takes the backlog: %+v", e) // it waits for nobody
	must(t, s.Webhooks.Delete(t.Context(), s.account))
	wantCode(t, s.Webhooks.Delete(t.Context(), s.account), delivery.CodeWebhookNotConfigured)
	wantCode(t, errOf(s.Webhooks.Endpoint(t.Context(), s.account)), delivery.CodeWebhookNotConfigured)
	left := s.core.Redis.HMGet(t.Context(), s.key(core.KindEndpoint), "url", "secret", "earlier", "proven").Val()
	check(t, slices.Equal(left, []any{nil, nil, nil, nil}), "a deleted endpoint still has %q", left)
	notes := s.noted(t)
	s.Webhooks.UnsentPause = 0
	asked := &countCommands{counts: map[string]int{}}
	s.core.Redis.AddHook(asked)
	_, _, err := s.Webhooks.SetURL(t.Context(), s.account, "https://third.example/")
	refusal := wantCode(t, err, delivery.CodeWebhookBeingRemoved)
	check(t, !errors.Is(err, delivery.ErrUnavailable) && refusal.RetryAfter == time.Second, "it is a refusal like others, for a second: %+v", refusal)
	equal(t, asked.of("fcall "+s.core.Library.Scripts["write_endpoint"].Name), 1+webhooks.UnsentLooks, "looks")
	check(t, s.noted(t) == notes && s.core.Redis.HGet(t.Context(), s.key(core.KindEndpoint), "url").Val() == "", "it was written all the same")
	gateway := openTest(t, sameDatabase(s.Ledger), func(c *core.Config) { c.Now, c.Pipelines = s.now, 0 })
	tried := false
	gateway.core.Redis.AddHook(&meanwhile{command: "fcall", after: 1, do: func() {
		tried = true
		s.owns(t, func(step *partitions.Step) { step.Unschedule(s.account, s.unscheduled(t, keys...)) })
	}})

	third, secret := get2(gateway.Webhooks.SetURL(t.Context(), s.account, "https://third.example/"))(t)
	check(t, tried && secret != "" && third.Secret == secret && third.Backlog == 0 && third.Earlier == nil && third.Proven, "registered again: %+v", third)
}

func TestLimits_KeepAndClear(t *testing.T) {
	s := newUnregistered(t)
	wantCode(t, s.Webhooks.SetLimits(t.Context(), s.account, partitions.EndpointLimits{InFlight: 1}), delivery.CodeWebhookNotConfigured)
	version := s.register(t).Version
	for _, test := range []struct{ set, want partitions.EndpointLimits }{
		{partitions.EndpointLimits{InFlight: 64, PerSecond: 100}, partitions.EndpointLimits{InFlight: 64, PerSecond: 100}},
		{partitions.EndpointLimits{InFlight: -1, PerSecond: 7}, partitions.EndpointLimits{InFlight: 64, PerSecond: 7}},
		{partitions.EndpointLimits{InFlight: 3, PerSecond: -1}, partitions.EndpointLimits{InFlight: 3, PerSecond: 7}},
		{partitions.EndpointLimits{InFlight: -1, PerSecond: -1}, partitions.EndpointLimits{InFlight: 3, PerSecond: 7}},
		{partitions.EndpointLimits{InFlight: -1}, partitions.EndpointLimits{InFlight: 3}},
	} {
		must(t, s.Webhooks.SetLimits(t.Context(), s.account, test.set))
		e, facts := s.endpoint(t), get(s.worker.Ownership.EndpointFacts(t.Context(), endpointsAt(0, s.account)))(t)
		check(t, e.Limits == test.want && facts[0].Limits == test.want && e.Version == version, "set %+v: %+v and %+v, want %+v", test.set, e, facts[0].Limits, test.want)
	}

	// They are an operator's: the vendor's DELETE and PUT change nothing about them.
	must(t, s.Webhooks.Delete(t.Context(), s.account))
	equal(t, s.register(t).Limits, partitions.EndpointLimits{InFlight: 3}, "registered again with")
}

func TestQueueTest_PublishesAndProbes(t *testing.T) {
	s := newUnregistered(t)
	wantCode(t, errOf(s.Webhooks.QueueTest(t.Context(), s.account, s.now())), delivery.CodeWebhookNotConfigured)
	s.register(t)
	id := get(s.Webhooks.QueueTest(t.Context(), s.account, s.now()))(t)
	w := &partitions.Wanted{Events: []partitions.Event{{Notice: id}}}
	must(t, s.worker.Ownership.ReadOrders(t.Context(), []*partitions.Wanted{w}))
	d := w.Deliveries[0]
	require(t, d != nil, "it is not published")
	check(t, d.Type == delivery.WebhookTest && d.EventID == id && d.Account == s.account && strings.Contains(string(d.Data), s.account.String()), "published %+v", d)
	check(t, get(s.worker.Ownership.EndpointFacts(t.Context(), endpointsAt(0, s.account)))(t)[0].ProbeRequest > 0, "no probe is asked for")
}

func TestEndpoint_CountsTheScheduleAndWhatIsInMemory(t *testing.T) {
	s := newWebhookEnv(t)
	s.owns(t, func(step *partitions.Step) { step.Summary(nil) })
	at := func(after time.Duration) time.Time { return s.now().Add(after) }

	closed := &partitions.Breaker{}
	open := &partitions.Breaker{Open: true, Hold: at(time.Second).UnixMilli(), Since: s.ms.Load()}
	heldFor := func(hold time.Duration) *partitions.Breaker {
		return &partitions.Breaker{Hold: at(hold).UnixMilli(), Rate: 10.04}
	}
	tally := &partitions.Tally{
		Hour:           uint32(s.ms.Load() / time.Hour.Milliseconds()),
		OK:             1,
		Failed:         2,
		PreviousOK:     10,
		PreviousFailed: 20,
		Delivered:      3,
		Retried:        4,
		Undelivered:    5,
		NotSent:        6,
	}

	scheduled, unscheduled := partitions.NoticeKey("evt_1"), partitions.NoticeKey("evt_2")

	for _, c := range []struct {
		name    string
		due     time.Duration // until the attempt of one event; 0: none waits
		memory  int
		breaker *partitions.Breaker
		backlog int64
		next    time.Time
	}{
		{name: "nothing waits", breaker: closed},
		{name: "in the schedule", due: 5 * time.Second, breaker: closed, backlog: 1, next: at(5 * time.Second)},
		{name: "in memory", memory: 3, breaker: closed, backlog: 3, next: s.now()},
		{name: "both", due: 5 * time.Second, memory: 3, breaker: closed, backlog: 4, next: s.now()},
		{name: "held back, asked for", due: 5 * time.Second, memory: 3, breaker: heldFor(time.Minute), backlog: 4, next: at(time.Minute)},
		{name: "held back for less", due: 5 * time.Second, breaker: heldFor(time.Second), backlog: 1, next: at(5 * time.Second)},
		{name: "the breaker is open", due: 5 * time.Second, breaker: open, backlog: 1, next: at(time.Second)},
		{name: "the breaker is open and nothing waits", breaker: open, next: at(time.Second)},
	} {
		s.owns(t, func(step *partitions.Step) {
			step.Unschedule(s.account, []partitions.Unscheduled{{Key: scheduled}, {Key: unscheduled}})
			if c.due > 0 {
				step.Schedule(s.account, false, []partitions.Scheduled{{Key: scheduled, Due: at(c.due).UnixMilli()}})
			}
			step.Endpoint(s.account, &partitions.EndpointChange{Breaker: c.breaker, Tally: tally, Waiting: c.memory})
		})

		e := s.endpoint(t)
		check(t, !e.Unknown && e.Backlog == c.backlog && e.NextAttempt.Equal(c.next), "%s: %+v", c.name, e)
		check(t, e.BreakerOpen == c.breaker.Open && e.BreakerSince.IsZero() == !c.breaker.Open, "%s, its breaker: %+v", c.name, e)
		check(t, e.HeldUntil.Equal(core.TimeOf(c.breaker.Hold)) && e.Pace == float64(int(c.breaker.Rate)), "%s, how it is held back: %+v", c.name, e)
		check(t, e.Delivered == 3 && e.Retried == 4 && e.Undelivered == 5 && e.NotSent == 6, "%s, its figures: %+v", c.name, e)
		check(t, e.RecentOK == 1+10 && e.RecentFailed == 2+20, "%s, its recent attempts: %+v", c.name, e)
	}

	type attempts struct{ ok, failed int64 }
	for after, want := range map[time.Duration]attempts{
		time.Hour:     {ok: 1, failed: 2}, // those of this hour are of the previous one then
		2 * time.Hour: {},
	} {
		f := partitions.DecodeFacts(s.account, get(s.core.Redis.HGetAll(t.Context(), s.key(core.KindEndpoint)).Result())(t), s.core.Secrets, s.core.Now())
		ok, failed := f.Tally.Recent(at(after))
		check(t, attempts{ok, failed} == want && f.Tally.Delivered == 3, "after %s: %+v", after, f)
	}

	must(t, s.core.Redis.Del(t.Context(), s.core.Partitions[0].Key(core.KindSummary)).Err()) // no owner writes it any more
	check(t, s.endpoint(t).Unknown, "no owner, but the backlog is known")
}

func TestEndpoints_ListsThoseWithAURL(t *testing.T) {
	s := newUnregistered(t)
	equal(t, len(allReceivers(t, s.Ledger)), 0, "endpoints")
	s.register(t)
	vendors := []*env{s, s.beside(t), s.beside(t)}
	gone := s.beside(t)
	must(t, gone.Webhooks.Delete(t.Context(), gone.account))
	s.schedules(t, 1000, s.publish(t, 3)...)
	must(t, s.Webhooks.SetLimits(t.Context(), vendors[1].account, partitions.EndpointLimits{InFlight: 5, PerSecond: 9}))
	all := allReceivers(t, s.Ledger)
	require(t, len(all) == 3, "%d endpoints", len(all))
	for _, one := range vendors {
		i := slices.IndexFunc(all, func(e *webhooks.WebhookEndpoint) bool { return e.Account == one.account })
		require(t, i >= 0, "one is missing")
		equal(t, all[i], one.endpoint(t), "listed, and alone")
	}
}

func TestSecrets_OldKeysStillOpen(t *testing.T) {
	s := newWebhookEnv(t)
	first := s.endpoint(t).Secret
	with := func(current string, ids ...string) *Ledger {
		keys := core.SecretKeys{Current: current, Keys: make(map[string][]byte)}
		for _, id := range ids {
			keys.Keys[id] = []byte(strings.Repeat(id, 16))
		}
		keys.Keys["k1"] = testSecrets.Keys["k1"]
		return openTest(t, sameDatabase(s.Ledger), func(c *core.Config) { c.Secrets, c.Now = keys, s.now })
	}

	renewed := with("k2", "k2")
	e := get(renewed.Webhooks.Endpoint(t.Context(), s.account))(t)
	check(t, e.Secret == first, "secret %s, want %s", e.Secret, first)
	second := get(renewed.Webhooks.RotateSecret(t.Context(), s.account, false))(t)
	stored := s.core.Redis.HMGet(t.Context(), s.key(core.KindEndpoint), core.SecretField, core.EarlierField).Val()
	sealed, earlier := core.Text(stored[0]), get(core.ParseEarlier(core.Text(stored[1])))(t)[0].Secret
	check(t, strings.HasPrefix(sealed, "k2:") && strings.HasPrefix(earlier, "k1:"), "sealed with %.3q and %.3q", sealed, earlier)
	e = get(renewed.Webhooks.Endpoint(t.Context(), s.account))(t)
	check(t, e.Secret == second && e.Earlier[0].Secret == first, "endpoint %+v", e)
	// The worker has not been given the new key yet.
	facts := get(s.worker.Ownership.EndpointFacts(t.Context(), endpointsAt(0, s.account, s.beside(t).account)))(t)
	check(t, facts[0].URL != "" && facts[0].Unreadable != nil && facts[0].Secret == "" && facts[1].Unreadable == nil && facts[1].Secret != "", "facts %+v, %+v", facts[0], facts[1])
}

func TestEndpoints_AreListedWithoutTheirKey(t *testing.T) {
	s := newWebhookEnv(t)
	stranger := openTest(t, sameDatabase(s.Ledger), func(c *core.Config) {
		c.Secrets = core.SecretKeys{Current: "k2", Keys: map[string][]byte{"k2": make([]byte, 32)}}
	})
	other := newAccount(t, stranger, plenty())
	_, issued := get2(stranger.Webhooks.SetURL(t.Context(), other, "https://other.example/hook"))(t)
	for _, l := range []*Ledger{s.Ledger, stranger} {
		all := allReceivers(t, l)
		require(t, len(all) == 2, "%d endpoints", len(all))
		for _, e := range all {
			ours := (l == stranger) == (e.Account == other) // the process has its key
			check(t, e.URL != "" && (e.Secret != "") == ours && (!ours || e.Account != other || e.Secret == issued), "endpoint %+v", e)
		}
	}
}

//rule:admin-api/post-accounts-id-webhook-rotate decisions/webhook-url-and-secret
func TestWebhook_SecretsRotateAndAreSealed(t *testing.T) {
	s := newUnregistered(t)
	wantCode(t, errOf(s.Webhooks.RotateSecret(t.Context(), s.account, false)), delivery.CodeWebhookNotConfigured)
	first := s.register(t)
	same, issued := get2(s.Webhooks.SetURL(t.Context(), s.account, "https://other.example/hook"))(t)
	check(t, issued == "" && same.Secret == first.Secret && same.URL == "https://other.example/hook" && same.Version > first.Version,
		"changed URL: %+v, issued %q", same, issued)
	secret := get(s.Webhooks.RotateSecret(t.Context(), s.account, false))(t)
	e := s.endpoint(t)
	check(t, e.Secret == secret && reflect.DeepEqual(e.Earlier, []core.EarlierSecret{{Secret: first.Secret, Until: s.now().Add(webhooks.SecretOverlap)}}) && !e.Proven, "rotated: %+v", e)
	raw := get(s.core.Redis.HGetAll(t.Context(), s.key(core.KindEndpoint)).Result())(t)
	for field, value := range raw {
		check(t, !strings.Contains(value, "whsec_"), "field %s holds a secret in clear", field)
	}

	// Another key opens nothing, and the right one nothing for another account.
	stranger := openTest(t, func(c *core.Config) {
		c.Secrets = core.SecretKeys{Current: "k2", Keys: map[string][]byte{"k2": make([]byte, 32)}}
	})
	check(t, errOf(stranger.core.Secrets.Open(s.account[:], raw["secret"])) != nil, "opened without the key")
	other := delivery.NewAccountID()
	check(t, errOf(s.core.Secrets.Open(other[:], raw["secret"])) != nil, "opened for another account")
}

func TestWebhookEndpoints_WithoutKeysAllButTheSecrets(t *testing.T) {
	s := newWebhookEnv(t)
	get(s.Webhooks.RotateSecret(t.Context(), s.account, false))(t)
	s.publish(t, 1)
	logged := new(strings.Builder)
	panel := openTest(t, sameDatabase(s.Ledger), func(c *core.Config) {
		c.Now, c.Secrets, c.Log = s.now, core.SecretKeys{}, slog.New(slog.NewTextHandler(logged, nil))
	})
	want := get(s.Webhooks.Endpoint(t.Context(), s.account))(t)
	require(t, want.Secret != "" && len(want.Earlier) == 1, "%+v", want)
	want.Secret, want.Earlier[0].Secret = "", ""
	one := get(panel.Webhooks.Endpoint(t.Context(), s.account))(t)
	all := allReceivers(t, panel)
	check(t, reflect.DeepEqual(one, want) && len(all) == 1 && reflect.DeepEqual(all[0], want), "without keys %+v and %+v, want %+v", one, all[0], want)
	check(t, logged.Len() <= 0, "it complains: %s", logged)
	check(t, errOf(panel.Webhooks.SetURL(t.Context(), s.account, "https://other.example/hook")) != nil, "a secret is issued without a key")
}

func TestSeverity_RanksTheStates(t *testing.T) {
	for state, want := range map[partitions.EndpointState]int{
		partitions.EndpointHealthy: 0, partitions.EndpointFailing: 1, partitions.EndpointGone: 2, partitions.EndpointUnreachable: 3, "": -1, "Healthy": -1,
	} {
		got := state.Severity()
		check(t, got == want, "%q: %d, want %d", state, got, want)
	}
}

func TestRotateFleetSecret_OldOneWorksUntilItsTimeIsOver(t *testing.T) {
	l := openTest(t)
	f := newFleet(t, l)
	now := time.Now()
	second, third := [32]byte{2}, [32]byte{3}
	verify := func(hash [32]byte, at time.Time, want bool) {
		t.Helper()
		must(t, l.Fleets.Load(t.Context()))
		got := l.Fleets.VerifySecret(f.ID, hash, at)
		check(t, got == want, "secret %d at %s: %t", hash[0], at.Sub(now), got)
	}

	for range 2 { // the second time nothing changes
		until := get(l.Fleets.RotateSecret(t.Context(), f.ID, second, 24*time.Hour, false))(t)
		verify(second, now, true)
		verify(testHash, until.Add(-time.Second), true)
		verify(testHash, until.Add(time.Second), false)
	}

	// A change of the fleet keeps both.
	get(l.Fleets.Update(t.Context(), f.ID, func(f *delivery.Fleet) error { f.Name = "Yeni"; return nil }))(t)
	verify(second, now, true)
	verify(testHash, now, true)
	get(l.Fleets.RotateSecret(t.Context(), f.ID, third, 24*time.Hour, false))(t)
	verify(testHash, now, true)
	verify(second, now, true)
	verify([32]byte{}, now, false)
	wantCode(t, errOf(l.Fleets.RotateSecret(t.Context(), delivery.NewFleetID(), third, 0, false)), delivery.CodeFleetNotFound)
}

func TestReseal_OlderKeyIsNeededNoMore(t *testing.T) {
	with := func(current string, ids ...string) func(*core.Config) {
		keys := core.SecretKeys{Current: current, Keys: map[string][]byte{}}
		for _, id := range ids {
			keys.Keys[id] = []byte(strings.Repeat(id, 32))
		}
		return func(c *core.Config) { c.Secrets = keys }
	}

	old := openTest(t, with("a", "a"))
	again := sameDatabase(old)
	accounts := []delivery.AccountID{newAccount(t, old, plenty()), delivery.FinanceAccount, newAccount(t, old, plenty())}
	secrets := map[delivery.AccountID]string{}
	for _, id := range accounts[:2] {
		_, issued := get2(old.Webhooks.SetURL(t.Context(), id, "https://example.com/"))(t)
		secrets[id] = issued
	}

	get(old.Webhooks.RotateSecret(t.Context(), accounts[1], false))(t)
	rotated := get(old.Webhooks.RotateSecret(t.Context(), accounts[1], false))(t)

	both := openTest(t, again, with("b", "a", "b"))
	for _, want := range []int{4, 0} { // three of them are finance's; then there is nothing left
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

func endpointsAt(partition int, accounts ...delivery.AccountID) (all []partitions.EndpointAt) {
	for _, account := range accounts {
		all = append(all, partitions.EndpointAt{Partition: partition, Account: account})
	}
	return all
}
