package day

import (
	"strings"
	"testing"

	"vendorapi/loadtest/receiver"
)

func TestSummary_PrintsWhatItCounted(t *testing.T) {
	summary := Summary{
		Stores: 40, Cities: 20, Sent: 1000, Accepted: 900, Replayed: 60, Refused: 40,
		Codes:    map[string]int{"VALIDATION_FAILED": 40},
		Ended:    map[string]int{"Delivered": 850, "Failed": 30, "Cancelled": 20},
		Payments: map[string]int{"ONLINE": 900},
		Webhooks: &receiver.Check{Expected: 3600, Received: 3610, Duplicates: 10}, DuplicatesAsked: 10,
		RateLimited: 3, P50: 4.25, P99: 12,
	}
	for _, test := range []struct {
		name     string
		problems receiver.Problems
		want     []string
	}{
		{"balanced", nil, []string{
			"40 stores in 20 cities", "accepted           900  (ONLINE 900)", "refused            40  (VALIDATION_FAILED 40)",
			"delivered          850", "webhooks received    3610", "p99 12.0 ms", "3 rate limited", "It balances.",
		}},
		{"unbalanced", receiver.Problems{"an order is missing"}, []string{"It does not balance (1 problems)", "- an order is missing"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			summary.Problems = test.problems
			var text strings.Builder

			err := summary.Print(&text)

			if err != nil {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("%q is missing in:\n%s", want, &text)
				}
			}
		})
	}
}
