//go:build long

package lib_test

import (
	"reflect"
	"testing"
)

// order is what the test reads of an order.
type order struct {
	StoreID string `json:"externalStoreId"`
	ID      string `json:"externalOrderId"`
	Note    string `json:"packageNote"`

	Recipient struct {
		Name  string `json:"name"`
		Phone string `json:"phone"`
	} `json:"recipient"`
	Dropoff map[string]any `json:"dropoff"`
	Amount  float64        `json:"orderAmount"`
	Payment struct {
		Type string `json:"type"`
	} `json:"payment"`
	ReadyAt string `json:"readyAt"`
}

func TestOrders_AreTheSameForTheSameDice(t *testing.T) {
	t.Parallel()

	r := play(t, "orders.js", nil)

	found := notes[struct{ Drawn, Again, Changed order }](t, r)
	if len(found) != 1 {
		t.Fatalf("%d notes, want 1", len(found))
	}

	drawn := found[0].Drawn
	if drawn.StoreID != "store" || drawn.ID != "order" || drawn.Note != "SIM:HOLD=Searching" || drawn.Recipient.Name == "" {
		t.Errorf("the order is %+v", drawn)
	}
	if !reflect.DeepEqual(found[0].Again, drawn) {
		t.Errorf("with the same dice the order is %+v, want %+v", found[0].Again, drawn)
	}

	// A change of the recipient's phone leaves the name.
	want := drawn
	want.Recipient.Phone = "wrong"
	want.Amount = 12.345
	want.ReadyAt = "late"
	want.Payment.Type = "Barter"
	if !reflect.DeepEqual(found[0].Changed, want) {
		t.Errorf("the changed order is %+v, want %+v", found[0].Changed, want)
	}
}
