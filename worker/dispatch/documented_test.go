package dispatch

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/gateway/openapi/documented"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/webhook"
)

// someOrder has gone the whole way to a status.
func someOrder(status delivery.Status, at time.Time) *delivery.Order {
	courier := delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5559998877", VehicleType: "Motorcycle"}
	place := delivery.Location{At: at, Point: delivery.Point{Latitude: 40.98, Longitude: 29.02}}
	o := &delivery.Order{ID: delivery.MakeOrderID(1, 20778, delivery.OrderDigest(delivery.AccountID{}, "A-1")), CreatedAt: at}
	o.ExternalOrderID = "A-1 \"ş\""
	steps := []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Delivered}
	if i := slices.Index(steps, status); i >= 0 {
		steps = steps[:i+1]
	} else {
		steps = []delivery.Status{status}
	}

	for i, s := range steps {
		change := delivery.Change{Status: s, At: at, Courier: courier, Location: place, Version: uint64(i + 2)}
		if s == delivery.Failed {
			change.Failure = delivery.NoCourierFound
		}
		o.Changes = append(o.Changes, change)
	}

	o.Courier, o.Location = courier, place

	return o
}

// asReceived is a header as a server in Go gets it.
func asReceived(sent http.Header) http.Header {
	received := http.Header{}
	for name, values := range sent {
		if len(values) > 0 {
			received[http.CanonicalHeaderKey(name)] = values
		}
	}
	return received
}

// Every event that can be sent is documented, as it is sent: for an order in every
// status, for stores and fleets with names that need escaping, before and after a
// rotation. And no event is documented that is never sent.
func TestEvents_AreAsDocumented(t *testing.T) {
	now, fleet := time.Now(), delivery.NewFleetID()
	events := map[string]*partitions.Delivery{}
	for s := delivery.Assigned; s <= delivery.Cancelled; s++ {
		events["order "+s.String()] = &partitions.Delivery{Type: delivery.StatusChanged, Order: someOrder(s, now)}
	}

	for s := delivery.Assigned; s <= delivery.Delivering; s++ {
		events["courier "+s.String()] = &partitions.Delivery{Type: delivery.CourierChanged, Order: someOrder(s, now)}
		events["estimate "+s.String()] = &partitions.Delivery{Type: delivery.ETAChanged, Order: someOrder(s, now)}
	}

	for name, d := range map[string]*partitions.Delivery{
		"activated":   {Type: delivery.StoreActivated, Data: delivery.AppendStoreActivated(nil, "ş\"1", fleet, "Kurye \\ A")},
		"migrating":   {Type: delivery.StoreMigrating, Data: delivery.AppendStoreMigrating(nil, "moda", now)},
		"deactivated": {Type: delivery.StoreDeactivated, Data: delivery.AppendStoreDeactivated(nil, "moda", delivery.FleetSuspended)},
		"rejected":    {Type: delivery.StoreRejected, Data: delivery.AppendStoreRejected(nil, "moda", fleet, "Kurye", "çok \"uzak\"")},
		"no reason":   {Type: delivery.StoreRejected, Data: delivery.AppendStoreRejected(nil, "moda", fleet, "Kurye", "")},
		"overdue":     {Type: delivery.PaymentOverdue, Data: delivery.AppendPaymentOverdue(nil, fleet, "Kurye", []string{"moda", "şişli"})},
		"report": {Type: delivery.ReportAvailable, Data: delivery.AppendReportAvailable(nil, &delivery.AvailableReport{
			ID: "closing \"2026-10\"", Kind: delivery.ReportClosing, Month: "2026-10", Seal: delivery.Seal{Sequence: 7, SHA256: strings.Repeat("0a", 32)}, At: now,
			Files: []delivery.DeliveredFile{{Target: "erp", Name: "şubeler.csv", SHA256: strings.Repeat("f1", 32)}, {Target: "b", Name: "b", SHA256: strings.Repeat("00", 32)}}})},
		"report without files": {Type: delivery.ReportAvailable, Data: delivery.AppendReportAvailable(nil, &delivery.AvailableReport{ID: "s", Kind: delivery.ReportScheduled, At: now})},
		"test":                 {Type: delivery.WebhookTest, Data: fmt.Appendf(nil, `{"accountId":%q}`, delivery.NewAccountID())},
	} {
		events[name] = d
	}

	met := map[string]bool{}
	for name, d := range events {
		for earlier := range 5 {
			d.EventID, d.OccurredAt = delivery.EventID(delivery.OrderID{}, 7), now
			a := &attempt{Delivery: d, number: 3, receiver: partitions.Receiver{Secret: webhook.NewSecret()}}
			for range earlier {
				a.receiver.Earlier = append(a.receiver.Earlier, ledger.EarlierSecret{Secret: webhook.NewSecret(), Until: now.Add(time.Hour)})
			}

			body := appendBody(nil, d)
			sent, err := headers(a, now, body)
			if err != nil {
				t.Fatal(err)
			}

			header := asReceived(sent)
			if err := documented.Check(header, body); err != nil {
				t.Errorf("%s: %v", name, err)
			}

			met[header.Get("X-Service-Event")] = true
		}
	}

	names, err := documented.Events()
	if err != nil {
		t.Fatal(err)
	}

	for event := range names {
		if !met[event] {
			t.Errorf("%s is documented and never sent", event)
		}
	}
}
