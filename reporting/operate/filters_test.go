package operate

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
)

// What is none of the values of a filter is told, with the filter's name.
func TestFilters_SayWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v, fleet := s.newAccount("Süzgeç"), s.newFleet("Süzgeç filosu")
	s.activeStore(v, "s1", "Görünmeyen Şube", fleet)
	s.register(v, "https://vendor.example/")
	unknown := delivery.NewAccountID().String()
	for _, c := range []struct{ path, filter, message string }{
		{"/stores?fleet=garbage", "fleet", "must be a fleet's id, a UUID of 36 characters"},
		{"/stores?fleet=" + unknown, "fleet", "no fleet has this id"},
		{"/stores?state=garbage", "state", "is no state of a store"},
		{"/stores?account=garbage", "account", "must be an account's id, a UUID of 36 characters"},
		{"/stores?account=" + unknown, "account", "no account has this id"},
		{"/webhooks?state=garbage", "state", "is no state of a receiver"},
		{"/webhooks?page=abc", "page", "must be the number of a page, from 1"},
		{"/webhooks?page=0", "page", "must be the number of a page, from 1"},
		{"/webhooks/" + v.id + "?status=garbage", "status", "must be delivered, retrying, undelivered, notSent or nothing"},
		{"/webhooks/" + v.id + "?page=1.5", "page", "must be the number of a page, from 1"},
		{"/accounts?page=-1", "page", "must be the number of a page, from 1"},
		{"/fleets?page=99999999999999999999", "page", "must be the number of a page, from 1"},
	} {
		a := b.get(c.path).want(http.StatusUnprocessableEntity, "VALIDATION_FAILED").without("Görünmeyen Şube")
		if alert := words(withClass(a, "alert")); !strings.Contains(alert, c.filter+" "+c.message) {
			t.Errorf("%s: %q", c.path, alert)
		}
		for _, link := range all(a.tree(), "a") {
			if to := attribute(link, "href"); strings.Contains(to, "garbage") || strings.Contains(to, "page=abc") {
				t.Errorf("%s: a link to %s", c.path, to)
			}
		}
	}
	for _, field := range []string{"fleet", "account"} {
		a := b.get("/stores?" + field + "=garbage&text=kept")
		if a.fault(field) == "" || a.query(field) != "garbage" || a.query("text") != "kept" {
			t.Errorf("%s: %q, %q, %q", field, a.fault(field), a.query(field), a.query("text"))
		}
	}
	// What refreshes itself is refused as a whole: nobody would see why.
	for _, path := range []string{"/webhooks/live?state=garbage", "/webhooks/" + v.id + "/live?status=garbage"} {
		b.get(path).want(http.StatusUnprocessableEntity)
	}
	// A number beyond the end is the last page: the list may have shrunk.
	b.get("/webhooks?page=999999&text="+v.id).want(http.StatusOK, "/webhooks/"+v.id)
}

// An action's answer is the page without filters: a secret is not lost for one
// that makes no sense.
func TestFilters_AreNoneOfAnActions(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	form := b.get("/accounts").form("/accounts", "", "")
	form.Set("name", "Süzgeçsiz "+t.Name())
	issued(t, b.post("/accounts?page=garbage", form).want(http.StatusOK))
}

// Whatever an address holds, a page's number is one that there is or is refused.
func TestFilters_PageIsOneOrRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		given := rapid.OneOf(rapid.String(), rapid.StringMatching(`-?[0-9]{1,25}`)).Draw(t, "page")
		r := httptest.NewRequest(http.MethodGet, "/x?"+url.Values{"page": {given}}.Encode(), nil)
		f := filtersOf(r, "page")
		asked := f.Get("page")
		n := f.page()
		if n < 1 || (f.err() != nil) == f.Has("page") && asked != "" {
			t.Fatalf("%q: %d, %v", given, n, f.err())
		}
	})
}

// withClass is the first element of a class.
func withClass(a answer, class string) *htmlNode {
	a.t.Helper()
	for n := range a.tree().Descendants() {
		if attribute(n, "class") == class {
			return n
		}
	}
	a.t.Fatalf("%s has no %s: %s", a.Request.URL, class, a.brief())
	return nil
}

// query is what stands in a field of the search.
func (a answer) query(field string) string {
	a.t.Helper()
	for _, form := range all(a.tree(), "form") {
		if attribute(form, "role") == "search" {
			return fieldsIn(form).Get(field)
		}
	}
	return ""
}
