package dashboard

import (
	"slices"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/ledger/webhooks"
	"vendorapi/reporting/layout"
)

//rule:limits-and-idempotency/sustained-excess-in-at-least webhooks/then-the-event-is-kept webhooks/nothing-is-disabled-in-silence
func TestConcerns_NameWhatIsOverdue(t *testing.T) {
	t.Parallel()

	now := time.Now()
	account := &delivery.Account{ID: delivery.NewAccountID(), Name: "Moda Kafe", ExcessSince: now.Add(-time.Hour)}
	inExcess := &excess{inExcess: []*delivery.Account{account}}

	// The ages are of the oldest entry that waits for each worker; 0: nothing waits.
	lags := func(ages ...time.Duration) []worker {
		all := slices.Clone(workers)
		for i, age := range ages {
			if age > 0 {
				all[i].Lag = &partitions.Lag{Entries: 7, Oldest: now.Add(-age)}
			}
		}
		return all
	}

	endpoint := func(state partitions.EndpointState, since time.Duration) *webhooks.WebhookEndpoint {
		return &webhooks.WebhookEndpoint{Account: account.ID, State: state, StateSince: now.Add(-since)}
	}
	waiting := func(state partitions.EndpointState) *webhooks.WebhookEndpoint {
		e := endpoint(state, 2*time.Hour)
		e.Backlog = 3
		e.NextAttempt = now
		return e
	}

	withOpenBreaker := func(e *webhooks.WebhookEndpoint) *webhooks.WebhookEndpoint {
		e.BreakerOpen = true
		return e
	}

	receiversOf := func(worst ...*webhooks.WebhookEndpoint) *receivers {
		return &receivers{worst: worst, names: layout.Names{account.ID.String(): account.Name}}
	}

	for name, c := range map[string]struct {
		seen seen
		want []string // tone, state and subject
	}{
		"nothing": {
			seen: seen{History: true},
		},
		"ClickHouse unavailable": {
			seen: seen{},
			want: []string{"bad unavailable ClickHouse"},
		},
		"no owner": {
			seen: seen{History: true, NoOwner: true},
			want: []string{"bad no owner Partitions"},
		},
		"a lag that may be": {
			seen: seen{History: true, Workers: lags(20*time.Second, 0, time.Minute)},
		},
		"an exporter behind": {
			seen: seen{History: true, Workers: lags(0, 0, 3*time.Minute)},
			want: []string{"warn behind Export worker"},
		},
		"a status worker": {
			seen: seen{History: true, Workers: lags(31 * time.Second)},
			want: []string{"warn behind Status worker"},
		},
		"dead letters": {
			seen: seen{History: true, Stats: &operations.Stats{DeadLetters: 1}},
			want: []string{"bad lost 1 dead letter"},
		},
		"healthy endpoint": {
			seen: seen{History: true, Endpoints: receiversOf(waiting(partitions.EndpointHealthy))},
		},
		"a failure or two": {
			seen: seen{History: true, Endpoints: receiversOf(waiting(partitions.EndpointFailing))},
		},
		"a breaker": {
			seen: seen{History: true, Endpoints: receiversOf(withOpenBreaker(waiting(partitions.EndpointFailing)))},
			want: []string{"warn breaker open Webhooks of Moda Kafe"},
		},
		"the worst comes first": {
			seen: seen{
				History:   true,
				accounts:  inExcess,
				Endpoints: receiversOf(withOpenBreaker(waiting(partitions.EndpointUnreachable))),
			},
			want: []string{"bad unreachable Webhooks of Moda Kafe", "warn in excess Moda Kafe"},
		},
		"worst, then oldest": {
			seen: seen{
				History:  true,
				accounts: inExcess,
				Endpoints: receiversOf(
					endpoint(partitions.EndpointGone, time.Minute),
					withOpenBreaker(endpoint(partitions.EndpointGone, 3*time.Minute)),
					endpoint(partitions.EndpointUnreachable, 2*time.Minute),
				),
			},
			want: []string{
				"bad gone Webhooks of Moda Kafe",
				"bad unreachable Webhooks of Moda Kafe",
				"bad gone Webhooks of Moda Kafe",
				"warn in excess Moda Kafe",
			},
		},
		"fleets": {
			seen: seen{
				History: true,
				fleets: []*delivery.Fleet{
					{Name: "A", Couriers: -1},
					{Name: "B", Suspended: true},
					{Name: "C"},
					{Name: "D", Disabled: true},
				},
			},
			want: []string{"warn suspended B", "warn no couriers C", "warn disabled D"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			c.seen.At = now

			got := c.seen.concerns()

			if len(got) != len(c.want) {
				t.Fatalf("%+v, want %q", got, c.want)
			}

			for i := range got {
				text := got[i].Tone + " " + got[i].State + " " + got[i].Subject
				if text != c.want[i] {
					t.Errorf("%q, want %q", text, c.want[i])
				}
			}
		})
	}
}

func TestOverview_ListsNoMoreConcernsThanFit(t *testing.T) {
	t.Parallel()

	s := seen{At: time.Now(), History: true}
	for range mostConcerns + 4 {
		s.fleets = append(s.fleets, &delivery.Fleet{Name: "F", Suspended: true})
	}

	s.conclude()
	if len(s.Attention) != mostConcerns || s.More != 4 {
		t.Errorf("%d and %d more", len(s.Attention), s.More)
	}

	// What was counted and not read is among the others.
	s.Endpoints = &receivers{worst: []*webhooks.WebhookEndpoint{{State: partitions.EndpointGone}, {State: partitions.EndpointFailing}},
		counts: map[partitions.EndpointState]int64{partitions.EndpointGone: 1, partitions.EndpointUnreachable: 7, partitions.EndpointFailing: 9, partitions.EndpointHealthy: 100}}
	s.accounts = &excess{inExcess: []*delivery.Account{{Name: "A"}}, counts: accounts.AccountCounts{All: 90, Excess: 3}}
	s.conclude()
	if len(s.Attention) != mostConcerns || s.More != 4+2+7+2 {
		t.Errorf("%d and %d more", len(s.Attention), s.More)
	}
}

func TestCharts_LeaveOutTheMinuteInProgressAndRankCodes(t *testing.T) {
	t.Parallel()

	begin := time.Unix(1_795_000_020, 0)
	s := seen{At: begin}
	codes := delivery.Codes()
	refused := map[delivery.Code]int64{}
	for i, code := range codes {
		refused[code] = int64(i + 1)
	}

	for i := range chartMinutes + 1 {
		m := limits.MinuteActivity{At: begin.Add(time.Duration(i) * time.Minute), Created: int64(i)}
		if i == 0 {
			m.Refused = refused
		}
		s.activity = append(s.activity, m)
	}

	orders, outcomes, byCode := s.hour().charts()
	if n := len(orders.Labels); n != chartMinutes || len(outcomes.Labels) != n || orders.Series[0].Values[n-1] != chartMinutes-1 {
		t.Errorf("%d minutes, the last with %v", n, orders.Series[0].Values[n-1])
	}
	if n := len(byCode.Labels); n != rankedCodes+1 || byCode.Labels[0] != string(codes[len(codes)-1]) || byCode.Labels[n-1] != "all others" {
		t.Errorf("%v %v", byCode.Labels, byCode.Series)
	}
}
