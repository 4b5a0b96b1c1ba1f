package judge

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// What Redis and ClickHouse say of the same order must read the same.
func TestPrint_IsTheSameFromBothStores(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	o := &delivery.Order{CreatedAt: at(0), OrderDraft: delivery.OrderDraft{ExternalStoreID: "S-1", ReadyAt: at(60),
		OrderAmount: delivery.Money{Minor: 12550, Set: true}, Payment: delivery.Payment{Type: delivery.Cash, CollectionAmount: delivery.Money{Minor: 5, Set: true}}}}
	o.Changes = []delivery.Change{{Status: delivery.Assigned, At: at(1)}, {Status: delivery.PickingUp, At: at(2)}, {Status: delivery.Cancelled, At: at(3), Cancel: delivery.OtherCancel}}
	const row = `{"id":"o","account":"a","external":"e","status":"Cancelled","version":"4294967300","created":"1795284000000","failure":"","cancel":"Other",
		"store":"S-1","fleet":"00000000-0000-0000-0000-000000000000","payment":"Cash","amount":"125.5","collection":"0.05",
		"times":["-1",1795284060000,1795284001000,-1,-1,1795284003000,"1795284003000"]}`
	var r orderRow
	if err := json.Unmarshal([]byte(row), &r); err != nil {
		t.Fatal(err)
	}
	if got, want := r.order(), printOf(o); got.Print != want || got.Version != 1<<32|4 || !got.Created.Equal(at(0)) {
		t.Errorf("ClickHouse has\n%+v, Redis\n%s", got, want)
	}
}

func TestDecimal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"": "", "0": "0.00", "125.5": "125.50", "125.50": "125.50", "9999999.99": "9999999.99"} {
		if got := decimal(in); got != want {
			t.Errorf("decimal(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestNumber_RefusesWhatIsNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`"x"`, `1.5`, `null`, `""`, `[]`} {
		var n number
		if err := n.UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%s was read as %d", text, n)
		}
	}
}

func TestRecorded_IsWhenTheEntryWasWritten(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]time.Time{"1795284000000-3": begin, "1795284000000": begin, "": {}, "x-1": {}} {
		if got := recorded(entry); !got.Equal(want) {
			t.Errorf("recorded(%q) = %s, want %s", entry, got, want)
		}
	}
}

// Facts that were kept are judged again as they were.
func TestFacts_SurviveJSON(t *testing.T) {
	t.Parallel()
	e := day()
	e.arrival("failed", 3).Status = "PickedUp"
	_, before := e.check()
	text, err := json.Marshal(&e.facts)
	if err != nil {
		t.Fatal(err)
	}
	var back Facts
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if _, after := Check(e.log, &back); len(before) == 0 || !reflect.DeepEqual(before, after) {
		t.Errorf("before:%s\nafter:%s", listed(before), listed(after))
	}
}
