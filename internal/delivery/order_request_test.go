package delivery

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, Istanbul)

func text(s string) Text      { return Text{Value: s, Set: true} }
func literal(s string) Number { return Number{Literal: s, Set: true} }
func chars(n int) string      { return strings.Repeat("ş", n) }
func fieldNames(e *Error) string {
	names := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		names[i] = f.Field
	}
	return strings.Join(names, ",")
}

// validOrder has every field set.
func validOrder() OrderRequest {
	return OrderRequest{
		ExternalStoreID: text("store-1"), ExternalOrderID: text("order-1"),
		OrderedAt: text("2026-11-21T11:55:00"), ReadyAt: text("2026-11-21T12:20:00+03:00"),
		RecipientName: text(" Ayşe Öztürk "), RecipientPhone: text("+905321234567"),
		DropoffText: text("Bağdat Cd. 12, Kadıköy\r\n2. kat"), DropoffLatitude: literal("40.9903"), DropoffLongitude: literal("29.029"),
		DropoffBuildingNo: text("12"), DropoffDoorNo: text("3"), DropoffFloor: text("2"), DropoffNote: text("zil bozuk\n\tara"),
		PackageNote: text("kırılacak"), OrderAmount: literal("250.50"), PaymentType: text("Cash"), PaymentCollectionAmount: literal("250.5"),
	}
}

//rule:order-creation-request/orderedAt order-creation-request/readyAt order-creation-request/recipient.phone
//rule:order-creation-request/dropoff.buildingNo order-creation-request/dropoff.doorNo order-creation-request/dropoff.floor
//rule:order-creation-request/dropoff.note order-creation-request/orderAmount order-creation-request/payment.type
//rule:order-creation-request/payment.collectionAmount
func TestOrderRequest_BecomesADraft(t *testing.T) {
	r := validOrder()
	r.PaymentType, r.PaymentCollectionAmount = text("Card"), literal("199.9")
	got, err := r.Check(new(Faults), noon)
	must(t, err)
	want := OrderDraft{
		ExternalStoreID: "store-1", ExternalOrderID: "order-1",
		OrderedAt: noon.Add(-5 * time.Minute), ReadyAt: noon.Add(20 * time.Minute),
		Recipient: Recipient{Name: "Ayşe Öztürk", Phone: "5321234567"},
		Dropoff: Dropoff{
			Text: "Bağdat Cd. 12, Kadıköy\r\n2. kat", Point: Point{40.9903, 29.029},
			BuildingNo: "12", DoorNo: "3", Floor: "2", Note: "zil bozuk\n\tara",
		},
		PackageNote: "kırılacak", OrderAmount: Money{25050, true}, Payment: Payment{Type: Card, CollectionAmount: Money{19990, true}},
	}

	check(t, reflect.DeepEqual(got, want), "got  %+v\nwant %+v", got, want)
}

//rule:order-creation-request/readyAt
func TestOrderRequest_NeedsOnlyTheRequired(t *testing.T) {
	full := validOrder()
	r := OrderRequest{
		ExternalStoreID: full.ExternalStoreID, ExternalOrderID: full.ExternalOrderID,
		RecipientName: full.RecipientName, RecipientPhone: full.RecipientPhone,
		DropoffText: full.DropoffText, DropoffLatitude: full.DropoffLatitude, DropoffLongitude: full.DropoffLongitude,
	}

	got, err := r.Check(new(Faults), noon)
	must(t, err)
	check(t, got.ReadyAt.Equal(noon) && got.OrderedAt.IsZero() && !got.OrderAmount.Set && got.Payment == (Payment{}) && got.PackageNote == "", "defaults: %+v", got)
}

//rule:order-creation-request/externalStoreId order-creation-request/externalOrderId order-creation-request/recipient.name
//rule:order-creation-request/dropoff.text order-creation-request/packageNote order-creation-request/payment.type
//rule:limits/other-constants/externalorderid-length limits/other-constants/packagenote-length limits/other-constants/readyat-maximum-lead
//rule:limits/other-constants/recipient.name-length limits/other-constants/dropoff.text-length decisions/lengths
//rule:decisions/missing-recipient.name-phone-dropoff.text-or-coordinates
func TestOrderRequest_RefusesEveryFaultByItsCode(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*OrderRequest)
		code   Code
		fields string
	}{
		"name missing":        {func(r *OrderRequest) { r.RecipientName = Text{} }, CodeValidationFailed, "recipient.name"},
		"name empty":          {func(r *OrderRequest) { r.RecipientName = text("") }, CodeInvalidRecipient, "recipient.name"},
		"name of one":         {func(r *OrderRequest) { r.RecipientName = text(" Ş ") }, CodeInvalidRecipient, "recipient.name"},
		"name of two":         {func(r *OrderRequest) { r.RecipientName = text("Şu") }, "", ""},
		"name of 200":         {func(r *OrderRequest) { r.RecipientName = text(chars(200)) }, "", ""},
		"name of 201":         {func(r *OrderRequest) { r.RecipientName = text(chars(201)) }, CodeValidationFailed, "recipient.name"},
		"name with NUL":       {func(r *OrderRequest) { r.RecipientName = text("Ay\x00şe") }, CodeValidationFailed, "recipient.name"},
		"phone missing":       {func(r *OrderRequest) { r.RecipientPhone = Text{} }, CodeValidationFailed, "recipient.phone"},
		"phone empty":         {func(r *OrderRequest) { r.RecipientPhone = text("") }, CodeInvalidPhone, "recipient.phone"},
		"phone short":         {func(r *OrderRequest) { r.RecipientPhone = text("532123456") }, CodeInvalidPhone, "recipient.phone"},
		"text missing":        {func(r *OrderRequest) { r.DropoffText = Text{} }, CodeValidationFailed, "dropoff.text"},
		"text of nine":        {func(r *OrderRequest) { r.DropoffText = text("  " + chars(9) + "\n") }, CodeInvalidAddress, "dropoff.text"},
		"text of ten":         {func(r *OrderRequest) { r.DropoffText = text(chars(10)) }, "", ""},
		"text of 1000":        {func(r *OrderRequest) { r.DropoffText = text(chars(1000)) }, "", ""},
		"text of 1001":        {func(r *OrderRequest) { r.DropoffText = text(chars(1001)) }, CodeValidationFailed, "dropoff.text"},
		"text with bell":      {func(r *OrderRequest) { r.DropoffText = text("Bağdat Caddesi\a12") }, CodeValidationFailed, "dropoff.text"},
		"text with lone CR":   {func(r *OrderRequest) { r.DropoffText = text("Bağdat Caddesi\r12") }, CodeValidationFailed, "dropoff.text"},
		"text not UTF-8":      {func(r *OrderRequest) { r.DropoffText = text("Bağdat Caddesi \xff") }, CodeValidationFailed, "dropoff.text"},
		"text with U+FFFD":    {func(r *OrderRequest) { r.DropoffText = text("Bağdat Caddesi \ufffd") }, "", ""},
		"no latitude":         {func(r *OrderRequest) { r.DropoffLatitude = Number{} }, CodeValidationFailed, "dropoff.latitude"},
		"no coordinates":      {func(r *OrderRequest) { r.DropoffLatitude, r.DropoffLongitude = Number{}, Number{} }, CodeValidationFailed, "dropoff.latitude,dropoff.longitude"},
		"swapped":             {func(r *OrderRequest) { r.DropoffLatitude, r.DropoffLongitude = r.DropoffLongitude, r.DropoffLatitude }, CodeCoordinateMismatch, "dropoff.latitude,dropoff.longitude"},
		"latitude of 91":      {func(r *OrderRequest) { r.DropoffLatitude = literal("91") }, CodeCoordinateMismatch, "dropoff.latitude,dropoff.longitude"},
		"longitude beyond":    {func(r *OrderRequest) { r.DropoffLongitude = literal("1e999") }, CodeCoordinateMismatch, "dropoff.latitude,dropoff.longitude"},
		"longitude turned":    {func(r *OrderRequest) { r.DropoffLongitude = literal("389.029") }, CodeCoordinateMismatch, "dropoff.latitude,dropoff.longitude"},
		"exponent":            {func(r *OrderRequest) { r.DropoffLatitude = literal("4.09903e1") }, "", ""},
		"readyAt nonsense":    {func(r *OrderRequest) { r.ReadyAt = text("soon") }, CodeValidationFailed, "readyAt"},
		"readyAt empty":       {func(r *OrderRequest) { r.ReadyAt = text("") }, CodeValidationFailed, "readyAt"},
		"readyAt in 4 h":      {func(r *OrderRequest) { r.ReadyAt = text("2026-11-21T16:00:00") }, "", ""},
		"readyAt unknown":     {func(r *OrderRequest) { r.ReadyAt = text("9999-12-31T23:59:59.9999999") }, CodeReadyAtTooFar, "readyAt"},
		"orderedAt unknown":   {func(r *OrderRequest) { r.OrderedAt = text("0001-01-01T00:00:00") }, CodeValidationFailed, "orderedAt"},
		"readyAt later":       {func(r *OrderRequest) { r.ReadyAt = text("2026-11-21T16:00:00.001") }, CodeReadyAtTooFar, "readyAt"},
		"readyAt past":        {func(r *OrderRequest) { r.ReadyAt = text("2026-11-20T16:00:00") }, "", ""},
		"store missing":       {func(r *OrderRequest) { r.ExternalStoreID = Text{} }, CodeValidationFailed, "externalStoreId"},
		"store blank":         {func(r *OrderRequest) { r.ExternalStoreID = text("  ") }, CodeValidationFailed, "externalStoreId"},
		"order id of 64":      {func(r *OrderRequest) { r.ExternalOrderID = text(chars(64)) }, "", ""},
		"order id of 65":      {func(r *OrderRequest) { r.ExternalOrderID = text(chars(65)) }, CodeValidationFailed, "externalOrderId"},
		"order id two lines":  {func(r *OrderRequest) { r.ExternalOrderID = text("a\nb") }, CodeValidationFailed, "externalOrderId"},
		"orderedAt nonsense":  {func(r *OrderRequest) { r.OrderedAt = text("2026-11-21") }, CodeValidationFailed, "orderedAt"},
		"building of 33":      {func(r *OrderRequest) { r.DropoffBuildingNo = text(chars(33)) }, CodeValidationFailed, "dropoff.buildingNo"},
		"door of 33":          {func(r *OrderRequest) { r.DropoffDoorNo = text(chars(33)) }, CodeValidationFailed, "dropoff.doorNo"},
		"floor of 33":         {func(r *OrderRequest) { r.DropoffFloor = text(chars(33)) }, CodeValidationFailed, "dropoff.floor"},
		"floor of 32":         {func(r *OrderRequest) { r.DropoffFloor = text(chars(32)) }, "", ""},
		"floor empty":         {func(r *OrderRequest) { r.DropoffFloor = text("") }, "", ""},
		"note of 501":         {func(r *OrderRequest) { r.DropoffNote = text(chars(501)) }, CodeValidationFailed, "dropoff.note"},
		"package note of 500": {func(r *OrderRequest) { r.PackageNote = text(" " + chars(500) + " ") }, "", ""},
		"package note of 501": {func(r *OrderRequest) { r.PackageNote = text(chars(501)) }, CodeValidationFailed, "packageNote"},
		"amount negative":     {func(r *OrderRequest) { r.OrderAmount = literal("-1") }, CodeValidationFailed, "orderAmount"},
		"collection too fine": {func(r *OrderRequest) { r.PaymentCollectionAmount = literal("1.001") }, CodeValidationFailed, "payment.collectionAmount"},
		"type unknown":        {func(r *OrderRequest) { r.PaymentType = text("cash") }, CodeValidationFailed, "payment.type"},
		"type empty":          {func(r *OrderRequest) { r.PaymentType = text("") }, CodeValidationFailed, "payment.type"},
	} {
		r := validOrder()
		c.change(&r)
		_, err := r.Check(new(Faults), noon)
		checkRefusal(t, name, err, c.code, c.fields)
	}
}

// checkRefusal compares code and fields; an empty code means success.
func checkRefusal(t *testing.T, name string, err error, code Code, fields string) {
	t.Helper()
	if code == "" {
		check(t, err == nil, "%s: %v", name, err)
		return
	}

	var refusal *Error
	check(t, errors.As(err, &refusal) && refusal.Code == code && fieldNames(refusal) == fields && refusal.Message != "",
		"%s: got %+v, want %s %s", name, err, code, fields)
}

// Several faults at once: the first in the order of the decisions ("Several faults at once") decides, and
// all are listed.
//
//rule:decisions/several-faults-at-once
func TestOrderRequest_TheFirstOfSeveralFaultsDecides(t *testing.T) {
	faults := []struct {
		spoil func(*OrderRequest)
		code  Code
	}{
		{func(r *OrderRequest) { r.RecipientName = text("x") }, CodeInvalidRecipient},
		{func(r *OrderRequest) { r.RecipientPhone = text("x") }, CodeInvalidPhone},
		{func(r *OrderRequest) { r.DropoffText = text("x") }, CodeInvalidAddress},
		{func(r *OrderRequest) { r.DropoffLatitude = literal("0") }, CodeCoordinateMismatch},
		{func(r *OrderRequest) { r.ReadyAt = text("2026-11-22T00:00:00") }, CodeReadyAtTooFar},
		{func(r *OrderRequest) { r.PaymentType = text("x") }, CodeValidationFailed},
	}

	for i, first := range faults {
		r := validOrder()
		for _, f := range faults[i:] {
			f.spoil(&r)
		}
		_, err := r.Check(new(Faults), noon)
		all := []string{"recipient.name", "recipient.phone", "dropoff.text", "dropoff.latitude,dropoff.longitude", "readyAt", "payment.type"}
		checkRefusal(t, fmt.Sprintf("from fault %d on", i), err, first.code, strings.Join(all[i:], ","))
	}
}

func TestOrderRequest_ListsEveryField(t *testing.T) {
	r := validOrder()
	r.RecipientName, r.RecipientPhone = Text{}, text("too short to matter")
	r.ExternalOrderID, r.OrderAmount = Text{}, literal("-1")
	_, err := r.Check(new(Faults), noon)
	checkRefusal(t, "mixed", err, CodeValidationFailed, "recipient.name,recipient.phone,externalOrderId,orderAmount")
	want := "VALIDATION_FAILED: recipient.name is required (and 3 more in data.fields)"
	check(t, err.Error() == want, "got %q, want %q", err, want)
	empty := OrderRequest{}
	_, err = empty.Check(new(Faults), noon)
	checkRefusal(t, "empty", err, CodeValidationFailed,
		"recipient.name,recipient.phone,dropoff.text,dropoff.latitude,dropoff.longitude,externalStoreId,externalOrderId")
}

func TestOrderRequest_RefusesWrongTypes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*OrderRequest)
		wrong  []string
		code   Code
		fields string
	}{
		"one field":          {func(r *OrderRequest) { r.RecipientPhone = Text{} }, []string{"recipient.phone"}, CodeValidationFailed, "recipient.phone"},
		"an object":          {func(r *OrderRequest) { r.RecipientName, r.RecipientPhone = Text{}, Text{} }, []string{"recipient"}, CodeValidationFailed, "recipient"},
		"an optional one":    {func(r *OrderRequest) { r.PackageNote = Text{} }, []string{"packageNote"}, CodeValidationFailed, "packageNote"},
		"a later one":        {func(r *OrderRequest) { r.RecipientName = text("x") }, []string{"orderAmount"}, CodeInvalidRecipient, "recipient.name,orderAmount"},
		"an earlier one":     {func(r *OrderRequest) { r.RecipientPhone = text("x") }, []string{"recipient.name"}, CodeValidationFailed, "recipient.name,recipient.phone"},
		"one of coordinates": {func(r *OrderRequest) { r.DropoffLatitude = Number{} }, []string{"dropoff.latitude"}, CodeValidationFailed, "dropoff.latitude"},
		"one unheard of":     {func(*OrderRequest) {}, []string{"payment.tip"}, CodeValidationFailed, "payment.tip"},
		"a longer name":      {func(r *OrderRequest) { r.RecipientPhone = text("x") }, []string{"recip"}, CodeInvalidPhone, "recipient.phone,recip"},
	} {
		r := validOrder()
		c.change(&r)
		var f Faults
		for _, field := range c.wrong {
			f.WrongType = append(f.WrongType, FieldError{field, "must be something else"})
		}
		_, err := r.Check(&f, noon)
		checkRefusal(t, name, err, c.code, c.fields)
	}
}

func TestFaults_ListsNoMoreThanFifty(t *testing.T) {
	var f Faults
	for i := range 60 {
		f.Invalid(fmt.Sprintf("positions[%d].at", i), "must be a time")
	}

	err := f.Err()

	var refusal *Error
	if !errors.As(err, &refusal) || len(refusal.Fields) != 50 || refusal.Fields[49].Field != "positions[49].at" {
		t.Errorf("%+v", refusal)
	}
}

func TestRefusals_SayWhatToDo(t *testing.T) {
	for want, change := range map[string]func(*OrderRequest){
		"recipient.phone must have 10 digits, the first of them not 0, after +90 and a leading 0 are stripped; no blanks, dashes or brackets": func(r *OrderRequest) { r.RecipientPhone = text("0532 123 45 67") },
		"recipient.name must have at least 2 characters":                                                                                             func(r *OrderRequest) { r.RecipientName = text("") },
		"dropoff.latitude 29.029 and dropoff.longitude 40.9903 are not in Turkey; check that they are not swapped":                                   func(r *OrderRequest) { r.DropoffLatitude, r.DropoffLongitude = r.DropoffLongitude, r.DropoffLatitude },
		"readyAt must be at most 4 hours ahead of 2026-11-21T12:00:00.000+03:00; it is read as 2027-11-21T12:00:00.000+03:00":                        func(r *OrderRequest) { r.ReadyAt = text("2027-11-21T12:00:00") },
		"readyAt must be at most 4 hours ahead of 2026-11-21T12:00:00.000+03:00; it is read as 2026-11-21T16:30:00.000+03:00, a local time has no Z": func(r *OrderRequest) { r.ReadyAt = text("2026-11-21T13:30Z") },
		"orderAmount must be a number from 0 to 9999999.99 with at most two decimals":                                                                func(r *OrderRequest) { r.OrderAmount = literal("1e9") },
		"orderedAt must be an ISO 8601 time such as 2026-11-21T12:30:00+03:00":                                                                       func(r *OrderRequest) { r.OrderedAt = text("x") },
		"externalOrderId must have 1 to 64 characters":                                                                                               func(r *OrderRequest) { r.ExternalOrderID = text("") },
		"packageNote must have at most 500 characters":                                                                                               func(r *OrderRequest) { r.PackageNote = text(chars(501)) },
		"dropoff.latitude 111111111111111111111111... and dropoff.longitude 29.029 are not in Turkey; check that they are not swapped":               func(r *OrderRequest) { r.DropoffLatitude = literal(strings.Repeat("1", 1000)) },
	} {
		r := validOrder()
		change(&r)
		_, err := r.Check(new(Faults), noon)
		var refusal *Error
		check(t, errors.As(err, &refusal) && refusal.Message == want, "got  %v\nwant %s", err, want)
	}
}

//rule:order-creation-request/readyAt limits/other-constants/readyat-maximum-lead
func TestReadyAt_IsNeverPastNorTooFar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lead := time.Duration(rapid.Int64Range(int64(-48*time.Hour), int64(48*time.Hour)).Draw(t, "lead")).Truncate(time.Millisecond)
		r := validOrder()
		r.ReadyAt = text(FormatTime(noon.Add(lead)))
		d, err := r.Check(new(Faults), noon)
		switch {
		case lead > MaxReadyAtLead:
			require(t, CodeOf(err) == CodeReadyAtTooFar, "%v ahead: %v", lead, err)
		case err != nil || !d.ReadyAt.Equal(noon.Add(max(lead, 0))):
			t.Fatalf("%v ahead: %v, %v", lead, d.ReadyAt, err)
		}
	})
}

// FuzzOrderRequestCheck: what passes obeys the rules of the spec's table, what
// does not is a refusal with a code of this endpoint.
func FuzzOrderRequestCheck(f *testing.F) {
	f.Add("store", "order", "Ayşe", "5321234567", "Bağdat Caddesi 12", "40.99", "29.03", "2026-11-21T12:30", "12.5", "Cash")
	f.Add("", "", "", "", "", "", "", "", "", "")
	f.Add("a\x00", "\xff", " x ", "+90", "\r\n", "1e999", "-0", "2026", "1e-3", "cash")
	f.Fuzz(func(t *testing.T, store, order, name, phone, address, lat, lon, ready, amount, payment string) {
		r := OrderRequest{
			ExternalStoreID: text(store), ExternalOrderID: text(order), RecipientName: text(name), RecipientPhone: text(phone),
			DropoffText: text(address), DropoffLatitude: literal(lat), DropoffLongitude: literal(lon), ReadyAt: text(ready),
			OrderAmount: literal(amount), PaymentType: text(payment),
		}

		d, err := r.Check(new(Faults), noon)
		if err != nil {
			checkFuzzedRefusal(t, err)
			return
		}

		for field, s := range map[string]struct {
			value       string
			least, most int
		}{
			"externalStoreId": {d.ExternalStoreID, 1, 64}, "externalOrderId": {d.ExternalOrderID, 1, 64},
			"recipient.name": {d.Recipient.Name, 2, 200}, "recipient.phone": {d.Recipient.Phone, 10, 10},
			"dropoff.text": {d.Dropoff.Text, 10, 1000},
		} {
			n := utf8.RuneCountInString(s.value)
			check(t, n >= s.least && n <= s.most && strings.TrimSpace(s.value) == s.value && utf8.ValidString(s.value) && !strings.ContainsRune(s.value, 0),
				"%s is %q", field, s.value)
		}

		check(t, InTurkey(d.Dropoff.Point) && !d.ReadyAt.Before(noon) && d.ReadyAt.Sub(noon) <= 4*time.Hour && d.OrderAmount.Set, "accepted: %+v", d)
	})
}

func checkFuzzedRefusal(t *testing.T, err error) {
	var refusal *Error
	require(t, errors.As(err, &refusal) && refusal.Code.HTTPStatus() == 422 && refusal.Message != "", "refused with %v", err)
	check(t, len(refusal.Fields) > 0 && strings.HasPrefix(refusal.Message, refusal.Fields[0].Field+" "+refusal.Fields[0].Message), "%s with fields %v", refusal.Message, refusal.Fields)
	seen := map[string]bool{}
	for _, f := range refusal.Fields {
		check(t, !seen[f.Field] && f.Message != "", "field %q is listed twice or says nothing", f.Field)
		seen[f.Field] = true
	}
}

//rule:decisions/cancel
func TestCancelRequest_TakesEveryReasonAndNone(t *testing.T) {
	for _, reason := range []CancelReason{CustomerRequest, CancelStoreRequest, DuplicateOrder, CancelNotReady, OtherCancel} {
		r := CancelRequest{Reason: text(string(reason)), Note: text(" " + chars(256) + " ")}
		if got, note, err := r.Check(new(Faults)); err != nil || got != reason || note != chars(256) {
			t.Errorf("%s: got %s, %q, %v", reason, got, note, err)
		}
	}

	none := CancelRequest{}
	if reason, note, err := none.Check(new(Faults)); err != nil || reason != "" || note != "" {
		t.Errorf("no body: %q, %q, %v", reason, note, err)
	}
}

//rule:decisions/cancel
func TestCancelRequest_RefusesByField(t *testing.T) {
	for name, c := range map[string]struct {
		r      CancelRequest
		wrong  []FieldError
		fields string
	}{
		"unknown reason": {CancelRequest{Reason: text("customerRequest")}, nil, "reason"},
		"empty reason":   {CancelRequest{Reason: text("")}, nil, "reason"},
		"long note":      {CancelRequest{Note: text(chars(257))}, nil, "note"},
		"note with NUL":  {CancelRequest{Note: text("\x00")}, nil, "note"},
		"both":           {CancelRequest{Reason: text("x"), Note: text(chars(257))}, nil, "reason,note"},
		"wrong type":     {CancelRequest{}, []FieldError{{"note", "must be a string"}}, "note"},
	} {
		_, _, err := c.r.Check(&Faults{WrongType: c.wrong})
		checkRefusal(t, name, err, CodeValidationFailed, c.fields)
	}
}

//rule:decisions/idempotency-header-absent
func TestCheckIdempotencyKey_TakesVisibleASCIIOfUpTo255(t *testing.T) {
	for _, good := range []string{"a", "!~", strings.Repeat("k", 255), "order-1:2/3"} {
		err := CheckIdempotencyKey("X-Idempotency-Key", []byte(good))
		check(t, err == nil, "%q: %v", good, err)
	}
	for _, bad := range []string{"", " ", "a b", "a\x7f", "ş", "\x1f", strings.Repeat("k", 256)} {
		checkRefusal(t, bad, CheckIdempotencyKey("X-Idempotency-Key", []byte(bad)), CodeValidationFailed, "X-Idempotency-Key")
	}
}

//rule:order-creation-request/recipient.phone decisions/phone
func TestNormalizePhone_StripsPrefixes(t *testing.T) {
	for in, want := range map[string]string{
		"5321234567": "5321234567", "05321234567": "5321234567", "+905321234567": "5321234567",
		"+9005321234567": "5321234567", " 5321234567\n": "5321234567", "2121234567": "2121234567", "9053212345": "9053212345",
	} {
		got, err := NormalizePhone(in)
		check(t, err == nil && got == want, "%q: got %q, %v, want %q", in, got, err, want)
	}
}

//rule:order-creation-request/recipient.phone errors/INVALID_PHONE decisions/phone
func TestNormalizePhone_RefusesWhatIsNotTenDigits(t *testing.T) {
	for _, in := range []string{
		"", "0", "+90", "+900", "532123456", "53212345678", "0532123456", "00532123456", "005321234567", "0053212345678",
		"905321234567", "+915321234567", "+90 5321234567", "532 123 45 67", "532-123-4567", "532123456a", "(532)1234567",
		"٥٣٢١٢٣٤٥٦٧", "５３２１２３４５６７", "5321234567 ext 1", "+90+905321234567", "532123456\x00", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		got, err := NormalizePhone(in)
		check(t, err != nil && got == "", "%q: got %q, %v", in, got, err)
	}
}

func FuzzNormalizePhone(f *testing.F) {
	for _, seed := range []string{"5321234567", "+9005321234567", "00", " 05321234567 ", "+90"} {
		f.Add(seed)
	}

	rule := regexp.MustCompile(`^(?:\+90)?0?([1-9][0-9]{9})$`)
	f.Fuzz(func(t *testing.T, in string) {
		want := ""
		if m := rule.FindStringSubmatch(strings.TrimSpace(in)); m != nil {
			want = m[1]
		}
		got, err := NormalizePhone(in)
		check(t, got == want && (err == nil) == (want != ""), "%q: got %q, %v, want %q", in, got, err, want)
	})
}
