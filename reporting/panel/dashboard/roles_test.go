package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/auth/authenv"
)

var routes = []string{"/overview", "/overview/live", "/orders", "/orders/" + delivery.MakeOrderID(0, 20000, [12]byte{1}).String(),
	"/orders/" + delivery.MakeOrderID(0, 20000, [12]byte{1}).String() + "/live", "/refused-updates", "/dead-letters", "/audit"}

func TestRoutes_AreForOperatorsAndReadOnly(t *testing.T) {
	e := newEnv(t)
	for _, path := range routes {
		e.client.Get(path, authenv.As("finance")).Want(http.StatusForbidden)
		if to := testenv.NewClient(t, e.client.URL, testenv.AcceptHTML).Get(path).Want(http.StatusSeeOther).Header.Get("Location"); !strings.HasPrefix(to, "/login") {
			t.Errorf("a stranger at %s is led to %q", path, to)
		}
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			e.client.Do(method, path, "").Want(http.StatusMethodNotAllowed)
		}
	}
}
