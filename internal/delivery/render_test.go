package delivery

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

//rule:order-creation-response/orderId order-creation-response/externalOrderId order-creation-response/status order-creation-response/fleet.fleetId
//rule:order-creation-response/fleet.name order-creation-response/trackingUrl order-creation-response/estimatedPickupAt
//rule:decisions/estimatedpickupat-etadropoffat
func TestAppendCreated_WritesTheSpecsObject(t *testing.T) {
	o := orderIn(Delivering) // whatever has become of it
	o.ExternalOrderID = "a\"1"
	o.Payment.Type = Prepaid // nothing to warn of
	want := `x{"orderId":"` + o.ID.String() + `","externalOrderId":"a\"1","status":"Searching",` +
		`"fleet":{"fleetId":"07000000-0000-0000-0000-000000000000","name":"Hızlı"},` +
		`"trackingUrl":"https://t.example/x?a=1&b=2","estimatedPickupAt":"2026-11-21T12:20:00.000+03:00"}`
	got := string(o.AppendCreated([]byte("x"), "https://t.example/x?a=1&b=2"))
	check(t, got == want, "got  %s\nwant %s", got, want)

	// Where the package is ready before a courier can be there, the courier decides.
	o.Fleet.PickupMinutes = 35
	got = string(o.AppendCreated(nil, "https://t.example/x"))
	check(t, strings.HasSuffix(got, `,"estimatedPickupAt":"2026-11-21T12:35:00.000+03:00"}`), "with a courier in 35 minutes: %s", got)
}

// history is an order with one of everything.
func history() *Order {
	o := orderIn(Searching)
	o.apply(
		Change{Status: Assigned, At: noon.Add(time.Minute), Courier: mehmet},
		Change{Status: PickingUp, At: noon.Add(2 * time.Minute), Courier: mehmet, ETA: noon.Add(50 * time.Minute), Location: Location{Point{41.00512, 28.9}, noon}},
		Change{Status: Failed, At: noon.Add(3 * time.Minute), Courier: ayse, Failure: PackageNotReady},
	)
	o.Courier, o.Location = Courier{Name: "Ali"}, Location{Point{-1e-7, 29}, noon}
	return o
}

//rule:order-status-delivery-state/the-same-object-without-events order-status-delivery-state/orderId order-status-delivery-state/externalOrderId
//rule:order-status-delivery-state/status order-status-delivery-state/courier.name order-status-delivery-state/courier.phone
//rule:order-status-delivery-state/courier.vehicleType order-status-delivery-state/etaDropoffAt order-status-delivery-state/updatedAt
//rule:order-status-delivery-state/events order-status-delivery-state/location.latitude-location.longitude order-status-delivery-state/failureReason
//rule:order-states/failed decisions/estimatedpickupat-etadropoffat decisions/courier-location-etadropoffat-while-unknown
func TestAppendStatus_WritesTheSpecsObjectOfEveryVersion(t *testing.T) {
	o := history()
	head := `{"orderId":"` + o.ID.String() + `","externalOrderId":"order-1","status":`
	mehmetY := `"courier":{"name":"Mehmet Y.","phone":"5321234567","vehicleType":"Motorcycle"},`
	ayseO := `"courier":{"name":"Ayşe Ö.","phone":"5329999999","vehicleType":"Bicycle"},`
	ofHistory := uint64(1 << 32) // above the sequence: time and random bits
	for name, c := range map[string]struct {
		version          uint64
		events, location bool
		want             string
	}{
		"creation": {ofHistory | 1, false, true, `"Searching","updatedAt":"2026-11-21T12:00:00.000+03:00"}`},
		"assigned": {ofHistory | 2, false, true, `"Assigned",` + mehmetY + `"etaDropoffAt":"2026-11-21T12:45:00.000+03:00","updatedAt":"2026-11-21T12:01:00.000+03:00"}`},
		"picking up": {ofHistory | 3, false, true, `"PickingUp",` + mehmetY + `"etaDropoffAt":"2026-11-21T12:50:00.000+03:00",` +
			`"updatedAt":"2026-11-21T12:02:00.000+03:00","location":{"latitude":41.00512,"longitude":28.9}}`},
		"picking up, no location wanted": {3, true, false, `"PickingUp",` + mehmetY + `"etaDropoffAt":"2026-11-21T12:50:00.000+03:00",` +
			`"updatedAt":"2026-11-21T12:02:00.000+03:00","events":[{"status":"Searching","at":"2026-11-21T12:00:00.000+03:00"},` +
			`{"status":"Assigned","at":"2026-11-21T12:01:00.000+03:00"},{"status":"PickingUp","at":"2026-11-21T12:02:00.000+03:00"}]}`},
		"failed": {ofHistory | 4, false, true, `"Failed",` + ayseO + `"etaDropoffAt":"2026-11-21T12:50:00.000+03:00",` +
			`"updatedAt":"2026-11-21T12:03:00.000+03:00","failureReason":"PackageNotReady"}`},
		"latest": {0, true, true, `"Failed","courier":{"name":"Ali"},"etaDropoffAt":"2026-11-21T12:50:00.000+03:00",` +
			`"updatedAt":"2026-11-21T12:03:00.000+03:00","events":[{"status":"Searching","at":"2026-11-21T12:00:00.000+03:00"},` +
			`{"status":"Assigned","at":"2026-11-21T12:01:00.000+03:00"},{"status":"PickingUp","at":"2026-11-21T12:02:00.000+03:00"},` +
			`{"status":"Failed","at":"2026-11-21T12:03:00.000+03:00"}],"location":{"latitude":-0.0000001,"longitude":29},"failureReason":"PackageNotReady"}`},
		"beyond the history": {99, false, false, `"Failed","courier":{"name":"Ali"},"etaDropoffAt":"2026-11-21T12:50:00.000+03:00",` +
			`"updatedAt":"2026-11-21T12:03:00.000+03:00","failureReason":"PackageNotReady"}`},
	} {
		got := string(o.AppendStatus(nil, c.version, c.events, c.location))
		check(t, got == head+c.want, "%s:\ngot  %s\nwant %s", name, got, head+c.want)
	}
}

func TestAppendStatus_ASwapMovesUpdatedAtAndHidesTheFormerPlace(t *testing.T) {
	o := orderIn(PickingUp)
	o.Location = Location{Point{41, 29}, noon.Add(3 * time.Minute)}
	swap := Decide(o, Update{Kind: KindSwap, Courier: ayse, At: noon.Add(4 * time.Minute)}, noon.Add(5*time.Minute)).Changes
	o.apply(swap...)
	for _, version := range []uint64{0, o.Version} {
		got := string(o.AppendStatus(nil, version, false, true))
		check(t, strings.Contains(got, `"courier":{"name":"Ayşe Ö."`) && strings.Contains(got, `"updatedAt":"2026-11-21T12:04:00.000+03:00"`), "%s", got)
		check(t, !strings.Contains(got, "location"), "%s", got)
	}
}

// The timeline has one entry for every status, as the spec has it.
func TestAppendStatus_TellsOfAnEstimateOutsideTheTimeline(t *testing.T) {
	o := orderIn(PickingUp)
	eta := noon.Add(55 * time.Minute)
	for _, u := range []Update{
		{Kind: KindStatus, Status: PickingUp, ETA: eta, At: noon.Add(4 * time.Minute)},
		{Kind: KindSwap, Courier: ayse, At: noon.Add(5 * time.Minute)},
		{Kind: KindStatus, Status: PickedUp, At: noon.Add(6 * time.Minute)},
	} {
		o.apply(Decide(o, u, noon.Add(10*time.Minute)).Changes...)
	}

	revised := string(o.AppendStatus(nil, o.Version-2, true, true))
	head := `{"orderId":"` + o.ID.String() + `","externalOrderId":"order-1",`
	want := head + `"status":"PickingUp","courier":{"name":"Mehmet Y.","phone":"5321234567","vehicleType":"Motorcycle"},` +
		`"etaDropoffAt":"2026-11-21T12:55:00.000+03:00","updatedAt":"2026-11-21T12:04:00.000+03:00",` +
		`"events":[{"status":"Searching","at":"2026-11-21T12:00:00.000+03:00"},{"status":"Assigned","at":"2026-11-21T12:01:00.000+03:00"},` +
		`{"status":"PickingUp","at":"2026-11-21T12:02:00.000+03:00"}]}`

	check(t, revised == want, "got  %s\nwant %s", revised, want)

	latest := string(o.AppendStatus(nil, o.Version, true, true))
	check(t, strings.Count(latest, `"status":`) == 1+4 && strings.Contains(latest, `"etaDropoffAt":"2026-11-21T12:55:00.000+03:00"`), "%s", latest)
}

// A version renders the same whatever comes after it: a webhook that is sent
// again carries the same bytes.
func TestAppendStatus_OfAVersionNeverChanges(t *testing.T) {
	o := history()
	for n := range o.Changes {
		version := 1<<32 | uint64(n+1)
		then := *o
		then.Changes, then.Version = o.Changes[:n], version
		then.Courier, then.Location = mehmet, Location{}
		before, after := then.AppendStatus(nil, version, true, true), o.AppendStatus(nil, version, true, true)
		check(t, bytes.Equal(before, after), "version %d:\nthen %s\nnow  %s", n+1, before, after)
	}
}

//rule:event-types/store.activated event-types/store.migrating event-types/store.deactivated event-types/fleet.payment_overdue
//rule:event-types/the-reason-value-migratedtohizliyo-is decisions/store-and-fleet-events
func TestPartyEvents_AreWrittenAsDecided(t *testing.T) {
	fleet := FleetID{7}
	for want, got := range map[string][]byte{
		`{"externalStoreId":"s\\1","fleet":{"fleetId":"07000000-0000-0000-0000-000000000000","name":"Hızlı"}}`:                  AppendStoreActivated(nil, `s\1`, fleet, "Hızlı"),
		`{"externalStoreId":"s1","closingDate":"2026-11-21"}`:                                                                   AppendStoreMigrating(nil, "s1", time.Date(2026, 11, 20, 21, 0, 0, 0, time.UTC)),
		`{"externalStoreId":"s1","reason":"MigratedToHizliyo"}`:                                                                 AppendStoreDeactivated(nil, "s1", MigratedToHizliyo),
		`{"fleet":{"fleetId":"07000000-0000-0000-0000-000000000000","name":"F"},"externalStoreIds":["a","b"]}`:                  AppendPaymentOverdue(nil, fleet, "F", []string{"a", "b"}),
		`{"fleet":{"fleetId":"07000000-0000-0000-0000-000000000000","name":"F"},"externalStoreIds":[]}`:                         AppendPaymentOverdue(nil, fleet, "F", nil),
		`{"externalStoreId":"s1","fleet":{"fleetId":"07000000-0000-0000-0000-000000000000","name":"F"},"reason":"too \"far\""}`: AppendStoreRejected(nil, "s1", fleet, "F", `too "far"`),
		`{"externalStoreId":"s1","fleet":{"fleetId":"07000000-0000-0000-0000-000000000000","name":"F"}}`:                        AppendStoreRejected(nil, "s1", fleet, "F", ""),
	} {
		check(t, string(got) == want, "got  %s\nwant %s", got, want)
	}
}

func TestReportAvailable_IsWrittenAsDocumented(t *testing.T) {
	at := time.Date(2026, 11, 2, 3, 0, 0, 0, time.UTC)
	for want, report := range map[string]AvailableReport{
		`{"id":"a \"b\"","kind":"scheduled","files":[],"at":"2026-11-02T06:00:00.000+03:00"}`: {ID: `a "b"`, Kind: ReportScheduled, At: at},
		`{"id":"c","kind":"closing","month":"2026-10","seal":{"sequence":7,"sha256":"0a"},"files":[` +
			`{"target":"erp","name":"şube.csv","sha256":"0b"},{"target":"erp","name":"x","sha256":"0c"}],"at":"2026-11-02T06:00:00.000+03:00"}`: {
			ID: "c", Kind: ReportClosing, Month: "2026-10", Seal: Seal{7, "0a"}, At: at,
			Files: []DeliveredFile{{"erp", "şube.csv", "0b"}, {"erp", "x", "0c"}}},
	} {
		got := AppendReportAvailable(nil, &report)
		check(t, string(got) == want, "got  %s\nwant %s", got, want)
	}
}

func TestRendered_IsJSONForAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := history()
		o.ExternalOrderID = rapid.String().Draw(t, "id")
		o.Fleet.Name = rapid.String().Draw(t, "fleet")
		o.Courier.Phone = rapid.String().Draw(t, "phone")
		o.Location.Latitude = rapid.Float64Range(-90, 90).Draw(t, "latitude")
		var status struct {
			ExternalOrderID string
			Courier         struct{ Phone string }
			Location        Point
		}

		var created struct{ Fleet struct{ Name string } }
		if err := json.Unmarshal(o.AppendStatus(nil, 0, true, true), &status); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(o.AppendCreated(nil, ""), &created); err != nil {
			t.Fatal(err)
		}

		require(t, status.ExternalOrderID == o.ExternalOrderID && created.Fleet.Name == o.Fleet.Name && status.Courier.Phone == o.Courier.Phone && status.Location == o.Location.Point,
			"%+v %+v", status, created)
	})
}

func FuzzAppendString(f *testing.F) {
	for _, seed := range []string{"", "a", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "şğİ\u2028\U0001F600", "\xff\xed\xa0\x80a\xc3", "<&>"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, s string) {
		var got string
		quoted := AppendString(nil, s)
		if err := json.Unmarshal(quoted, &got); err != nil {
			t.Fatalf("%q: %v", quoted, err)
		}

		reference, err := json.Marshal(s)
		must(t, err)
		var want string
		if err := json.Unmarshal(reference, &want); err != nil || got != want {
			t.Errorf("%q becomes %q, want %q", s, got, want)
		}

		check(t, !strings.ContainsFunc(string(quoted), func(r rune) bool { return r < ' ' }), "%q holds a bare control character", quoted)
	})
}

// What every request runs through.
func TestHotPaths_DoNotAllocate(t *testing.T) {
	coverage, err := ParseCoverage(circle(1345, 0.5))
	must(t, err)
	o, r, buf := orderIn(Searching), validOrder(), make([]byte, 0, 4096)
	for name, f := range map[string]func(){
		"an order's JSON":  func() { o.AppendStatus(o.AppendCreated(buf, "https://t.example/x"), 0, true, true) },
		"a time":           func() { AppendTime(buf, noon) },
		"an order's check": func() { _, _ = r.Check(new(Faults), noon) },
		"a coverage":       func() { coverage.Contains(Point{41.01, 29.02}) },
		"Turkey":           func() { InTurkey(Point{41.0082, 28.9784}) },
		"Turkey's border":  func() { InTurkey(Point{41.5170, 41.5480}) },
		"beyond it":        func() { InTurkey(Point{38.3680, 26.1360}) },
	} {
		n := testing.AllocsPerRun(100, f)
		check(t, n == 0, "%s: %v allocations", name, n)
	}
}

// What finance will ask about is said at once, in the words of its report.
//
//rule:decisions/payment-that-looks-wrong
func TestAppendCreated_WarnsOfThePayment(t *testing.T) {
	amount := func(minor int64) Money { return Money{minor, true} }
	for _, c := range []struct {
		kinds string
		order OrderDraft
	}{
		{"", OrderDraft{OrderAmount: amount(1000), Payment: Payment{Cash, amount(1000)}}},
		{"CollectionMissing", OrderDraft{OrderAmount: amount(1000), Payment: Payment{Type: Card}}},
		{"CollectionMissing", OrderDraft{Payment: Payment{Type: Cash}}},
		{"CollectionOnPrepaid", OrderDraft{OrderAmount: amount(1000), Payment: Payment{Prepaid, amount(1000)}}},
		{"CollectionDiffers", OrderDraft{OrderAmount: amount(1000), Payment: Payment{Cash, amount(100000)}}},
		{"CollectionDiffers", OrderDraft{Payment: Payment{Cash, amount(50000)}}},
		{"PaymentTypeMissing", OrderDraft{Payment: Payment{CollectionAmount: amount(1)}}},
	} {
		kinds, o := c.kinds, c.order
		var created struct {
			Warnings []struct{ Kind, Field, Message string }
		}
		must(t, json.Unmarshal((&Order{OrderDraft: o}).AppendCreated(nil, ""), &created))
		got := ""
		for _, w := range created.Warnings {
			got += w.Kind
			check(t, w.Field != "" && w.Message != "", "%+v", w)
		}

		check(t, got == kinds, "got %s, want %s", got, kinds)
	}
}
