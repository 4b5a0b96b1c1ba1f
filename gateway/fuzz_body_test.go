package main

import (
	"encoding/json"
	"errors"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
)

// standard is an accepted body as encoding/json reads it, which is lenient
// where the gateway is not: what it would have to guess must not have been
// accepted.
func standard(t *testing.T, body string) any {
	t.Helper()
	if !utf8.ValidString(body) || !json.Valid([]byte(body)) {
		t.Fatalf("accepted %q", body)
	}

	tokens := json.NewDecoder(strings.NewReader(body))
	tokens.UseNumber()
	value := uniqueValue(t, tokens)
	return value
}

// uniqueValue reads one value and fails on a key that an object has twice.
func uniqueValue(t *testing.T, tokens *json.Decoder) any {
	t.Helper()
	token, err := tokens.Token()
	if err != nil {
		t.Fatal(err)
	}

	switch token {
	case json.Delim('{'):
		object := map[string]any{}
		for tokens.More() {
			key, err := tokens.Token()
			if err != nil {
				t.Fatal(err)
			}
			if _, again := object[key.(string)]; again {
				t.Fatalf("accepted the key %q twice", key)
			}
			object[key.(string)] = uniqueValue(t, tokens)
		}

		_, _ = tokens.Token()

		return object
	case json.Delim('['):
		list := []any{}
		for tokens.More() {
			list = append(list, uniqueValue(t, tokens))
		}
		_, _ = tokens.Token()
		return list
	}

	return token
}

// at is what stands at a dotted path of objects; nil when nothing does.
func at(value any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

// sameText holds a field to encoding/json: a string is there with that value,
// null and absence are not set, and any other type is reported.
func sameText(t *testing.T, want any, path string, got delivery.Text, wrong []delivery.FieldError) {
	t.Helper()
	value, isText := at(want, path).(string)
	if isText != got.Set || got.Value != value {
		t.Errorf("%s = %+v, want %q", path, got, value)
	}
	checkTyped(t, want, path, isText, wrong)
}

func sameNumber(t *testing.T, want any, path string, got delivery.Number, wrong []delivery.FieldError) {
	t.Helper()
	value, isNumber := at(want, path).(json.Number)
	if isNumber != got.Set || got.Literal != string(value) {
		t.Errorf("%s = %+v, want %q", path, got, value)
	}
	checkTyped(t, want, path, isNumber, wrong)
}

func checkTyped(t *testing.T, want any, path string, typed bool, wrong []delivery.FieldError) {
	t.Helper()
	reported := false
	for _, fault := range wrong {
		reported = reported || fault.Field == path
	}

	if other := at(want, path) != nil && !typed; other != reported {
		t.Errorf("%s: of another type %v, reported %v", path, other, reported)
	}
}

// FuzzDecodeStore holds a store's body to encoding/json, and what the domain
// says of it to the spec.
func FuzzDecodeStore(f *testing.F) {
	for _, seed := range []string{storeBody(kadikoy, ""), storeBody(kadikoy, delivery.NewFleetID().String()),
		`{"address":{"latitude":1e999,"longitude":-0,"text":null},"address.text":"x"}`, `{"name":"\ud800\u0000","phone":5}`,
		`{"taxNumber":"12345678901","phone":"+90 532"}`, `{"fleetId":"00000000-0000-0000-0000-000000000000"}`} {
		f.Add(seed)
	}

	stored := &delivery.Store{State: delivery.Active, Name: "n", Phone: "2161234567", TaxNumber: "1234567890", Address: "a", Point: besiktas}
	f.Fuzz(func(t *testing.T, body string) {
		var s delivery.StoreRequest
		wrong, err := decode(body, strictjson.Bind(&s))
		if err != nil {
			checkRefusal(t, err, delivery.CodeMalformedRequest)
			return
		}

		want := standard(t, body)
		for path, got := range map[string]delivery.Text{"taxNumber": s.TaxNumber, "name": s.Name, "phone": s.Phone,
			"address.text": s.AddressText, "fleetId": s.FleetID} {
			sameText(t, want, path, got, wrong)
		}

		sameNumber(t, want, "address.latitude", s.AddressLatitude, wrong)
		sameNumber(t, want, "address.longitude", s.AddressLongitude, wrong)
		for _, existing := range []*delivery.Store{nil, stored} {
			fields, err := s.Check(&delivery.Faults{WrongType: wrong}, existing)
			if err != nil {
				if code := delivery.CodeOf(err); code.HTTPStatus() != 422 {
					t.Errorf("refused with %v", err)
				}
				continue
			}

			if !delivery.InTurkey(fields.Point) || len(fields.Phone) != 10 || fields.Name == "" || fields.Address == "" || fields.TaxNumber == "" {
				t.Errorf("accepted %+v", fields)
			}
		}
	})
}

// FuzzDecodeCancel does the same with the body of a cancellation.
func FuzzDecodeCancel(f *testing.F) {
	for _, seed := range []string{`{"reason":"Other","note":"n"}`, `{"reason":"other"}`, `{"note":"\u0000"}`, `{"reason":1,"note":[]}`, `{"Reason":"Other"}`} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, body string) {
		var c delivery.CancelRequest
		wrong, err := decode(body, strictjson.Bind(&c))
		if err != nil {
			checkRefusal(t, err, delivery.CodeMalformedRequest)
			return
		}

		want := standard(t, body)
		sameText(t, want, "reason", c.Reason, wrong)
		sameText(t, want, "note", c.Note, wrong)
		reason, note, err := c.Check(&delivery.Faults{WrongType: wrong})
		if err != nil {
			checkRefusal(t, err, delivery.CodeValidationFailed)
		} else if string(reason) != c.Reason.Value || utf8.RuneCountInString(note) > 256 || strings.ContainsRune(note, 0) {
			t.Errorf("accepted %q, %q", reason, note)
		}
	})
}

func checkRefusal(t *testing.T, err error, codes ...delivery.Code) {
	t.Helper()
	var refusal *delivery.Error
	if errors.As(err, &refusal) && refusal.Message != "" && len(refusal.Fields) <= 50 {
		for _, code := range codes {
			if refusal.Code == code {
				return
			}
		}
	}

	t.Errorf("refused with %v", err)
}

// FuzzDecodePositions: every element of a JSON array is a position, no place, or named.
func FuzzDecodePositions(f *testing.F) {
	id := delivery.MakeOrderID(3, 20000, delivery.OrderDigest(delivery.AccountID{1}, "order")).String()
	for _, seed := range []string{`[]`, `[{"orderId":"` + id + `","latitude":41,"longitude":29,"at":"2026-11-21T12:00:00+03:00"}]`,
		`[{"orderId":"` + id + `","latitude":-90.0,"longitude":1.8e2}]`, `[{"orderId":1,"latitude":"41"},null,[],{}]`, `{}`, `[1e999,-0]`,
		`[{"orderId":"` + id + `","latitude":41,"longitude":29,"at":"2026-11-23T12:00:00+03:00"}]`,
		`[{"orderId":"` + id + `","latitude":41,"longitude":29,"longitude":30},{"orderId":"` + id + `","latitude":0,"longitude":0}]`} {
		f.Add(seed)
	}

	now := time.Date(2026, 11, 21, 12, 0, 0, 0, delivery.Istanbul)
	f.Fuzz(func(t *testing.T, body string) {
		batch, err := decodePositions(body, now)
		if err != nil {
			checkRefusal(t, err, delivery.CodeMalformedRequest, delivery.CodeValidationFailed)
			return
		}

		if batch.size > maxPositions || batch.size != len(batch.positions)+batch.implausible+batch.rejectedCount ||
			len(batch.rejected) != min(batch.rejectedCount, maxRejected) {
			t.Fatalf("%+v of %q", batch, body)
		}

		var list []json.RawMessage
		if err := json.Unmarshal([]byte(body), &list); err != nil || len(list) != batch.size {
			t.Fatalf("%d elements of %q, %v", batch.size, body, err)
		}

		for _, p := range batch.positions {
			if !delivery.IsNearTurkey(p.Location.Point) || p.Location.At.After(now) || p.Location.At.Before(now.Add(-maxBehind)) {
				t.Errorf("accepted %+v", p)
			}
		}

		for _, r := range batch.rejected {
			if r.Index >= batch.size || r.Message == "" || r.ErrorCode != delivery.CodeValidationFailed && r.ErrorCode != delivery.CodeMalformedRequest {
				t.Errorf("rejected %+v", r)
			}
		}
	})
}

// FuzzForm: a form reads what encoding/json reads at the same path, and nothing
// that stands elsewhere.
func FuzzForm(f *testing.F) {
	for _, seed := range []string{
		`{"clientId":"ven_1","clientSecret":"vas_1"}`, `{"courier":{"name":"A B","phone":"5321234567"}}`, `{"courier.name":"x"}`,
		`{"courier":{"name":"a"},"courier.name":"b"}`, `{"limits":{"orders":{"burst":{"count":1e0,"seconds":-0}}}}`,
		`{"eventIds":["a",1,null]}`, `{"coverage":{"type":"Polygon","type":"x"}}`, `{"suspended":"true"}`, `{"courier.":{"name":1}}`,
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, body string) {
		var got struct {
			ClientID delivery.Text `json:"clientId"`
			Courier  struct {
				Name  delivery.Text `json:"name"`
				Phone delivery.Text `json:"phone"`
			} `json:"courier"`
			Count     delivery.Number `json:"limits.orders.burst.count"`
			Seconds   delivery.Number `json:"limits.orders.burst.seconds"`
			Suspended *bool           `json:"suspended"`
			EventIDs  []string        `json:"eventIds"`
			Coverage  strictjson.Raw  `json:"coverage"`
		}

		form := readForm(body, strictjson.Bind(&got))
		if form.malformed != nil {
			checkRefusal(t, form.malformed, delivery.CodeMalformedRequest)
			return
		}

		want := standard(t, body)
		for path, text := range map[string]delivery.Text{"clientId": got.ClientID, "courier.name": got.Courier.Name, "courier.phone": got.Courier.Phone} {
			sameText(t, want, path, text, form.WrongType)
		}

		for path, number := range map[string]delivery.Number{"limits.orders.burst.count": got.Count, "limits.orders.burst.seconds": got.Seconds} {
			sameNumber(t, want, path, number, form.WrongType)
		}

		if flag, is := at(want, "suspended").(bool); is != (got.Suspended != nil) || is && *got.Suspended != flag {
			t.Errorf("suspended = %v, want %v", got.Suspended, flag)
		}
		if list, is := at(want, "eventIds").([]any); is != (got.EventIDs != nil) || len(list) != len(got.EventIDs) {
			t.Errorf("eventIds = %q, want %v", got.EventIDs, list)
		}
		if raw := at(want, "coverage"); raw == nil != (got.Coverage.Text == "") || raw != nil && !reflect.DeepEqual(standard(t, got.Coverage.Text), raw) {
			t.Errorf("coverage = %s, want %v", got.Coverage.Text, raw)
		}

		if err := form.err(); err != nil {
			checkRefusal(t, err, delivery.CodeValidationFailed)
		}
	})
}

// FuzzWebhookURL: what may be registered leads to a public host by https,
// whatever notation it is written in.
func FuzzWebhookURL(f *testing.F) {
	for _, seed := range []string{"https://vendor.example/hook?x=1", "https://127.0.0.1/", "https://[::ffff:10.0.0.1]/", "https://2130706433/",
		"https://0x7f.1/", "https://user@vendor.example/", "https://vendor.example:0/", "https://ｖｅｎｄｏｒ。example/", "https://127。0。0。1/",
		"https://vendor.example\\@127.0.0.1/", "//x", "https://[fe80::1%25eth0]/", "https://localhost/", "https://a..b/", "http://vendor.example/"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		if webhookURLFault(text, false) != "" {
			return
		}

		var u fasthttp.URI // another reader of the same text
		if err := u.Parse(nil, []byte(text)); err != nil {
			return
		}

		host, _, err := net.SplitHostPort(string(u.Host()))
		if err != nil {
			host = strings.Trim(string(u.Host()), "[]")
		}

		ip := net.ParseIP(host)
		if ip != nil && (ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsMulticast()) ||
			!strings.EqualFold(string(u.Scheme()), "https") || len(u.Username()) > 0 || strings.EqualFold(host, "localhost") || len(text) > maxWebhookURL {
			t.Errorf("%q was accepted and leads to %q", text, u.Host())
		}
	})
}
