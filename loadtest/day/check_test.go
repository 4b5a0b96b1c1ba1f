package day

import (
	"strings"
	"testing"

	"vendorapi/loadtest/receiver"
)

func TestFigures_PrintWhatWasCounted(t *testing.T) {
	f := &figures{
		stores: 40, cities: 20, sent: 1000, accepted: 900, replayed: 60, refused: 40,
		codes:           map[string]int{"VALIDATION_FAILED": 40},
		ended:           map[string]int{"Delivered": 850, "Failed": 30, "Cancelled": 20},
		payments:        map[string]int{"Card": 500, "Cash": 400},
		webhooks:        &receiver.Check{Expected: 3600, Received: 3610, Duplicates: 10},
		duplicatesAsked: 10,
		retries:         map[string]int{"RATE_LIMITED": 1, noAnswer: 2},
	}

	for _, test := range []struct {
		name     string
		problems receiver.Problems
		want     []string
	}{
		{"balanced", nil, []string{
			"40 stores in 20 cities",
			"= accepted           900  Card 500, Cash 400",
			"+ refused             40  VALIDATION_FAILED 40",
			"sent again             3  RATE_LIMITED 1, no answer 2",
			"= delivered          850\n",
			"webhooks received   3610\n",
			"It balances.",
		}},
		{"unbalanced", receiver.Problems{"an order is missing"}, []string{
			"It does not balance (1 problems)",
			"- an order is missing",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f.problems = test.problems
			var text strings.Builder

			f.print(&text)

			for _, want := range test.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("%q is missing in:\n%s", want, &text)
				}
			}
		})
	}
}

func TestFigures_BalanceNotesSumsThatAreNotThoseOfTheirParts(t *testing.T) {
	f := &figures{
		sent: 5, accepted: 3, replayed: 1, refused: 2,
		ended:           map[string]int{"Delivered": 2},
		webhooks:        &receiver.Check{},
		duplicatesAsked: 1,
	}

	f.balance()
	if len(f.problems) != 3 {
		t.Errorf("problems: %q", f.problems)
	}
}
