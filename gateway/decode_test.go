package main

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
)

// everyField is an order in which every field has a value that tells it apart.
const everyField = `{"externalStoreId":"a","externalOrderId":"b","orderedAt":"c","readyAt":"d",
	"recipient":{"name":"e","phone":"f","unknown":{"deep":[1,null]}},
	"dropoff":{"text":"g","latitude":1,"longitude":2,"buildingNo":"h","doorNo":"i","floor":"j","note":"k"},
	"packageNote":"l","orderAmount":3.50,"payment":{"type":"m","collectionAmount":4e0},"unknown":true}`

// decode reads a body into fields.
func decode(body string, into *strictjson.Fields) ([]delivery.FieldError, error) {
	r := strictjson.New(body)
	r.Root(into)
	return r.Wrong, r.End()
}

func text(s string) delivery.Text     { return delivery.Text{Value: s, Set: true} }
func number(s string) delivery.Number { return delivery.Number{Literal: s, Set: true} }

//rule:order-creation-request/externalStoreId order-creation-request/externalOrderId order-creation-request/orderedAt order-creation-request/readyAt
//rule:order-creation-request/recipient.name order-creation-request/recipient.phone order-creation-request/dropoff.text
//rule:order-creation-request/dropoff.latitude order-creation-request/dropoff.longitude order-creation-request/dropoff.buildingNo
//rule:order-creation-request/dropoff.doorNo order-creation-request/dropoff.floor order-creation-request/dropoff.note
//rule:order-creation-request/packageNote order-creation-request/orderAmount order-creation-request/payment.type
//rule:order-creation-request/payment.collectionAmount post-orders/request-order-fields-see-resources
func TestDecodeOrder_EveryField(t *testing.T) {
	var got delivery.OrderRequest
	if wrong, err := decode(everyField, strictjson.Bind(&got)); err != nil || wrong != nil {
		t.Fatal(wrong, err)
	}

	want := delivery.OrderRequest{
		ExternalStoreID: text("a"), ExternalOrderID: text("b"), OrderedAt: text("c"), ReadyAt: text("d"),
		RecipientName: text("e"), RecipientPhone: text("f"),
		DropoffText: text("g"), DropoffLatitude: number("1"), DropoffLongitude: number("2"),
		DropoffBuildingNo: text("h"), DropoffDoorNo: text("i"), DropoffFloor: text("j"), DropoffNote: text("k"),
		PackageNote: text("l"), OrderAmount: number("3.50"), PaymentType: text("m"), PaymentCollectionAmount: number("4e0"),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

//rule:store/request-fields/taxNumber store/request-fields/name store/request-fields/phone store/request-fields/address.text
//rule:store/request-fields/address.latitude store/request-fields/address.longitude put-stores-externalstoreid/request-store-fields-see-resources
func TestDecodeStore_EveryField(t *testing.T) {
	var got delivery.StoreRequest
	wrong, err := decode(`{"taxNumber":"a","name":"b","phone":"c","address":{"text":"d","latitude":1,"longitude":2,"x":0},"fleetId":"e","x":{}}`, strictjson.Bind(&got))
	want := delivery.StoreRequest{
		TaxNumber: text("a"), Name: text("b"), Phone: text("c"), AddressText: text("d"),
		AddressLatitude: number("1"), AddressLongitude: number("2"), FleetID: text("e"),
	}
	if err != nil || wrong != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, %v", got, wrong, err)
	}
	if wrong, err := decode(`{"address":"Moda"}`, strictjson.Bind(&got)); err != nil || len(wrong) != 1 || wrong[0].Field != "address" {
		t.Errorf("%+v, %v", wrong, err)
	}
}

func TestDecodeCancel_EveryField(t *testing.T) {
	var got delivery.CancelRequest
	if _, err := decode(`{"reason":"a","note":"b","x":[]}`, strictjson.Bind(&got)); err != nil || got.Reason != text("a") || got.Note != text("b") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDecodeOrder_DoesNotAllocateForPlainBodies(t *testing.T) {
	body := orderBody("POS-1")
	var o delivery.OrderRequest
	fields := strictjson.Bind(&o)
	if n := testing.AllocsPerRun(100, func() {
		o = delivery.OrderRequest{}
		if _, err := decode(body, fields); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDecodeOrder holds the whole way of a body to encoding/json: what is
// accepted is valid there with the same values, and what the domain then says is
// an order or a refusal, never a panic.
func FuzzDecodeOrder(f *testing.F) {
	for _, seed := range []string{everyField, orderBody("POS-1"), `{"recipient":null,"dropoff":[],"payment":{"type":1}}`,
		`{"dropoff":{"latitude":1e999,"longitude":-0}}`, `{"packageNote":"\u0000\ud800"}`, `{"orderAmount":-0.0}`} {
		f.Add(seed)
	}

	now := time.Date(2026, 11, 21, 12, 0, 0, 0, delivery.Istanbul)
	f.Fuzz(func(t *testing.T, body string) {
		var o delivery.OrderRequest
		wrong, err := decode(body, strictjson.Bind(&o))
		if err != nil {
			return
		}

		if !json.Valid([]byte(body)) {
			t.Fatalf("accepted %q", body)
		}

		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &members); err != nil {
			t.Fatal(err)
		}

		var note *string
		if json.Unmarshal(members["packageNote"], &note) == nil && note != nil && (!o.PackageNote.Set || o.PackageNote.Value != *note) {
			t.Errorf("packageNote = %+v, want %q", o.PackageNote, *note)
		}

		_, err = o.Check(&delivery.Faults{WrongType: wrong}, now)
		var refusal *delivery.Error
		if err != nil && !errors.As(err, &refusal) {
			t.Errorf("the domain says %v", err)
		}
	})
}

func TestRoutes_MatchTheRawPath(t *testing.T) {
	rs := vendorRoutes()
	for target, want := range map[string]string{
		"/api/vendor/v1/orders":                            "POST",
		"/api/vendor/v1/orders?x=1":                        "POST",
		"http://host/api/vendor/v1/orders":                 "POST",
		"HTTPS://host:1/api/vendor/v1/orders?x":            "POST",
		"/api/vendor/v1/orders/1":                          "GET",
		"/api/vendor/v1/orders/1%2Fcancel":                 "GET",
		"/api/vendor/v1/orders/1/cancel":                   "POST",
		"/api/vendor/v1/webhook":                           "PUT, GET, DELETE",
		"/api/vendor/v1/orders/":                           "",
		"/api/vendor/v1//orders":                           "",
		"/api/vendor/v1/./orders":                          "",
		"/api/vendor/v1/x/../orders":                       "",
		"/api/vendor/v1/orders/1/cancel/2/3/4/5/6/7/8/9/0": "",
		"/api/vendor/v1/orders#x":                          "",
		"http://host":                                      "",
		"http:///api/vendor/v1/orders":                     "",
		"ftp://host/api/vendor/v1/orders":                  "",
		"*":                                                "",
		"":                                                 "",
	} {
		if found, _, allow := rs.match([]byte("TRACE"), []byte(target)); found != nil || allow != want {
			t.Errorf("%q: %v, allow %q", target, found, allow)
		}
	}

	found, params, _ := rs.match([]byte("PUT"), []byte("/api/vendor/v1/stores/a%2Fb"))
	if found == nil || found.name != "stores_put" || string(params[0]) != "a%2Fb" {
		t.Errorf("%v %q", found, params)
	}

	method, target := []byte("POST"), []byte("/api/vendor/v1/orders/1/cancel")
	if n := testing.AllocsPerRun(100, func() { rs.match(method, target) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDecodeSegment(t *testing.T) {
	for raw, want := range map[string]string{"a": "a", "a%2fb": "a/b", "a+b": "a+b", "%C5%9F": "ş", "%00": "\x00", "": ""} {
		if got, err := decodeSegment([]byte(raw)); err != nil || got != want {
			t.Errorf("%q: %q, %v", raw, got, err)
		}
	}

	for _, raw := range []string{"%", "%2", "%zz", "a%2", "%2g"} {
		if got, err := decodeSegment([]byte(raw)); err == nil {
			t.Errorf("%q: %q", raw, got)
		}
	}
}
