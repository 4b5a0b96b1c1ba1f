package admin

import (
	"net/http"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
)

// What is none of the values of a filter is refused, with the filter's name.
func TestFilters_SayWhatMakesNoSense(t *testing.T) {
	e := newEnv(t)
	v, fleet := e.newAccount("Süzgeç"), e.newFleet("Süzgeç filosu")
	e.activeStore(v, "s1", "Görünmeyen Şube", fleet)
	e.register(v, "https://vendor.example/")
	unknown := delivery.NewAccountID().String()
	for _, c := range []struct{ path, filter, message string }{
		{"/stores?fleet=garbage", "fleet", "must be a fleet's id, a UUID of 36 characters"},
		{"/stores?fleet=" + unknown, "fleet", "no fleet has this id"},
		{"/stores?state=garbage", "state", "is no state of a store"},
		{"/stores?account=garbage", "account", "must be the name of exactly one account, or an account's id, a UUID of 36 characters"},
		{"/stores?account=" + unknown, "account", "no account has this id"},
		{"/webhooks?state=garbage", "state", "is no state of a receiver"},
		{"/webhooks?after=abc", "after", "is no place in this list; begin again without it"},
		{"/webhooks?text=s&after=0.00", "after", "is no place in this list; begin again without it"},
		{"/webhooks/" + v.id + "?status=garbage", "status", "must be delivered, retrying, undelivered, notSent or nothing"},
		{"/webhooks/" + v.id + "?page=1.5", "page", "must be the number of a page, from 1"},
		{"/accounts?after=-1", "after", "is no place in this list; begin again without it"},
		{"/accounts?state=garbage", "state", "is no state of an account"},
		{"/fleets?page=99999999999999999999", "page", "must be the number of a page, from 1"},
	} {
		a := e.Get(c.path).Want(http.StatusUnprocessableEntity, "VALIDATION_FAILED").Lacks("Görünmeyen Şube")
		if alert := testenv.Words(testenv.All(a.Tree(), "", "alert")[0]); !strings.Contains(alert, strings.ToUpper(c.filter[:1])+c.filter[1:]+": "+c.message) {
			t.Errorf("%s: %q", c.path, alert)
		}

		for _, link := range testenv.All(a.Tree(), "a") {
			to := testenv.Attribute(link, "href")
			if strings.Contains(to, "garbage") || strings.Contains(to, "after=abc") {
				t.Errorf("%s: a link to %s", c.path, to)
			}
		}
	}

	for _, field := range []string{"fleet", "account"} {
		a := e.Get("/stores?" + field + "=garbage&text=kept")
		if faultOf(a, field) == "" || searched(a, field) != "garbage" || searched(a, "text") != "kept" {
			t.Errorf("%s: %q, %q, %q", field, faultOf(a, field), searched(a, field), searched(a, "text"))
		}
	}

	// What refreshes itself is refused as a whole: nobody would see why.
	for _, path := range []string{"/webhooks/live?state=garbage", "/webhooks/" + v.id + "/live?status=garbage"} {
		e.Get(path).Want(http.StatusUnprocessableEntity)
	}
}

// An action's answer is the page without filters: a secret is not lost for one
// that makes no sense.
func TestFilters_AreNoneOfAnActions(t *testing.T) {
	e := newEnv(t)
	form := e.Get("/accounts").Form("/accounts", "", "")
	form.Set("name", "Süzgeçsiz "+t.Name())
	issuedTo(t, e.Post("/accounts?page=garbage", form).Want(http.StatusOK))
}
