package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/layout"
)

func TestStore_ActionsByState(t *testing.T) {
	e := newEnv(t)
	v, fleet := e.newAccount("Mağaza"), e.newFleet("Mağaza filosu")
	e.putStore(v, "s1", "Moda Şubesi", fleet)
	page := layout.StorePath(v.account(), "s1", "")
	e.Get(page).Want(200, "awaiting approval", "Moda Şubesi", "5321234567", "<svg", "/confirm", "/reject", "/deactivate").Lacks("/migrate")

	e.Submit(page, page+"/reject", "reason", strings.Repeat("x", 257)).Want(http.StatusUnprocessableEntity, "reason")
	e.done(e.Submit(page, page+"/reject", "reason", "Çok uzak"), "store-rejected").Want(200, "awaiting a fleet").Lacks("/confirm", "/migrate")
	if e.store(v, "s1").State != delivery.AwaitingFleet {
		t.Error("not rejected")
	}

	e.putStore(v, "s1", "Moda Şubesi", fleet)
	stale := e.Get(page).Form(page+"/confirm", "", "")
	e.done(e.Submit(page, page+"/confirm"), "store-confirmed").Want(200, "/migrate").Lacks("/confirm")
	e.Post(page+"/reject", stale).Want(http.StatusConflict, "STORE_NOT_PENDING")

	closing := time.Now().In(delivery.Istanbul).AddDate(0, 0, 2)
	e.done(e.Submit(page, page+"/migrate", "closingDate", closing.Format(time.DateOnly)), "store-migrating").Want(200, "migrating", closing.Format("2 Jan 2006"))
	if got := e.store(v, "s1").ClosingDate.In(delivery.Istanbul).Format(time.DateOnly); got != closing.Format(time.DateOnly) {
		t.Error(got)
	}

	e.done(e.Submit(page, page+"/deactivate", "reason", "FleetSuspended"), "store-deactivated").Want(200, "The store is deactivated.").Lacks("/deactivate", "/migrate", "/confirm")
	if e.store(v, "s1").State != delivery.Deactivated {
		t.Error("not deactivated")
	}
}

func TestConfirmStore_RefusesForAFleetThatItHasLeft(t *testing.T) {
	e := newEnv(t)
	v, old, fresh := e.newAccount("Taşınan"), e.newFleet("Eski"), e.newFleet("Yeni")
	e.putStore(v, "s1", "Şube", old)
	page := layout.StorePath(v.account(), "s1", "")
	stale := e.Get(page).Form(page+"/confirm", "", "")
	e.putStore(v, "s1", "Şube", fresh)
	e.Post(page+"/confirm", stale).Want(http.StatusNotFound, "not attached to this fleet", "Yeni")
	if e.store(v, "s1").State != delivery.AwaitingFleetApproval {
		t.Error("confirmed")
	}
}

// Ids are whatever a vendor calls its stores.
func TestStore_LinksLeadToStoresOfAnyID(t *testing.T) {
	e := newEnv(t)
	v, fleet := e.newAccount("Tuhaf"), e.newFleet("Tuhaf filo")
	for i, id := range []string{
		"a/b", "a//b", "/", "//", "a?b=c&d", "a#b", "100%", "%2F", "a b", "Şube 1", "店舗", "a+b", "..", ".", "...", "../..", "_", "a;b", `"><script>`, "a&amp;b", "'", "confirm", "a\\b", "{store}", "~", "😀", "a:b@c",
	} {
		name := fmt.Sprintf("Şube no %d", i)
		e.putStore(v, id, name, fleet)
		list := e.Page("/stores?account=" + v.id)
		to, err := list.Request.URL.Parse(list.Link(name)) // as a browser resolves it
		must(t, err)
		link := to.RequestURI()
		e.Get(link).Want(200, "<h1>"+name+"</h1>")
		action := layout.StorePath(v.account(), id, "/confirm")
		e.done(e.Submit(link, action), "store-confirmed").Want(200, "<h1>"+name+"</h1>")
		if e.store(v, id).State != delivery.Active {
			t.Errorf("%q was not confirmed", id)
		}

		e.Submit(link, layout.StorePath(v.account(), id, "/migrate"), "closingDate", "2020-01-01").Want(http.StatusUnprocessableEntity, "<h1>"+name+"</h1>")
	}
}

func TestPaths_AreChecked(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Yollar")
	unknown := delivery.NewAccountID().String()
	for _, path := range []string{
		"/accounts/x", "/accounts/" + unknown, "/accounts/" + unknown + "/use", "/accounts/" + v.id + "x", "/accounts/" + strings.Repeat("a", 5000),
		"/webhooks/x", "/webhooks/" + unknown, "/webhooks/" + unknown + "/live", "/fleets/x", "/fleets/" + unknown,
		"/stores/x/y", "/stores/" + v.id + "/none", "/stores/" + v.id + "/%0a", "/stores/" + v.id + "/%20", "/stores/" + v.id + "/%ff",
		"/stores/" + v.id + "/" + strings.Repeat("a", 65), "/stores/" + v.id + "/_?id=..", "/stores/" + unknown + "/s", "/accounts/%00",
	} {
		e.Get(path).Want(http.StatusNotFound, "NOT_FOUND")
	}

	for _, path := range []string{"/accounts/" + v.id + "/limits", "/webhooks/" + v.id + "/replay"} {
		e.Get(path).Want(http.StatusMethodNotAllowed)
	}
}

func TestStores_Filters(t *testing.T) {
	e := newEnv(t)
	v, fleet, other := e.newAccount("Süzülen"), e.newFleet("Süzen"), e.newFleet("Öteki")
	e.putStore(v, "bekleyen", "İnci Pastanesi", fleet)
	e.activeStore(v, "açık", "Işık Lokantası", other)
	for query, want := range map[string][2]bool{ // İnci, Işık
		"account=" + v.id:                                      {true, true},
		"account=" + v.id + "&text=inci":                       {true, false},
		"account=" + v.id + "&text=" + url.QueryEscape("AÇIK"): {false, true},
		"account=" + v.id + "&state=AwaitingFleetApproval":     {true, false},
		"account=" + v.id + "&state=Active":                    {false, true},
		"fleet=" + fleet.String():                              {true, false},
		"fleet=" + other.String():                              {false, true},
	} {
		a := e.Get("/stores?" + query).Want(200)
		if got := [2]bool{strings.Contains(a.Text, "İnci Pastanesi"), strings.Contains(a.Text, "Işık Lokantası")}; got != want {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}

// All stores stand in the order of their names, of whichever account and id.
func TestStores_InTheOrderOfTheirNames(t *testing.T) {
	e := newEnv(t)
	v, fleet := e.newAccount("Sıralı"), e.newFleet("Sıralayan")
	for i, name := range []string{"Işık Lokantası", "Kahve Dünyası", "Zeytin Dalı", "Bahçe"} {
		e.putStore(v, fmt.Sprint(i), name, fleet)
	}

	var got []string
	for _, link := range testenv.All(e.Get("/stores?account="+v.id).Want(200).Tree(), "a") {
		if strings.HasPrefix(testenv.Attribute(link, "href"), "/stores/"+v.id) {
			got = append(got, testenv.Words(link))
		}
	}

	if want := "Bahçe, Işık Lokantası, Kahve Dünyası, Zeytin Dalı"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}
