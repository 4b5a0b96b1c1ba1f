package admin

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/layout"
)

func TestForms_SayWhatIsWrongAndKeepAllThatWasTyped(t *testing.T) {
	e := newEnv(t)
	v, fleet := e.newAccount("Hatalı"), e.newFleet("Hatalı filo")
	e.activeStore(v, "s1", "Şube", fleet)
	e.register(v, "https://vendor.example/")
	account, webhook, store, area := "/accounts/"+v.id, "/webhooks/"+v.id, layout.StorePath(v.account(), "s1", ""), "/fleets/"+fleet.String()
	const (
		name, number, date = "must have 1 to 200 characters", "must be a number", "must be a date such as 2026-11-21"
		geometry           = "must be a GeoJSON Polygon or MultiPolygon"
	)

	for _, c := range []struct {
		page, action, field, typed string
		fault                      string // how it begins
	}{
		{"/accounts", "", "name", "", name},
		{"/accounts", "", "name", "   ", name},
		{"/accounts", "", "name", strings.Repeat("ş", 201), name},
		{"/accounts", "", "name", "a\x01b", "must"},
		{account, "/name", "name", "", name},
		{account, "/limits", "limits.orders.sustained.count", "0", "must be a whole number from 1 to 1000000"},
		{account, "/limits", "limits.orders.sustained.count", "", number},
		{account, "/limits", "limits.orders.burst.seconds", "86401", "must be a whole number from 1 to 86400"},
		{account, "/limits", "limits.stores.burst.count", "many", number},
		{account, "/limits", "limits.token.sustained.seconds", "1.5", number},
		{account, "/limits", "limits.token.sustained.seconds", "007", number},
		{account, "/limits", "limits.cancel.sustained.count", "99999999999999999999", number},
		{account, "/limits", "limits.cancel.burst.count", "5", ""}, // without its seconds, which are marked
		{"/fleets", "", "name", "", name},
		{"/fleets", "", "avgDeliveryMinutes", "241", "must be a whole number from 1 to 240"},
		{"/fleets", "", "avgDeliveryMinutes", "", number},
		{"/fleets", "", "avgPickupMinutes", "soon", number},
		{"/fleets", "", "coverage", "", "is not JSON: unexpected end of JSON input"},
		{"/fleets", "", "coverage", "\n{\"type\": \"Polygon\",", "is not JSON: unexpected end of JSON input"},
		{"/fleets", "", "coverage", `</textarea><script>alert(1)</script>`, "is not JSON: invalid character '<' looking for beginning of value"},
		{"/fleets", "", "coverage", `{"type":"Point","coordinates":[1,2]}`, geometry + `, not "Point"`},
		{"/fleets", "", "coverage", `{"type":"Polygon","coordinates":[[[1,2],[3,4],[5,6],[7,8]]]}`, "polygon 1: ring 1: it is not closed"},
		{area, "/fields", "avgPickupMinutes", "", number},
		{area, "/coverage", "coverage", "{}", geometry},
		{area, "/coverage", "coverage", "null", geometry},
		{area, "/coverage", "coverage", " null\n", geometry},
		{area, "/coverage", "coverage", "5", geometry},
		{area, "/coverage", "coverage", `"x"`, geometry},
		{area, "/coverage", "coverage", "[]", geometry},
		{webhook, "/url", "url", "", "must be an absolute URL"},
		{webhook, "/url", "url", "ftp://vendor.example/", "must"},
		{webhook, "/url", "url", "https://u:p@vendor.example/", "must"},
		{webhook, "/url", "url", "https://10.0.0.1/", "must"},
		{webhook, "/url", "url", `https://vendor.example/"><script>alert(1)</script>#x`, "must"},
		{account, "/limits", "limits.maxStores", "0", "must be a whole number"},
		{account, "/limits", "limits.maxStores", "", "must be a number"},
		{account, "/limits", "limits.maxPendingStores", "1000001", "must be a whole number"},
		{account, "/limits", "limits.maxPendingStores", "many", "must be a number"},
		{webhook, "/limits", "maxInFlight", "1025", "must be a whole number"},
		{webhook, "/limits", "maxPerSecond", "fast", "must be a whole number"},
		{webhook, "/replay", "since", "yesterday", "must"},
		{store, "/migrate", "closingDate", "2020-01-01", "must not be in the past"},
		{store, "/migrate", "closingDate", "", date},
		{store, "/migrate", "closingDate", "31.12.2026", date},
		{store, "/deactivate", "reason", "Boredom", "must"},
	} {
		form := e.Page(c.page).Form(c.page+c.action, "", "")
		if c.page == "/fleets" {
			form = url.Values{"csrf": form["csrf"], "once": form["once"], "name": {"Filo"}, "subRegion": {"Kadıköy"}, "avgDeliveryMinutes": {"20"},
				"avgPickupMinutes": {"5"}, "coverage": {ankara}}
		}

		if c.action == "/limits" && c.page == account {
			form.Set("limits.orderStatus.sustained.count", "77")
		}

		form.Set(c.field, c.typed)
		a := e.Post(c.page+c.action, form).Want(http.StatusUnprocessableEntity, "VALIDATION_FAILED")
		if got := faultOf(a, c.field); !strings.HasPrefix(got, c.fault) || (got == "") != (c.fault == "") {
			t.Errorf("%s%s: %s %q: %q, want %q", c.page, c.action, c.field, c.typed, got, c.fault)
		}

		for field := range form {
			if got := a.Value(field); got != form.Get(field) && field != "csrf" && field != "once" && c.typed != "Boredom" {
				t.Errorf("%s%s: %s %q became %q", c.page, c.action, field, form.Get(field), got)
			}
		}
	}

	if e.account(v).Limits != delivery.DefaultLimits() || e.account(v).Name != "Hatalı" || e.endpoint(v).URL != "https://vendor.example/" ||
		string(e.fleet(fleet).Coverage.JSON()) != istanbul || e.store(v, "s1").State != delivery.Active {
		t.Error("something was changed")
	}
}
