package dispatch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"vendorapi/gateway/openapi"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/webhook"
)

// documentedEvents are the events of the Vendor API's document, each with the schema of
// its headers and its body, which may have nothing that is not documented.
var documentedEvents = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	spec, err := openapi3.NewLoader().LoadFromData(openapi.Vendor)
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	checks := object{}
	for name, item := range spec.Webhooks {
		known, required := object{}, []string{}
		for _, ofHTTP := range []string{"Accept-Encoding", "Connection", "Content-Length", "Content-Type", "User-Agent"} {
			known[ofHTTP] = true
		}
		for _, p := range item.Post.Parameters {
			header := http.CanonicalHeaderKey(p.Value.Name)
			if known[header] = p.Value.Schema; p.Value.Required {
				required = append(required, header)
			}
		}
		checks[name] = object{"required": []string{"body"}, "properties": object{
			"header": object{"properties": known, "required": required},
			"body":   item.Post.RequestBody.Value.Content["application/json"].Schema,
		}}
	}
	text, err := json.Marshal(object{"components": spec.Components, "checks": checks})
	if err != nil {
		return nil, err
	}
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	closeObjects(content)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("mem:vendor", content); err != nil {
		return nil, err
	}
	events := map[string]*jsonschema.Schema{}
	for name := range checks {
		if events[name], err = compiler.Compile("mem:vendor#/checks/" + name); err != nil {
			return nil, err
		}
	}
	return events, nil
})

// closeObjects forbids members that an object schema does not name.
func closeObjects(value any) {
	switch value := value.(type) {
	case map[string]any:
		if _, isObject := value["properties"].(map[string]any); isObject && value["allOf"] == nil && value["oneOf"] == nil && value["anyOf"] == nil {
			value["additionalProperties"] = false
		}
		for _, member := range value {
			closeObjects(member)
		}
	case []any:
		for _, member := range value {
			closeObjects(member)
		}
	}
}

// checkEvent says how a webhook, as a receiver got it, is not as documented.
func checkEvent(header http.Header, body []byte) error {
	events, err := documentedEvents()
	if err != nil {
		return err
	}
	name := header.Get("X-Service-Event")
	if events[name] == nil {
		return fmt.Errorf("the event %q is not documented", name)
	}
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	headers := map[string]any{}
	for name, values := range header {
		headers[name] = strings.Join(values, "\n") // twice is as no schema has it
		if n := json.Number(values[0]); len(values) == 1 && (name == "X-Service-Attempt" || name == "Webhook-Timestamp") {
			headers[name] = n
		}
	}
	return events[name].Validate(map[string]any{"header": headers, "body": content})
}

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

// Every event that can be sent is documented, as it is sent: for an order in every
// status, for stores and fleets with names that need escaping, before and after a
// rotation. And no event is documented that is never sent.
func TestEvents_AreAsDocumented(t *testing.T) {
	now, fleet := time.Now(), delivery.NewFleetID()
	events := map[string]*ledger.Delivery{}
	for s := delivery.Assigned; s <= delivery.Cancelled; s++ {
		events["order "+s.String()] = &ledger.Delivery{Type: delivery.StatusChanged, Order: someOrder(s, now)}
	}
	for name, d := range map[string]*ledger.Delivery{
		"activated":   {Type: delivery.StoreActivated, Data: delivery.AppendStoreActivated(nil, "ş\"1", fleet, "Kurye \\ A")},
		"migrating":   {Type: delivery.StoreMigrating, Data: delivery.AppendStoreMigrating(nil, "moda", now)},
		"deactivated": {Type: delivery.StoreDeactivated, Data: delivery.AppendStoreDeactivated(nil, "moda", delivery.FleetSuspended)},
		"rejected":    {Type: delivery.StoreRejected, Data: delivery.AppendStoreRejected(nil, "moda", fleet, "Kurye", "çok \"uzak\"")},
		"no reason":   {Type: delivery.StoreRejected, Data: delivery.AppendStoreRejected(nil, "moda", fleet, "Kurye", "")},
		"overdue":     {Type: delivery.PaymentOverdue, Data: delivery.AppendPaymentOverdue(nil, fleet, "Kurye", []string{"moda", "şişli"})},
		"test":        {Type: delivery.WebhookTest, Data: fmt.Appendf(nil, `{"accountId":%q}`, delivery.NewAccountID())},
	} {
		events[name] = d
	}
	met := map[string]bool{}
	for name, d := range events {
		for earlier := range 5 {
			d.EventID, d.Attempt, d.OccurredAt = delivery.EventID(delivery.OrderID{}, 7), 3, now
			d.Receiver = &ledger.Receiver{Secret: webhook.NewSecret()}
			for range earlier {
				d.Receiver.Earlier = append(d.Receiver.Earlier, ledger.EarlierSecret{Secret: webhook.NewSecret(), Until: now.Add(time.Hour)})
			}
			body := appendBody(nil, d)
			header, err := headers(d, now, body)
			if err != nil {
				t.Fatal(err)
			}
			delete(header, "Idempotency-Key") // net/http takes it away, see headers
			if err := checkEvent(header, body); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			met[header.Get("X-Service-Event")] = true
		}
	}
	documented, err := documentedEvents()
	if err != nil {
		t.Fatal(err)
	}
	for event := range documented {
		if !met[event] {
			t.Errorf("%s is documented and never sent", event)
		}
	}
}
