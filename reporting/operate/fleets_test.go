package operate

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/frame"
)

const ankara = `{"type":"MultiPolygon","coordinates":[[[[32.5,39.7],[33.1,39.7],[33.1,40.1],[32.5,40.1],[32.5,39.7]]]]}`

func TestCreateFleet_ShowsTheSecretOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	a := b.submit("/fleets", "/fleets", "name", "Yeni Filo "+t.Name(), "subRegion", "Çankaya", "avgDeliveryMinutes", "20", "coverage", ankara).want(200, "only time")
	codes := all(all(a.tree(), "section")[0], "code")
	id, ok := delivery.FleetOfClient(words(codes[0]))
	if !ok {
		t.Fatal(a.brief())
	}
	f := s.fleet(id)
	if f.Name != "Yeni Filo "+t.Name() || f.DeliveryMinutes != 20 || f.PickupMinutes != delivery.DefaultPickupMinutes || string(f.Coverage.JSON()) != ankara {
		t.Errorf("%+v", f)
	}
	secret := words(codes[1])
	for _, path := range []string{"/fleets", "/fleets/" + id.String()} {
		b.get(path).want(200).without(secret)
	}
	if a.value("coverage") != "" || a.value("name") != "" || strings.Contains(s.log.String(), secret) {
		t.Error("the form is still filled in, or the secret logged")
	}
}

func TestCreateFleet_RefusesByFieldAndKeepsAll(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	valid := map[string]string{"name": "Filo", "subRegion": "Kadıköy", "avgDeliveryMinutes": "20", "avgPickupMinutes": "5", "coverage": ankara}
	for _, c := range []struct{ field, typed, fault string }{
		{"name", "", "must have 1 to 200 characters"},
		{"avgDeliveryMinutes", "241", "must be a whole number from 1 to 240"},
		{"avgDeliveryMinutes", "", "must be a number"},
		{"avgPickupMinutes", "soon", "must be a number"},
		{"coverage", "", "is not JSON: unexpected end of JSON input"},
		{"coverage", "\n{\"type\": \"Polygon\",", "is not JSON: unexpected end of JSON input"},
		{"coverage", `</textarea><script>alert(1)</script>`, "is not JSON: invalid character '<' looking for beginning of value"},
		{"coverage", `{"type":"Point","coordinates":[1,2]}`, `must be a GeoJSON Polygon or MultiPolygon, not "Point"`},
		{"coverage", `{"type":"Polygon","coordinates":[[[1,2],[3,4],[5,6],[7,8]]]}`, "polygon 1: ring 1: it is not closed: the last position must repeat the first"},
	} {
		form := b.get("/fleets").form("/fleets", "", "")
		for field, value := range valid {
			form.Set(field, value)
		}
		form.Set(c.field, c.typed)
		a := b.post("/fleets", form).want(http.StatusUnprocessableEntity)
		if got := a.fault(c.field); got != c.fault {
			t.Errorf("%s %q: %q, want %q", c.field, c.typed, got, c.fault)
		}
		for field := range valid {
			if got := a.value(field); got != form.Get(field) {
				t.Errorf("%s %q became %q", field, form.Get(field), got)
			}
		}
	}
	if !slices.ContainsFunc(all(b.get("/fleets").tree(), "textarea"), func(n *htmlNode) bool { return attribute(n, "name") == "coverage" }) {
		t.Error("no field for the coverage")
	}
}

func TestFleet_ChangesAreSeenInTheLedger(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	id := s.newFleet("Eski Filo")
	page := "/fleets/" + id.String()
	b.get(page).want(200, "<svg", "map-coverage", "Eski Filo")
	b.submit(page, page+"/fields", "name", "Yeni Ad", "subRegion", "Üsküdar", "avgDeliveryMinutes", "31", "avgPickupMinutes", "0").wantDone(b, "fleet-changed")
	if f := s.fleet(id); f.Name != "Yeni Ad" || f.SubRegion != "Üsküdar" || f.DeliveryMinutes != 31 || f.PickupMinutes != 0 {
		t.Errorf("%+v", f)
	}
	b.submit(page, page+"/coverage", "coverage", ankara).wantDone(b, "fleet-covered")
	if got := string(s.fleet(id).Coverage.JSON()); got != ankara {
		t.Error(got)
	}
	a := b.submit(page, page+"/coverage", "coverage", "{}").want(http.StatusUnprocessableEntity)
	if a.fault("coverage") == "" || a.value("coverage") != "{}" || !has(all(a.tree(), "details")[0], "open") {
		t.Error(a.brief())
	}
	for _, none := range []string{"null", " null\n", "5", `"x"`, "[]"} {
		a := b.submit(page, page+"/coverage", "coverage", none).want(http.StatusUnprocessableEntity)
		if !strings.HasPrefix(a.fault("coverage"), "must be a GeoJSON Polygon or MultiPolygon") || string(s.fleet(id).Coverage.JSON()) != ankara {
			t.Errorf("%q: %q", none, a.fault("coverage"))
		}
	}
	b.press(page, page+"/state", "suspended", "true").wantDone(b, "fleet-suspended").want(200, ">suspended<")
	if !s.fleet(id).Suspended {
		t.Error("not suspended")
	}
	b.press(page, page+"/state", "suspended", "false").wantDone(b, "fleet-resumed").want(200, ">available<")
	if s.fleet(id).Suspended {
		t.Error("still suspended")
	}
}

func TestAnnounceOverdue_TellsTheVendorsThatThePageNames(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	id := s.newFleet("Geciken Filo")
	page := "/fleets/" + id.String()
	b.get(page).want(200, "there is nobody to tell")
	v, other := s.newAccount("Uyarılan"), s.newAccount("Uyarılmayan")
	s.activeStore(v, "s1", "Moda Şubesi", id)
	s.activeStore(v, "s2", "Bostancı Şubesi", id)
	s.putStore(other, "s3", "Bekleyen", id)
	r := s.receiver(200, "")
	s.register(v, r.URL)
	a := b.get(page).want(200, "2 active stores", "Uyarılan", "Moda Şubesi", "Bostancı Şubesi", "Bekleyen").without("Uyarılmayan")
	form := a.form(page+"/payment-overdue", "", "")
	b.post(page+"/payment-overdue", form).wantDone(b, "overdue")
	b.post(page+"/payment-overdue", form).wantDone(b, "overdue") // a second click tells nobody again
	s.await("the event", func() bool { return len(r.got()) >= 1 })
	s.await("the log", func() bool { return strings.Contains(b.get("/webhooks/"+v.id).text, "fleet.payment_overdue") })
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.types, []string{"fleet.payment_overdue"}) {
		t.Errorf("%q", r.types)
	}
}

func TestFleets_CountsStoresAndFinds(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	id := s.newFleet("Sayan Filo İzmir")
	v := s.newAccount("Sayılan")
	s.activeStore(v, "a", "A", id)
	s.activeStore(v, "m", "M", id)
	s.putStore(v, "p", "P", id)
	s.call(http.MethodPost, "/accounts/"+v.id+"/stores/m/migrate", map[string]string{"closingDate": "2099-01-01"})
	rows := all(b.get("/fleets?text="+url.QueryEscape("sayan filo ızmir")).want(200).tree(), "tr")
	if len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}
	var cells []string
	for _, cell := range all(rows[1], "td") {
		cells = append(cells, words(cell))
	}
	if got := strings.Join(cells, "|"); got != "Kadıköy|available|not told|2|1|1|25, 10" {
		t.Error(got)
	}
}

func TestFleetPage_ConfirmsAndRejectsStores(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	id := s.newFleet("Onaylayan Filo")
	v := s.newAccount("Onaylanan")
	s.putStore(v, "evet/1", "Evet", id)
	s.putStore(v, "hayır", "Hayır", id)
	page := "/fleets/" + id.String()
	b.submit(page, frame.StorePath(v.account(), "evet/1", "/confirm")).wantDone(b, "store-confirmed").want(200, "Hayır")
	b.submit(page, frame.StorePath(v.account(), "hayır", "/reject")).wantDone(b, "store-rejected").without("On the fleet")
	if a, r := s.store(v, "evet/1").State, s.store(v, "hayır").State; a != delivery.Active || r != delivery.AwaitingFleet {
		t.Error(a, r)
	}
}
