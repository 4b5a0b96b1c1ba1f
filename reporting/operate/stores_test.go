package operate

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/frame"
)

func TestStore_ActionsByState(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v, fleet := s.newAccount("Mağaza"), s.newFleet("Mağaza filosu")
	s.putStore(v, "s1", "Moda Şubesi", fleet)
	page := frame.StorePath(v.account(), "s1", "")
	b.get(page).want(200, "awaiting approval", "Moda Şubesi", "5321234567", "<svg", "/confirm", "/reject", "/deactivate").without("/migrate")

	b.submit(page, page+"/reject").wantDone(b, "store-rejected").want(200, "awaiting a fleet").without("/confirm", "/migrate")
	if s.store(v, "s1").State != delivery.AwaitingFleet {
		t.Error("not rejected")
	}
	s.putStore(v, "s1", "Moda Şubesi", fleet)
	stale := b.get(page).form(page+"/confirm", "", "")
	b.submit(page, page+"/confirm").wantDone(b, "store-confirmed").want(200, "/migrate").without("/confirm")
	b.post(page+"/reject", stale).want(http.StatusConflict, "STORE_NOT_PENDING")

	tomorrow := time.Now().In(delivery.Istanbul).AddDate(0, 0, 1)
	b.submit(page, page+"/migrate", "closingDate", tomorrow.Format(time.DateOnly)).wantDone(b, "store-migrating").want(200, "migrating", tomorrow.Format("2 Jan 2006"))
	if got := s.store(v, "s1").ClosingDate.In(delivery.Istanbul).Format(time.DateOnly); got != tomorrow.Format(time.DateOnly) {
		t.Error(got)
	}
	for typed, fault := range map[string]string{"2020-01-01": "must not be in the past", "": "must be a date such as 2026-11-21", "31.12.2026": "must be a date such as 2026-11-21"} {
		a := b.submit(page, page+"/migrate", "closingDate", typed).want(http.StatusUnprocessableEntity)
		if a.fault("closingDate") != fault || a.value("closingDate") != typed {
			t.Errorf("%q: %q, %q", typed, a.fault("closingDate"), a.value("closingDate"))
		}
	}
	if a := b.submit(page, page+"/deactivate", "reason", "Boredom").want(http.StatusUnprocessableEntity); a.fault("reason") == "" {
		t.Error(a.brief())
	}
	b.submit(page, page+"/deactivate", "reason", "FleetSuspended").wantDone(b, "store-deactivated").want(200, "The store is deactivated.").without("/deactivate", "/migrate", "/confirm")
	if s.store(v, "s1").State != delivery.Deactivated {
		t.Error("not deactivated")
	}
}

func TestConfirmStore_RefusesForAFleetThatItHasLeft(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v, old, fresh := s.newAccount("Taşınan"), s.newFleet("Eski"), s.newFleet("Yeni")
	s.putStore(v, "s1", "Şube", old)
	page := frame.StorePath(v.account(), "s1", "")
	stale := b.get(page).form(page+"/confirm", "", "")
	s.putStore(v, "s1", "Şube", fresh)
	b.post(page+"/confirm", stale).want(http.StatusNotFound, "not attached to this fleet", "Yeni")
	if s.store(v, "s1").State != delivery.AwaitingFleetApproval {
		t.Error("confirmed")
	}
}

// Ids are whatever a vendor calls its stores.
func TestStore_LinksLeadToStoresOfAnyID(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v, fleet := s.newAccount("Tuhaf"), s.newFleet("Tuhaf filo")
	for i, id := range []string{
		"a/b", "a//b", "/", "//", "a?b=c&d", "a#b", "100%", "%2F", "a b", "Şube 1", "店舗", "a+b", "..", ".", "...", "../..", "_", "a;b", `"><script>`, "a&amp;b", "'", "confirm", "a\\b", "{store}", "~", "😀", "a:b@c",
	} {
		name := fmt.Sprintf("Şube no %d", i)
		s.putStore(v, id, name, fleet)
		link := s.linkTo(b, "/stores?account="+v.id, name)
		b.get(link).want(200, "<h1>"+name+"</h1>")
		action := frame.StorePath(v.account(), id, "/confirm")
		b.submit(link, action).wantDone(b, "store-confirmed").want(200, "<h1>"+name+"</h1>")
		if s.store(v, id).State != delivery.Active {
			t.Errorf("%q was not confirmed", id)
		}
		b.submit(link, frame.StorePath(v.account(), id, "/migrate"), "closingDate", "2020-01-01").want(http.StatusUnprocessableEntity, "<h1>"+name+"</h1>")
	}
}

// linkTo is where a page's link with this text leads, as a browser resolves it.
func (s *scene) linkTo(b *browser, page, text string) string {
	s.Helper()
	a := b.get(page).want(200)
	for _, link := range all(a.tree(), "a") {
		if words(link) == text {
			base, err := url.Parse(s.server.URL + page)
			must(s, err)
			to, err := base.Parse(attribute(link, "href"))
			must(s, err)
			return strings.TrimPrefix(to.String(), s.server.URL)
		}
	}
	s.Fatalf("%s has no link %q", page, text)
	return ""
}

func TestPaths_AreJudged(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Yollar")
	unknown := delivery.NewAccountID().String()
	for _, path := range []string{
		"/accounts/x", "/accounts/" + unknown, "/accounts/" + unknown + "/use", "/accounts/" + v.id + "x", "/accounts/" + strings.Repeat("a", 5000),
		"/webhooks/x", "/webhooks/" + unknown, "/webhooks/" + unknown + "/live", "/fleets/x", "/fleets/" + unknown,
		"/stores/x/y", "/stores/" + v.id + "/none", "/stores/" + v.id + "/%0a", "/stores/" + v.id + "/%20", "/stores/" + v.id + "/%ff",
		"/stores/" + v.id + "/" + strings.Repeat("a", 65), "/stores/" + v.id + "/_?id=..", "/stores/" + unknown + "/s", "/accounts/%00",
	} {
		b.get(path).want(http.StatusNotFound, "NOT_FOUND")
	}
	for _, path := range []string{"/accounts/" + v.id + "/limits", "/webhooks/" + v.id + "/replay"} {
		if a := b.get(path); a.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", path, a.StatusCode)
		}
	}
}

func TestStores_Filters(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v, fleet, other := s.newAccount("Süzülen"), s.newFleet("Süzen"), s.newFleet("Öteki")
	s.putStore(v, "bekleyen", "İnci Pastanesi", fleet)
	s.activeStore(v, "açık", "Işık Lokantası", other)
	for query, want := range map[string][2]bool{ // İnci, Işık
		"account=" + v.id:                                      {true, true},
		"account=" + v.id + "&text=inci":                       {true, false},
		"account=" + v.id + "&text=" + url.QueryEscape("AÇIK"): {false, true},
		"account=" + v.id + "&state=AwaitingFleetApproval":     {true, false},
		"account=" + v.id + "&state=Active":                    {false, true},
		"fleet=" + fleet.String():                              {true, false},
		"fleet=" + other.String():                              {false, true},
	} {
		a := b.get("/stores?" + query).want(200)
		if got := [2]bool{strings.Contains(a.text, "İnci Pastanesi"), strings.Contains(a.text, "Işık Lokantası")}; got != want {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}
