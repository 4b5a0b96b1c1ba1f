package ledger

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
)

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
