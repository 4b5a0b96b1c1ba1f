package validate

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

func TestRowOf_HasAColumnForEachOfClickHouse(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	o := &delivery.Order{CreatedAt: at(0), Version: 1<<32 | 4, Status: delivery.Cancelled, OrderDraft: delivery.OrderDraft{ExternalOrderID: "e", ExternalStoreID: "S-1",
		ReadyAt: at(60), OrderAmount: delivery.Money{Minor: 12550, Set: true}, Payment: delivery.Payment{Type: delivery.Cash}}}
	o.Changes = []delivery.Change{{Status: delivery.Assigned, At: at(1)}, {Status: delivery.PickingUp, At: at(2)}, {Status: delivery.Cancelled, At: at(3), Cancel: delivery.OtherCancel}}
	got := make(map[string]string)
	for i, text := range rowOf(o) {
		got[orderColumns[i].name] = text
	}
	want := map[string]string{"order": o.ID.String(), "account": o.Account.String(), "external id": "e", "status": "Cancelled", "version": "4294967300",
		"creation": "1795284000000", "failure reason": "", "cancel reason": "Other", "store": "S-1", "fleet": o.Fleet.ID.String(), "payment": "Cash",
		"order amount": "12550", "collection amount": "", "orderedAt": "", "readyAt": "1795284060000", "updatedAt": "1795284003000",
		"assignment": "1795284001000", "pickup": "", "delivery": "", "end": "1795284003000"}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Facts that were kept are checked again as they were.
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
