package ledger

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/partitions"
)

func TestStep_KeepsSchedules(t *testing.T) {
	s := newWebhookEnv(t)
	a, b, c := partitions.NoticeKey("evt_a"), partitions.NoticeKey("evt_b"), partitions.NoticeKey("evt_c")
	at := s.ms.Load()
	for _, step := range []struct {
		name   string
		do     func(*partitions.Step)
		due    map[string]int64
		counts map[string]string
	}{
		{"put", func(step *partitions.Step) {
			step.Schedule(s.account, false, []partitions.Scheduled{{Key: a, Due: at + 1, Attempts: 2}, {Key: b, Due: at + 2}, {Key: c, Due: at + 3, ReplayedAt: 7}})
		}, map[string]int64{a: 1, b: 2, c: 3}, map[string]string{a: "2", c: "0@7"}},
		{"put again", func(step *partitions.Step) {
			step.Schedule(s.account, false, []partitions.Scheduled{{Key: c, Due: at + 9, Attempts: 1, ReplayedAt: 7}})
		},
			map[string]int64{a: 1, b: 2, c: 9}, map[string]string{a: "2", c: "1@7"}},
		{"spilt, as it is there", func(step *partitions.Step) {
			step.Schedule(s.account, true, []partitions.Scheduled{{Key: a, Due: at + 100}})
		},
			map[string]int64{a: 1, b: 2, c: 9}, map[string]string{a: "2", c: "1@7"}},
		{"removed", func(step *partitions.Step) {
			step.Unschedule(s.account, []partitions.Unscheduled{{Key: a}, {Key: partitions.NoticeKey("evt_unknown")}})
		},
			map[string]int64{b: 2, c: 9}, map[string]string{c: "1@7"}},
		{"spilt", func(step *partitions.Step) {
			step.Schedule(s.account, true, []partitions.Scheduled{{Key: a, Due: at + 100}})
		},
			map[string]int64{a: 100, b: 2, c: 9}, map[string]string{c: "1@7"}},
		{"the rest removed", func(step *partitions.Step) {
			step.Unschedule(s.account, []partitions.Unscheduled{{Key: a}, {Key: b}, {Key: c, ReplayedAt: 7}})
		}, map[string]int64{}, map[string]string{}},
	} {
		s.owns(t, step.do)
		_, due := s.scheduled(t)
		check(t, maps.Equal(due, step.due) && maps.Equal(s.counts(t), step.counts), "%s: due %v, counts %v", step.name, due, s.counts(t))
	}
}

// More than Lua can spread at once.
func TestStep_TakesManyEventsOfOneEndpoint(t *testing.T) {
	s := newWebhookEnv(t)
	keys := numbered("evt_", 10_000)
	events := make([]partitions.Scheduled, len(keys))
	for i, key := range keys {
		events[i] = partitions.Scheduled{Key: key, Due: s.ms.Load(), Attempts: 1}
	}

	s.owns(t, func(step *partitions.Step) { step.Schedule(s.account, false, events) })
	there, _ := s.scheduled(t)
	check(t, len(there) == len(keys) && len(s.counts(t)) == len(keys), "%d scheduled, %d counts", len(there), len(s.counts(t)))
	s.owns(t, func(step *partitions.Step) { step.Unschedule(s.account, s.unscheduled(t, keys...)) })
	there, _ = s.scheduled(t)
	check(t, len(there) == 0 && len(s.counts(t)) == 0, "%d scheduled, %d counts", len(there), len(s.counts(t)))
}

func TestStep_WritesWhatChangesOfAnEndpoint(t *testing.T) {
	s := newWebhookEnv(t)
	must(t, s.core.Redis.HSet(t.Context(), s.key(core.KindEndpoint), "probe", "7", "proven", "0").Err())
	before := get(s.worker.Ownership.EndpointFacts(t.Context(), endpointsAt(0, s.account)))(t)[0]
	require(t, before.ProbeRequest == 7 && !before.Proven && !before.Scheduled && before.Breaker == partitions.Breaker{} && before.Tally == partitions.Tally{}, "facts %+v", before)
	breaker := partitions.Breaker{Hold: 1_795_000_000_000, Open: true, Failures: 7, Probes: 65_535, Rate: 42.5, Calm: 20, Forward: 3, Since: 4}
	tally := partitions.Tally{Hour: 499_000, OK: 1, Failed: 2, PreviousOK: 3, PreviousFailed: 4, Delivered: 1 << 40, Retried: 6, Undelivered: 7, NotSent: 8}
	want := *before
	for _, c := range []struct {
		name   string
		change partitions.EndpointChange
		same   func()
	}{
		{"nothing", partitions.EndpointChange{}, func() {}},
		{"a breaker", partitions.EndpointChange{Breaker: &breaker}, func() { want.Breaker = breaker }},
		{"a tally", partitions.EndpointChange{Tally: &tally, Waiting: 5}, func() { want.Tally, want.Waiting = tally, 5 }},
		{"a state", partitions.EndpointChange{State: partitions.EndpointGone, StateSince: 99}, func() { want.State, want.StateSince = partitions.EndpointGone, 99 }},
		{"a proof", partitions.EndpointChange{Proven: before.Version}, func() { want.Proven, want.Version = true, want.Version+1 }},
		{"a probe", partitions.EndpointChange{ProbeAnswered: 7}, func() { want.ProbeRequest = 0 }},
		{"an end of the breaker", partitions.EndpointChange{Breaker: &partitions.Breaker{}}, func() { want.Breaker = partitions.Breaker{} }},
	} {
		s.owns(t, func(step *partitions.Step) { step.Endpoint(s.account, &c.change) })
		c.same()
		equal(t, get(s.worker.Ownership.EndpointFacts(t.Context(), endpointsAt(0, s.account)))(t)[0], &want, c.name)
	}

	equal(t, s.core.Redis.HExists(t.Context(), s.key(core.KindEndpoint), "gate").Val(), false, "what holds nothing back is stored")
}

// A secret may be issued, or a URL set, between a send and the step that writes its result.
func TestStep_ProvesNothingButWhatWasSent(t *testing.T) {
	until := time.Now().Add(time.Hour).UnixMilli()
	for _, c := range []struct {
		name    string
		between []any // a call; none: nothing is written
		proven  bool
	}{
		{"nothing in between", nil, true},
		{"limits", []any{"limit", "7", ""}, true},
		{"another secret", []any{"rotate", "0", "s3", until}, false},
		{"another URL", []any{"set", "https://other.example/", "s3"}, false},
		{"no URL", []any{"delete"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newWebhookEnv(t)
			s.writes(t, "rotate", "0", "s2", until)
			stored := func() []any {
				return get(s.core.Redis.HMGet(t.Context(), s.key(core.KindEndpoint), "proven", "version").Result())(t)
			}
			version := core.ParseNumber(core.Text(stored()[1]))
			if c.between != nil {
				s.writes(t, c.between[0].(string), c.between[1:]...)
			}

			before := stored()

			s.owns(t, func(step *partitions.Step) { step.Endpoint(s.account, &partitions.EndpointChange{Proven: version}) })

			want := before
			if c.proven {
				want = []any{"1", fmt.Sprint(version + 1)}
			}

			equal(t, stored(), want, "proven and the version")
		})
	}
}

// line is one of the log, of an attempt of that number.
func (s *env) line(attempt int, probes uint32) []byte {
	a := partitions.AttemptRecord{At: s.now(), State: partitions.StateRetrying, Attempt: attempt, Probe: probes > 0}
	line, _ := a.Lines(&partitions.Delivery{Account: s.account, EventID: "evt_1", Type: delivery.StoreActivated}, probes > 0)
	if probes > 0 {
		binary.BigEndian.PutUint32(line[1:], probes)
	}
	return line
}

func TestStep_WritesTheLogInChunks(t *testing.T) {
	s := newWebhookEnv(t)
	for _, c := range []struct {
		name  string
		lines [][]byte
		kept  int
		again bool
		want  string // attempts, and probes that share a line, the newest first
	}{
		{"one line", [][]byte{s.line(1, 0)}, 10, false, "1"},
		{"a chunk", [][]byte{s.line(2, 0), s.line(3, 0), s.line(4, 0)}, 10, false, "4 3 2 1"},
		{"a probe that failed", [][]byte{s.line(5, 1)}, 10, false, "5*1 4 3 2 1"},
		{"the next ones, which share its line", [][]byte{s.line(5, 9)}, 10, true, "5*9 4 3 2 1"},
		{"another chunk", [][]byte{s.line(6, 0), s.line(7, 0)}, 10, false, "7 6 5*9 4 3 2 1"},
		{"no more than three entries", [][]byte{s.line(8, 0)}, 3, false, "8 7 6 5*9"},
		{"no more than one", [][]byte{s.line(9, 0)}, 1, false, "9"},
	} {
		s.owns(t, func(step *partitions.Step) { step.Log(s.account, c.lines, c.kept, c.again) })
		got := ""
		for _, a := range s.attempts(t, "") {
			if got != "" {
				got += " "
			}
			got += fmt.Sprint(a.Attempt)
			if a.Probes > 0 {
				got += fmt.Sprint("*", a.Probes)
			}
		}

		equal(t, got, c.want, c.name)
	}
}

func TestStep_TrimsTheLogToItsBytes(t *testing.T) {
	s := newWebhookEnv(t)
	size := len(s.line(1, 0))
	for _, c := range []struct{ bytes, want int }{{4 * size, 3}, {3 * size, 3}, {3*size - 1, 2}, {size, 1}, {size - 1, 0}, {0, 0}} {
		s.owns(t, func(step *partitions.Step) {
			step.TrimLog(s.account, 0)
			for attempt := range 3 {
				step.Log(s.account, [][]byte{s.line(attempt, 0)}, 10, false)
			}
			step.TrimLog(s.account, c.bytes)
		})

		log := s.attempts(t, "")
		check(t, len(log) == c.want && (len(log) == 0 || log[0].Attempt == 2), "within %d bytes: %+v", c.bytes, log)
	}
}

// A line that is to be replaced may be gone: the rest of the step is written all the same.
func TestStep_ReplacesALineThatIsGone(t *testing.T) {
	s := newWebhookEnv(t)
	key := s.publish(t, 1)[0]
	s.owns(t, func(step *partitions.Step) {
		step.Log(s.account, [][]byte{s.line(1, 2)}, 10, true)
		step.Schedule(s.account, false, []partitions.Scheduled{{Key: key, Due: 1}})
	})
	keys, _ := s.scheduled(t)
	check(t, len(keys) == 1 && len(s.attempts(t, "")) == 1, "%d scheduled, %d lines", len(keys), len(s.attempts(t, "")))
}

func TestStep_TellsOfEndsAndTriesInOneEntryEach(t *testing.T) {
	s := newWebhookEnv(t)
	other := s.beside(t)
	publish := func() {
		s.owns(t, func(step *partitions.Step) {
			for i, state := range []string{partitions.StateDelivered, partitions.StateRetrying, partitions.StateNotSent, partitions.StateRetrying} {
				a := partitions.AttemptRecord{At: s.now(), State: state, Attempt: i + 1, Error: "e", Answer: "long"}
				line, unanswered := a.Lines(&partitions.Delivery{EventID: fmt.Sprint("evt_", i), Type: delivery.StoreActivated}, false)
				if state == partitions.StateRetrying {
					line = unanswered
				}
				step.Publish([]delivery.AccountID{s.account, other.account}[i/2], line, state != partitions.StateRetrying)
			}
		})
	}

	publish()
	r := s.core.Partitions[0]
	equal(t, s.core.Redis.Exists(t.Context(), r.Key(core.KindTries)).Val(), 0, "streams that nobody reads")
	s.exporting(t)
	publish()
	equal(t, s.core.Redis.XLen(t.Context(), r.Key(core.KindOutcomes)).Val(), 2, "entries of ends")
	equal(t, s.core.Redis.XLen(t.Context(), r.Key(core.KindTries)).Val(), 1, "entries of tries")
	var got []string
	for _, e := range collectFrom(t, s.Ledger, s.core.Partitions, core.RoleExport, 3)[1:] {
		for _, a := range e.Outcomes {
			got = append(got, fmt.Sprint(a.EventID, " ", a.State, " ", a.Attempt, " ", a.Answer, " ", a.Account == s.account))
		}
	}

	slices.Sort(got)
	equal(t, got, []string{"evt_0 delivered 1 long true", "evt_1 retrying 2  true", "evt_2 notSent 3 long false", "evt_3 retrying 4  false"}, "the exporter reads")
}

func TestQueueStats_SumsWhatOwnersTell(t *testing.T) {
	s := newEnv(t)
	at := time.UnixMilli(1_795_000_000_000).UTC()
	tell := func(partition int, all map[partitions.EndpointState]partitions.QueueStats) {
		must(t, s.advanceBy(t.Context(), partition, func(step *partitions.Step) { step.Summary(all) }))
	}
	for p := range s.core.Partitions {
		wantError(t, errOf(s.Monitor.QueueStats(t.Context())), operations.ErrNoOwner)
		tell(p, nil)
	}

	equal(t, get(s.Monitor.QueueStats(t.Context()))(t)[partitions.EndpointHealthy], partitions.QueueStats{}, "of nothing")
	tell(1, map[partitions.EndpointState]partitions.QueueStats{partitions.EndpointHealthy: {Endpoints: 1, Events: 2, Oldest: at}, partitions.EndpointGone: {Endpoints: 4, Events: 5, BreakersOpen: 3}})
	tell(2, map[partitions.EndpointState]partitions.QueueStats{partitions.EndpointHealthy: {Endpoints: 10, Events: 20, BreakersOpen: 1, Oldest: at.Add(-time.Second)}})
	tell(3, map[partitions.EndpointState]partitions.QueueStats{partitions.EndpointHealthy: {Endpoints: 1, Events: 1, Oldest: at.Add(time.Second)}})
	equal(t, get(s.Monitor.QueueStats(t.Context()))(t), map[partitions.EndpointState]partitions.QueueStats{
		partitions.EndpointHealthy: {Endpoints: 12, Events: 23, BreakersOpen: 1, Oldest: at.Add(-time.Second)},
		partitions.EndpointFailing: {}, partitions.EndpointUnreachable: {}, partitions.EndpointGone: {Endpoints: 4, Events: 5, BreakersOpen: 3},
	}, "the sum")

	lasts := get(s.core.Redis.PTTL(t.Context(), s.core.Partitions[0].Key(core.KindSummary)).Result())(t)
	check(t, lasts > 0 && lasts <= partitions.SummaryLifetime, "a summary counts for %s", lasts)
	must(t, s.core.Redis.Del(t.Context(), s.core.Partitions[0].Key(core.KindSummary)).Err()) // its time is over
	wantError(t, errOf(s.Monitor.QueueStats(t.Context())), operations.ErrNoOwner)
}
