package reports

import (
	"slices"
	"strings"
	"testing"
)

// Finance has built upon these names and their order; what is added comes besides.
//
//rule:finance/reports-each/1 finance/reports-each/2 finance/reports-each/3 finance/reports-each/4 finance/reports-each/5
func TestReports_HaveTheColumnsThatWereDecided(t *testing.T) {
	t.Parallel()
	for name, decided := range map[string]string{
		"order-ledger": "orderId externalOrderId externalStoreId storeName taxNumber fleetId fleetName status failureReason createdAt orderedAt " +
			"pickedUpAt deliveredAt endedAt paymentType orderAmount collectionAmount expectedCollection currency",
		"expected-collections": "deliveredCount cashCount cashExpected cardCount cardExpected prepaidCount prepaidAmount",
		"fleet-statement":      "created delivered failed cancelled orderAmountDelivered cashExpected cardExpected",
		"exceptions":           "kind orderId orderAmount collectionAmount",
		"control-totals":       "rows orderAmountDelivered sha256",
	} {
		r, found := Find(name)
		if !found {
			t.Errorf("there is no report %s", name)
			continue
		}
		var keys []string
		for _, c := range r.Columns {
			if slices.Contains(strings.Fields(decided), c.Key) {
				keys = append(keys, c.Key)
			}
		}
		if got := strings.Join(keys, " "); got != decided {
			t.Errorf("%s has %s", name, got)
		}
	}
	if n := len(All()); n != 5 {
		t.Errorf("%d reports", n)
	}
}
