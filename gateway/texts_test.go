package main

import (
	"strings"
	"testing"
)

// A member that differs from the right one in case or spelling is named in the refusal for which it
// is to blame, in every API.
//
//rule:decisions/malformed-or-unknown
func TestRefusals_NameMisspeltMembers(t *testing.T) {
	e := newStoreEnv(t, "")
	order := e.created("POS-1")
	token := func(body string) answer {
		return e.send(request{method: "POST", url: e.vendor + "/api/vendor/v1/token", body: body})
	}
	pascal := strings.NewReplacer(`"externalStoreId"`, `"ExternalStoreId"`, `"externalOrderId"`, `"ExternalOrderId"`, `"recipient"`, `"Recipient"`,
		`"name"`, `"Name"`, `"phone"`, `"Phone"`, `"dropoff"`, `"Dropoff"`, `"text"`, `"Text"`)
	snake := strings.NewReplacer(`"externalStoreId"`, `"external_store_id"`, `"externalOrderId"`, `"external_order_id"`)
	for name, c := range map[string]struct {
		answer answer
		field  string
		names  []string
	}{
		"an order in PascalCase": {e.order(pascal.Replace(orderBody("POS-2")), ""), "recipient.name", []string{
			`"Recipient" is not known; did you mean "recipient"?`, `"Dropoff" is not known; did you mean "dropoff"?`,
			`"ExternalStoreId" is not known; did you mean "externalStoreId"?`, `"ExternalOrderId" is not known; did you mean "externalOrderId"?`}},
		"an order in snake_case": {e.order(snake.Replace(orderBody("POS-2")), ""), "externalStoreId", []string{
			`"external_store_id" is not known; did you mean "externalStoreId"?`, `"external_order_id" is not known; did you mean "externalOrderId"?`}},
		"a name within":    {e.order(strings.Replace(orderBody("POS-2"), `"phone"`, `"Phone"`, 1), ""), "recipient.phone", []string{`"recipient.Phone" is not known; did you mean "recipient.phone"?`}},
		"a slip":           {e.order(strings.Replace(orderBody("POS-2"), `"recipient"`, `"recipent"`, 1), ""), "recipient.name", []string{`"recipent" is not known; did you mean "recipient"?`}},
		"a token":          {token(`{"client_id":"a","ClientSecret":"b"}`), "clientId", []string{`"client_id" is not known; did you mean "clientId"?`, `"ClientSecret" is not known`}},
		"a store":          {e.putStore(e.account, "s9", strings.Replace(storeBody(kadikoy, ""), `"taxNumber"`, `"TaxNumber"`, 1)), "taxNumber", []string{`"TaxNumber" is not known; did you mean "taxNumber"?`}},
		"a webhook":        {e.call("PUT", "/webhook", `{"URL":"https://vendor.example/"}`), "url", []string{`"URL" is not known; did you mean "url"?`}},
		"a replay":         {e.call("POST", "/webhook/replay", `{"Since":"2026-11-21T12:30:00"}`), "since", []string{`"Since" is not known; did you mean "since"?`}},
		"a courier":        {e.fleet(e.courier, "POST", "/jobs/"+order+"/accept", `{"Courier":{"name":"Ali Veli","phone":"5321234567","vehicleType":"Car"}}`), "courier.name", []string{`"Courier" is not known; did you mean "courier"?`}},
		"a status":         {e.fleet(e.courier, "POST", "/jobs/"+order+"/status", `{"Status":"PickingUp"}`), "status", []string{`"Status" is not known; did you mean "status"?`}},
		"an availability":  {e.fleet(e.courier, "PUT", "/availability", `{"Couriers":1}`), "couriers", []string{`"Couriers" is not known; did you mean "couriers"?`}},
		"an account":       {e.tryAdmin("POST", "/accounts", `{"Name":"POS"}`), "Name", []string{`did you mean "name"?`, `"Name" is not known; did you mean "name"?`}},
		"a limit":          {e.tryAdmin("PATCH", "/accounts/"+e.account.id, `{"limits":{"orders":{"Sustained":{"count":1,"seconds":1}}}}`), "limits.orders.Sustained", []string{`did you mean "limits.orders.sustained"?`}},
		"nothing alike":    {e.order(`{"x":1,"y":{"name":"a"}}`, ""), "recipient.name", nil},
		"a long name":      {e.order(`{"`+strings.Repeat("x", 60_000)+`":1}`, ""), "recipient.name", nil},
		"an optional name": {e.order(strings.Replace(orderBody("POS-2"), `"phone"`, `"x"`, 1), ""), "recipient.phone", nil},
	} {
		t.Run(name, func(t *testing.T) {
			wantField(t, c.answer, 422, "VALIDATION_FAILED", c.field)
			for _, named := range c.names {
				if !strings.Contains(strings.ReplaceAll(c.answer.body, `\"`, `"`), named) {
					t.Errorf("%s is not in %s", named, c.answer.body)
				}
			}

			if c.names == nil && strings.Contains(c.answer.body, "did you mean") {
				t.Errorf("%s", c.answer.body)
			}
		})
	}
}

// What people paste is taken, and what programs compare is kept as it is or refused.
//
//rule:order-creation-request/recipient.phone order-creation-request/externalOrderId errors/INVALID_RECIPIENT
func TestCreateOrder_ReadsWhatCanBeSeen(t *testing.T) {
	e := newStoreEnv(t, "")
	for i, phone := range []string{"\u202a+905321234567\u202c", "\u202d05321234567\u202c", "\u200e5321234567", "\ufeff5321234567", "532123\ufe0d4567", "\u00a05321234567\u00a0"} {
		id := "POS-" + string(rune('a'+i))
		order := e.stored(e.created(id, "recipient.phone", `"`+phone+`"`, "recipient.name", `"\u202eAyşe\u2066"`))
		if order.Recipient.Phone != "5321234567" || order.Recipient.Name != "Ayşe" || order.ExternalOrderID != id {
			t.Errorf("%+q: %+v", phone, order.Recipient)
		}
	}

	arabic := e.order(orderBody("POS-2", "recipient.phone", `"532123456\u0660"`), "")
	wantField(t, arabic, 422, "INVALID_PHONE", "recipient.phone")
	if !strings.Contains(arabic.body, "character 10 is U+0660") {
		t.Errorf("%s", arabic.body)
	}

	wantField(t, e.order(orderBody("POS-2", "recipient.name", `"\u200b\u200b\u202e"`), ""), 422, "INVALID_RECIPIENT", "recipient.name")

	for id, named := range map[string]string{
		"A-1 ": "character 4 is U+0020", `A\u200b1`: "character 2 is U+200B", "s\u0327-1": "NFC", `A\u0007`: "character 2 is U+0007",
	} {
		refused := e.order(orderBody("POS-3", "externalOrderId", `"`+id+`"`), "")
		wantField(t, refused, 422, "VALIDATION_FAILED", "externalOrderId")
		if !strings.Contains(refused.body, named) {
			t.Errorf("%+q: %s", id, refused.body)
		}
		wantField(t, e.order(orderBody("POS-3", "externalStoreId", `"`+id+`"`), ""), 422, "VALIDATION_FAILED", "externalStoreId")
	}

	want(t, e.putStore(e.account, "s%CC%A7-1", storeBody(kadikoy, "")), 422, "VALIDATION_FAILED")
}

// A courier's name needs a letter: nothing else of it is shown. What nobody sees between its words does not
// glue them.
func TestAcceptJob_ReadsTheCouriersName(t *testing.T) {
	e := newStoreEnv(t, "")
	order := e.created("POS-1")
	accept := func(name, phone string) answer {
		return e.fleet(e.courier, "POST", "/jobs/"+order+"/accept", `{"courier":{"name":"`+name+`","phone":"`+phone+`","vehicleType":"Car"}}`)
	}

	for _, name := range []string{"0532 123 45 67", "🛵🛵", "..", `\u200b\u200b`} {
		wantField(t, accept(name, "5321234567"), 422, "VALIDATION_FAILED", "courier.name")
	}

	want(t, accept(`Mehmet\u2060Yılmaz (2)`, "5321234567"), 200, "")
	want(t, accept("Ayşe Kaya", "5321234568"), 409, "JOB_TAKEN", "courier", map[string]any{"name": "Mehmet Y."})
}
