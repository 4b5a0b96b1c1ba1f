package admin

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/layout"
)

const ankara = `{"type":"MultiPolygon","coordinates":[[[[32.5,39.7],[33.1,39.7],[33.1,40.1],[32.5,40.1],[32.5,39.7]]]]}`

func TestCreateFleet_ShowsTheSecretOnce(t *testing.T) {
	e := newEnv(t)

	a := e.Submit("/fleets", "/fleets", "name", "Yeni Filo "+t.Name(), "subRegion", "Çankaya", "avgDeliveryMinutes", "20", "coverage", ankara).Want(200, "only time")

	codes := secrets(a)
	id, ok := delivery.FleetOfClient(codes[0])
	if !ok {
		t.Fatal(codes)
	}

	f := e.fleet(id)
	if f.Name != "Yeni Filo "+t.Name() || f.DeliveryMinutes != 20 || f.PickupMinutes != delivery.DefaultPickupMinutes || string(f.Coverage.JSON()) != ankara {
		t.Errorf("%+v", f)
	}

	secret := codes[1]
	for _, path := range []string{"/fleets", "/fleets/" + id.String()} {
		e.Get(path).Want(200).Lacks(secret)
	}

	if a.Value("coverage") != "" || a.Value("name") != "" || strings.Contains(e.log.String(), secret) {
		t.Error("the form is still filled in, or the secret logged")
	}
}

func TestFleet_ChangesAreSeenInTheLedger(t *testing.T) {
	e := newEnv(t)
	id := e.newFleet("Eski Filo")
	page := "/fleets/" + id.String()
	e.Get(page).Want(200, "<svg", "map-coverage", "Eski Filo")

	e.done(e.Submit(page, page+"/fields", "name", "Yeni Ad", "subRegion", "Üsküdar", "avgDeliveryMinutes", "31", "avgPickupMinutes", "0"), "fleet-changed")
	if f := e.fleet(id); f.Name != "Yeni Ad" || f.SubRegion != "Üsküdar" || f.DeliveryMinutes != 31 || f.PickupMinutes != 0 {
		t.Errorf("%+v", f)
	}

	e.done(e.Submit(page, page+"/coverage", "coverage", ankara), "fleet-covered")
	if got := string(e.fleet(id).Coverage.JSON()); got != ankara {
		t.Error(got)
	}
	if a := e.Submit(page, page+"/coverage", "coverage", "{}").Want(http.StatusUnprocessableEntity); !testenv.Has(testenv.All(a.Tree(), "details")[0], "open") {
		t.Error("the faulty field is folded")
	}

	e.done(e.Press(page, page+"/state", "suspended", "true"), "fleet-suspended").Want(200, ">suspended<")
	if !e.fleet(id).Suspended {
		t.Error("not suspended")
	}

	e.done(e.Press(page, page+"/state", "suspended", "false"), "fleet-resumed").Want(200, ">available<")
	if e.fleet(id).Suspended {
		t.Error("still suspended")
	}

	e.done(e.Press(page, page+"/state", "disabled", "true"), "fleet-disabled").Want(200, ">disabled<")
	if f := e.fleet(id); !f.Disabled || f.Suspended {
		t.Errorf("%+v", f)
	}

	e.done(e.Press(page, page+"/state", "disabled", "false"), "fleet-enabled").Want(200, ">available<")

	e.done(e.Submit(page, page+"/fields", "requestsPerSecond", "45"), "fleet-changed").Want(200, "45 requests a second")
	if f := e.fleet(id); f.Disabled || f.RequestsPerSecond != 45 {
		t.Errorf("%+v", f)
	}

	e.Submit(page, page+"/fields", "requestsPerSecond", "0").Want(http.StatusUnprocessableEntity, "requestsPerSecond-fault")
}

func TestAnnounceOverdue_TellsTheVendorsThatThePageNames(t *testing.T) {
	e := newEnv(t)
	id := e.newFleet("Geciken Filo")
	page := "/fleets/" + id.String()
	e.Get(page).Want(200, "there is nobody to tell")

	v, other := e.newAccount("Uyarılan"), e.newAccount("Uyarılmayan")
	e.activeStore(v, "s1", "Moda Şubesi", id)
	e.activeStore(v, "s2", "Bostancı Şubesi", id)
	e.putStore(other, "s3", "Bekleyen", id)
	r := e.receiver(200, "")
	e.register(v, r.URL)

	a := e.Get(page).Want(200, "2 active stores", "Tell one vendor that", "Uyarılan", "Moda Şubesi", "Bostancı Şubesi", "Bekleyen").Lacks("Uyarılmayan")
	form := a.Form(page+"/payment-overdue", "", "")
	e.done(e.Post(page+"/payment-overdue", form), "overdue")
	e.done(e.Post(page+"/payment-overdue", form), "overdue")        // a second click tells nobody again
	e.call(http.MethodPost, "/accounts/"+v.id+"/webhook/test", nil) // comes after a second one, if there were one

	received := func() (overdue, test int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, event := range r.types { // an activation of a store may be among them
			switch event {
			case "fleet.payment_overdue":
				overdue++
			case "webhook.test":
				test++
			}
		}

		return overdue, test
	}

	e.await("the events", func() bool { overdue, test := received(); return overdue > 0 && test > 0 })
	if overdue, _ := received(); overdue != 1 {
		t.Errorf("sent %d times", overdue)
	}

	e.await("the log", func() bool { return strings.Contains(e.Get("/webhooks/"+v.id).Text, "fleet.payment_overdue") })
}

func TestFleets_CountsStoresAndFinds(t *testing.T) {
	e := newEnv(t)
	mark := rand.Text()[:8]
	id := e.newFleet("Sayan Filo İzmir " + mark)

	v := e.newAccount("Sayılan")
	e.activeStore(v, "a", "A", id)
	e.activeStore(v, "m", "M", id)
	e.putStore(v, "p", "P", id)
	e.call(http.MethodPost, "/accounts/"+v.id+"/stores/m/migrate", map[string]string{"closingDate": "2099-01-01"})

	rows := testenv.All(e.Get("/fleets?text="+url.QueryEscape("sayan filo ızmir "+mark)).Want(200).Tree(), "tr")
	if len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}

	var cells []string
	for _, cell := range testenv.All(rows[1], "td") {
		cells = append(cells, testenv.Words(cell))
	}

	if got := strings.Join(cells, "|"); got != "Kadıköy|available|not reported|2|1|25, 10|200" {
		t.Error(got)
	}

	e.Get("/fleets/"+id.String()).Want(200, "2 active, 1 of them migrating; 1 awaiting approval")
}

func TestFleetPage_ConfirmsAndRejectsStores(t *testing.T) {
	e := newEnv(t)
	id := e.newFleet("Onaylayan Filo")
	v := e.newAccount("Onaylanan")
	e.putStore(v, "evet/1", "Evet", id)
	e.putStore(v, "hayır", "Hayır", id)
	page := "/fleets/" + id.String()
	e.done(e.Submit(page, layout.StorePath(v.account(), "evet/1", "/confirm")), "store-confirmed").Want(200, "Hayır")
	e.done(e.Submit(page, layout.StorePath(v.account(), "hayır", "/reject")), "store-rejected").Lacks("On the fleet")
	if a, r := e.store(v, "evet/1").State, e.store(v, "hayır").State; a != delivery.Active || r != delivery.AwaitingFleet {
		t.Error(a, r)
	}
}

// A fleet's page reads a bounded part of its stores, and says that there are more.
func TestFleetPage_OfAFleetWithManyStoresShowsSome(t *testing.T) {
	e := newEnv(t)
	id := e.newFleet(unique("Büyük Filo"))
	v := e.newAccount("Büyüyen")
	e.activeStore(v, "a", "A", id)
	client, err := system.Redis.Client()
	must(t, err)
	defer client.Close()
	// More entries of the fleet's list, without records: the page must not ask for all of them.
	keys, err := client.Keys(t.Context(), "*").Result()
	must(t, err)
	endOfList := "}F" + string(rune(delivery.Active)) + string(id[:])
	added := 0
	for _, list := range keys {
		if !strings.HasSuffix(list, endOfList) {
			continue
		}
		for added < storesRead {
			added++
			digest := fmt.Sprintf("\xff%0*d", len(delivery.Digest{})-1, added) // behind the store's own
			must(t, client.ZAdd(t.Context(), list, redis.Z{Member: digest}).Err())
		}
	}

	page := e.Get("/fleets/"+id.String()).Want(200, "501 active", "there are more", "The event goes to the vendors of all of them", "the vendors of all 501 active stores")
	page.Want(200, "Büyüyen")
}
