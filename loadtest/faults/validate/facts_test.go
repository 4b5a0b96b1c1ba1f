package validate

import (
	"testing"

	"vendorapi/internal/delivery"
)

func TestUnknown(t *testing.T) {
	t.Parallel()

	for _, one := range []struct {
		name    string
		op      Operation
		unknown bool
	}{
		{"no answer", Operation{}, true},
		{"accepted", Operation{Status: 201}, false},
		{"refused", Operation{Status: 409, Code: "DUPLICATE_ORDER"}, false},
		{"too many", Operation{Status: 429, Code: "RATE_LIMITED"}, false},
		{"a 503 may follow what was committed", Operation{Status: 503, Code: "SERVICE_UNAVAILABLE"}, true},
		{"no courier is decided with the order", Operation{Status: 503, Code: "FLEET_UNAVAILABLE"}, false},
		{"a defect", Operation{Status: 500, Code: "INTERNAL_ERROR"}, true},
	} {
		if got := one.op.Unknown(); got != one.unknown {
			t.Errorf("%s: unknown %t, want %t", one.name, got, one.unknown)
		}
	}
}

func TestContent_TellsEveryFieldApart(t *testing.T) {
	t.Parallel()

	seen := make(map[string]bool)
	for _, d := range []delivery.OrderDraft{
		{}, {ExternalStoreID: "x"}, {ExternalOrderID: "x"}, {PackageNote: "x"},
		{Recipient: delivery.Recipient{Name: "x"}}, {Recipient: delivery.Recipient{Phone: "x"}}, {Dropoff: delivery.Dropoff{Text: "x"}},
		{Payment: delivery.Payment{Type: delivery.Cash}}, {Payment: delivery.Payment{CollectionAmount: delivery.Money{Set: true}}},
		{OrderAmount: delivery.Money{Set: true}}, {OrderAmount: delivery.Money{Minor: 1, Set: true}},
	} {
		if seen[Content(&d)] {
			t.Errorf("%+v looks like another", d)
		}
		seen[Content(&d)] = true
	}
}
