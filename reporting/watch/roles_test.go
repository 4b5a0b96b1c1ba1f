package watch

import (
	"net/http"
	"testing"

	"vendorapi/internal/delivery"
)

var routes = []string{"/overview", "/overview/live", "/orders", "/orders/" + delivery.MakeOrderID(0, 20000, [12]byte{1}).String(),
	"/orders/" + delivery.MakeOrderID(0, 20000, [12]byte{1}).String() + "/live", "/refused-updates", "/dead-letters"}

func TestRoutes_AreForOperatorsAndReadOnly(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	for _, path := range routes {
		if got := w.ask("GET", "finance", path).StatusCode; got != http.StatusForbidden {
			t.Errorf("finance gets %d from %s", got, path)
		}
		if got := w.ask("GET", "", path); got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") == "" {
			t.Errorf("a stranger gets %d from %s", got.StatusCode, path)
		}
		for _, who := range []string{"operator", "finance"} {
			for _, method := range []string{"POST", "PUT", "DELETE"} {
				if got := w.ask(method, who, path).StatusCode; got != http.StatusMethodNotAllowed && got != http.StatusForbidden {
					t.Errorf("%s %s as %s: %d", method, path, who, got)
				}
			}
		}
	}
}
