package delivery

import "testing"

func validStore() StoreRequest {
	return StoreRequest{
		TaxNumber: text(" 1234567890 "), Name: text(" Kadıköy "), Phone: text("02161234567"), AddressText: text("Bağdat Cd. 12"),
		AddressLatitude: literal("40.9903"), AddressLongitude: literal("29.029"),
	}
}

func storedStore() *Store {
	return &Store{
		State: Active, TaxNumber: "11111111111", Name: "Old", Phone: "2120000000", Address: "Old Street", Point: Point{41, 29},
		Fleet: FleetID{1},
	}
}

//rule:store/request-fields/taxNumber store/request-fields/name store/request-fields/phone store/request-fields/address.text
//rule:store/request-fields/address.latitude store/request-fields/address.longitude store/request-fields/fleetId
func TestStoreRequest_FirstOneNamesEveryField(t *testing.T) {
	r := validStore()
	want := Store{TaxNumber: "1234567890", Name: "Kadıköy", Phone: "2161234567", Address: "Bağdat Cd. 12", Point: Point{40.9903, 29.029}}
	if got, err := r.Check(new(Faults), nil); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}

	fleet := NewFleetID()
	r.FleetID, want.Fleet = text(fleet.String()), fleet
	if got, err := r.Check(new(Faults), nil); err != nil || got != want {
		t.Errorf("with a fleet: got %+v, %v", got, err)
	}

	var nothing StoreRequest
	_, err := nothing.Check(new(Faults), nil)
	checkRefusal(t, "nothing", err, CodeValidationFailed, "name,phone,address.text,address.latitude,address.longitude,taxNumber")
}

//rule:decisions/store-fields-required
func TestStoreRequest_LaterOnesKeepWhatTheyOmit(t *testing.T) {
	stored := storedStore()
	kept := Store{TaxNumber: stored.TaxNumber, Name: stored.Name, Phone: stored.Phone, Address: stored.Address, Point: stored.Point, Fleet: stored.Fleet}
	other := FleetID{2}
	for name, c := range map[string]struct {
		r    StoreRequest
		want func(*Store)
	}{
		"nothing":     {StoreRequest{}, func(*Store) {}},
		"name":        {StoreRequest{Name: text("New")}, func(s *Store) { s.Name = "New" }},
		"phone":       {StoreRequest{Phone: text("2161234567")}, func(s *Store) { s.Phone = "2161234567" }},
		"tax number":  {StoreRequest{TaxNumber: text("1234567890")}, func(s *Store) { s.TaxNumber = "1234567890" }},
		"address":     {StoreRequest{AddressText: text("New")}, func(s *Store) { s.Address = "New" }},
		"coordinates": {StoreRequest{AddressLatitude: literal("39.93"), AddressLongitude: literal("32.86")}, func(s *Store) { s.Point = Point{39.93, 32.86} }},
		"fleet":       {StoreRequest{FleetID: text(other.String())}, func(s *Store) { s.Fleet = other }},
	} {
		want := kept
		c.want(&want)
		got, err := c.r.Check(new(Faults), stored)
		check(t, err == nil && got == want, "%s: got %+v, %v, want %+v", name, got, err, want)
	}
}

func TestStoreRequest_AfterDeactivationForgetsTheFleet(t *testing.T) {
	stored := storedStore()
	stored.State = Deactivated
	r := StoreRequest{}
	got, err := r.Check(new(Faults), stored)
	check(t, err == nil && got.Fleet.IsZero() && got.Name == "Old", "got %+v, %v", got, err)
}

//rule:decisions/store-fields-required
func TestStoreRequest_RefusesEveryFaultByItsCode(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*StoreRequest)
		code   Code
		fields string
	}{
		"name empty":        {func(r *StoreRequest) { r.Name = text(" ") }, CodeValidationFailed, "name"},
		"name of 200":       {func(r *StoreRequest) { r.Name = text(chars(200)) }, "", ""},
		"name of 201":       {func(r *StoreRequest) { r.Name = text(chars(201)) }, CodeValidationFailed, "name"},
		"phone wrong":       {func(r *StoreRequest) { r.Phone = text("1") }, CodeInvalidPhone, "phone"},
		"address empty":     {func(r *StoreRequest) { r.AddressText = text("") }, CodeValidationFailed, "address.text"},
		"address of 1001":   {func(r *StoreRequest) { r.AddressText = text(chars(1001)) }, CodeValidationFailed, "address.text"},
		"abroad":            {func(r *StoreRequest) { r.AddressLongitude = literal("-29") }, CodeCoordinateMismatch, "address.latitude,address.longitude"},
		"latitude alone":    {func(r *StoreRequest) { r.AddressLongitude = Number{} }, CodeValidationFailed, "address.longitude"},
		"tax number of 11":  {func(r *StoreRequest) { r.TaxNumber = text("12345678901") }, "", ""},
		"tax number of 9":   {func(r *StoreRequest) { r.TaxNumber = text("123456789") }, CodeValidationFailed, "taxNumber"},
		"tax number of 12":  {func(r *StoreRequest) { r.TaxNumber = text("123456789012") }, CodeValidationFailed, "taxNumber"},
		"tax with letters":  {func(r *StoreRequest) { r.TaxNumber = text("TR12345678") }, CodeValidationFailed, "taxNumber"},
		"fleet no UUID":     {func(r *StoreRequest) { r.FleetID = text("fleet-1") }, CodeValidationFailed, "fleetId"},
		"fleet empty":       {func(r *StoreRequest) { r.FleetID = text("") }, CodeValidationFailed, "fleetId"},
		"fleet of zeros":    {func(r *StoreRequest) { r.FleetID = text(FleetID{}.String()) }, CodeValidationFailed, "fleetId"},
		"name before phone": {func(r *StoreRequest) { r.Name, r.Phone = text(""), text("1") }, CodeValidationFailed, "name,phone"},
		"phone before rest": {func(r *StoreRequest) { r.Phone, r.AddressText, r.TaxNumber = text("1"), text(""), text("") }, CodeInvalidPhone, "phone,address.text,taxNumber"},
		"place before tax":  {func(r *StoreRequest) { r.AddressLongitude, r.TaxNumber = literal("0"), text("") }, CodeCoordinateMismatch, "address.latitude,address.longitude,taxNumber"},
	} {
		for _, existing := range []*Store{nil, storedStore()} {
			r := validStore()
			c.change(&r)
			_, err := r.Check(new(Faults), existing)
			checkRefusal(t, name, err, c.code, c.fields)
		}
	}

	for _, existing := range []*Store{nil, storedStore()} {
		r := validStore()
		r.AddressText, r.AddressLatitude, r.AddressLongitude = Text{}, Number{}, Number{}
		_, err := r.Check(&Faults{WrongType: []FieldError{{"address", "must be an object"}}}, existing)
		checkRefusal(t, "address no object", err, CodeValidationFailed, "address")
	}

	empty := StoreRequest{}
	_, err := empty.Check(new(Faults), nil)
	checkRefusal(t, "empty", err, CodeValidationFailed, "name,phone,address.text,address.latitude,address.longitude,taxNumber")
}

func TestCheckExternalStoreID_TakesOneLineOfUpTo64(t *testing.T) {
	for _, good := range []string{"1", "store 1", chars(64), "a/b", "şube-1"} {
		err := CheckExternalStoreID(good)
		check(t, err == nil, "%q: %v", good, err)
	}
	for _, bad := range []string{"", chars(65), " a", "a ", "a\nb", "a\tb", "a\x00b", "\xff", "\u0085a", "a\r\nb"} {
		checkRefusal(t, bad, CheckExternalStoreID(bad), CodeValidationFailed, "externalStoreId")
	}
}
