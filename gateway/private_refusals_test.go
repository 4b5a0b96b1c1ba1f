package main

import (
	"testing"

	"vendorapi/internal/delivery"
)

// The refusals of the private APIs that no other test meets on its way.
func TestPrivateAPIs_Refusals(t *testing.T) {
	s := newScene(t, "")
	nobody, order := delivery.NewAccountID().String(), s.created("POS-1")
	s.putStore(s.account, "closed", storeBody(kadikoy, ""))
	s.admin("POST", "/accounts/"+s.account.id+"/stores/closed/deactivate", `{"reason":"VendorRequest"}`)
	fleet := func(method, path, body string) func() answer {
		return func() answer { return s.fleet(s.courier, method, path, body) }
	}
	admin := func(method, path, body string) func() answer {
		return func() answer { return s.tryAdmin(method, path, body) }
	}
	for _, row := range []struct {
		name   string
		do     func() answer
		status int
		code   string
		field  string
	}{
		{"another method", fleet("PATCH", "/jobs", "{}"), 405, "METHOD_NOT_ALLOWED", ""},
		{"token without credentials", fleet("POST", "/token", "{}"), 422, "VALIDATION_FAILED", "clientId"},
		{"confirm of an unknown store", fleet("POST", "/stores/"+s.account.id+"/none/confirm", ""), 404, "STORE_NOT_FOUND", ""},
		{"confirm of a closed store", fleet("POST", "/stores/"+s.account.id+"/closed/confirm", ""), 404, "STORE_NOT_FOUND", ""},
		{"reject of an unknown store", fleet("POST", "/stores/"+s.account.id+"/none/reject", ""), 404, "STORE_NOT_FOUND", ""},
		{"reject of an Active store", fleet("POST", "/stores/"+s.account.id+"/s1/reject", ""), 409, "STORE_NOT_PENDING", ""},
		{"swap without a courier", fleet("PUT", "/jobs/"+order+"/courier", "{}"), 422, "VALIDATION_FAILED", "courier.name"},
		{"deactivation at no account", admin("POST", "/accounts/none/stores/s1/deactivate", `{"reason":"VendorRequest"}`), 404, "ACCOUNT_NOT_FOUND", ""},
		{"deactivation at an unknown account", admin("POST", "/accounts/"+nobody+"/stores/s1/deactivate", `{"reason":"VendorRequest"}`), 404, "STORE_NOT_FOUND", ""},
		{"deactivation of a closed store", admin("POST", "/accounts/"+s.account.id+"/stores/closed/deactivate", `{"reason":"VendorRequest"}`), 409, "STORE_NOT_CONFIGURED", ""},
		{"migration at no account", admin("POST", "/accounts/none/stores/s1/migrate", `{"closingDate":"2099-01-01"}`), 404, "ACCOUNT_NOT_FOUND", ""},
		{"migration of an unknown store", admin("POST", "/accounts/"+s.account.id+"/stores/none/migrate", `{"closingDate":"2099-01-01"}`), 404, "STORE_NOT_FOUND", ""},
		{"migration of a closed store", admin("POST", "/accounts/"+s.account.id+"/stores/closed/migrate", `{"closingDate":"2099-01-01"}`), 409, "STORE_NOT_CONFIGURED", ""},
		{"rotation without a receiver", admin("POST", "/accounts/"+s.account.id+"/webhook/rotate", ""), 404, "WEBHOOK_NOT_CONFIGURED", ""},
	} {
		if a := row.do(); a.status != row.status || a.code != row.code || a.firstField() != row.field || a.message == "" {
			t.Errorf("%s: %d %s, want %d %s", row.name, a.status, a.body, row.status, row.code)
		}
	}
}
