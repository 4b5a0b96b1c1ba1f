package dispatch

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"vendorapi/gateway/openapi/documented"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

// exampleBody has the members of all events' bodies, as examples have them.
type exampleBody struct {
	EventID, Event string
	OccurredAt     time.Time
	Data           exampleData
}

type exampleData struct {
	AccountID                delivery.AccountID
	OrderID, ExternalOrderID string
	Status                   string
	Courier                  *struct{ Name, Phone, VehicleType string }
	Location                 *struct{ Latitude, Longitude float64 }
	EtaDropoffAt             time.Time
	FailureReason            string

	ExternalStoreID, Reason, ClosingDate string
	ExternalStoreIDs                     []string
	Fleet                                struct {
		FleetID uuid.UUID
		Name    string
	}

	exampleReport
}

// exampleReport is the data of report.available.
type exampleReport struct {
	ID, Kind, Month string
	Seal            delivery.Seal
	Files           []delivery.DeliveredFile
	At              time.Time
}

func (r *exampleReport) sent() []byte {
	return delivery.AppendReportAvailable(nil, &delivery.AvailableReport{
		ID: r.ID, Kind: delivery.ReportKind(r.Kind), Month: r.Month, Seal: r.Seal, Files: r.Files, At: r.At,
	})
}

// event is what the worker sends with the values of an example.
func (b *exampleBody) event(t *testing.T) *partitions.Delivery {
	t.Helper()
	d := &partitions.Delivery{Type: delivery.EventType(b.Event), EventID: b.EventID, OccurredAt: b.OccurredAt}
	data := &b.Data
	switch d.Type {
	case delivery.StatusChanged, delivery.CourierChanged, delivery.ETAChanged:
		d.Order = data.order(t, b.OccurredAt)
	case delivery.StoreActivated:
		d.Data = delivery.AppendStoreActivated(nil, data.ExternalStoreID, delivery.FleetID(data.Fleet.FleetID), data.Fleet.Name)
	case delivery.StoreMigrating:
		closing, err := time.Parse(time.DateOnly, data.ClosingDate)
		if err != nil {
			t.Fatal(err)
		}
		d.Data = delivery.AppendStoreMigrating(nil, data.ExternalStoreID, closing)
	case delivery.StoreDeactivated:
		d.Data = delivery.AppendStoreDeactivated(nil, data.ExternalStoreID, delivery.DeactivationReason(data.Reason))
	case delivery.StoreRejected:
		d.Data = delivery.AppendStoreRejected(nil, data.ExternalStoreID, delivery.FleetID(data.Fleet.FleetID), data.Fleet.Name, data.Reason)
	case delivery.PaymentOverdue:
		d.Data = delivery.AppendPaymentOverdue(nil, delivery.FleetID(data.Fleet.FleetID), data.Fleet.Name, data.ExternalStoreIDs)
	case delivery.ReportAvailable:
		d.Data = data.sent()
	case delivery.WebhookTest:
		d.Data = partitions.Ping(data.AccountID, b.OccurredAt).Data
	}

	return d
}

// order has one change, to the status of an example.
func (data *exampleData) order(t *testing.T, at time.Time) *delivery.Order {
	t.Helper()
	id, err := delivery.ParseOrderID(data.OrderID)
	if err != nil {
		t.Fatal(err)
	}

	change := delivery.Change{At: at, ETA: data.EtaDropoffAt, Failure: delivery.FailureReason(data.FailureReason)}
	for status := delivery.Searching; status <= delivery.Cancelled; status++ {
		if status.String() == data.Status {
			change.Status = status
		}
	}

	if data.Courier != nil {
		change.Courier = delivery.Courier{Name: data.Courier.Name, Phone: data.Courier.Phone, VehicleType: data.Courier.VehicleType}
	}

	if data.Location != nil {
		change.Location = delivery.Location{At: at, Point: delivery.Point{Latitude: data.Location.Latitude, Longitude: data.Location.Longitude}}
	}

	o := &delivery.Order{ID: id, CreatedAt: at, Changes: []delivery.Change{change}, Courier: change.Courier, Location: change.Location}
	o.ExternalOrderID = data.ExternalOrderID

	return o
}

// The examples of events are what the worker sends with their values: no member more, none
// less, and ids of the kind that such an event has.
func TestExamples_OfWebhooksAreAsTheyAreSent(t *testing.T) {
	examples, err := documented.Examples()
	if err != nil {
		t.Fatal(err)
	}
	events, err := documented.Events()
	if err != nil {
		t.Fatal(err)
	}

	for event := range events {
		if len(examples[event]) == 0 {
			t.Errorf("%s has no example", event)
		}
	}

	for event, bodies := range examples {
		for _, body := range bodies {
			var b exampleBody
			if err := json.Unmarshal(body, &b); err != nil {
				t.Fatalf("%s: %v in %s", event, err, body)
			}

			sent := appendBody(nil, b.event(t))
			if !sameJSON(t, sent, body) {
				t.Errorf("%s: the example is\n%s, the worker sends\n%s", event, body, sent)
			}
			if b.Event != event || !strings.HasPrefix(b.EventID, b.idPrefix(t)) {
				t.Errorf("%s: the example of %s has the id %s, such events have %s…", event, b.Event, b.EventID, b.idPrefix(t))
			}
		}
	}
}

// idPrefix is what the event's id begins with: all of it where it is made of the content,
// the order's id of an order's event, else a UUID's version.
func (b *exampleBody) idPrefix(t *testing.T) string {
	t.Helper()
	switch delivery.EventType(b.Event) {
	case delivery.StatusChanged, delivery.CourierChanged, delivery.ETAChanged:
		return "evt_" + strings.ReplaceAll(b.Data.OrderID, "-", "")
	case delivery.ReportAvailable:
		return "evt_" + uuid.NewSHA1(uuid.UUID(delivery.FinanceAccount), []byte(b.Data.ID)).String()
	}

	id, err := uuid.Parse(strings.TrimPrefix(b.EventID, "evt_"))
	if err != nil {
		t.Fatalf("%s: %s: %v", b.Event, b.EventID, err)
	}

	want := uuid.Version(4)
	if delivery.EventType(b.Event) == delivery.PaymentOverdue {
		want = 5 // made of the content, so that a day has it once
	}

	if id.Version() != want {
		t.Errorf("%s: the example has an id of version %d, such events have %d", b.Event, id.Version(), want)
	}

	return "evt_"
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var first, second any
	if err := json.Unmarshal(a, &first); err != nil {
		t.Fatalf("%v in %s", err, a)
	}
	if err := json.Unmarshal(b, &second); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return reflect.DeepEqual(first, second)
}

// WEBHOOKS.md shows the data of report.available as it is sent.
func TestExamples_OfWEBHOOKSAreAsTheyAreSent(t *testing.T) {
	text, err := os.ReadFile("../../gateway/openapi/WEBHOOKS.md")
	if err != nil {
		t.Fatal(err)
	}

	shown := 0
	for _, block := range regexp.MustCompile(`(?m)(?:^    .*\n)+`).FindAllString(string(text), -1) {
		var report exampleReport
		isReport := json.Unmarshal([]byte(block), &report) == nil && report.Kind != ""
		if !isReport {
			continue
		}

		shown++
		if sent := report.sent(); !sameJSON(t, sent, []byte(block)) {
			t.Errorf("WEBHOOKS.md shows\n%s, finance's receiver gets\n%s", block, sent)
		}
	}

	if shown == 0 {
		t.Error("WEBHOOKS.md shows no report.available")
	}
}
