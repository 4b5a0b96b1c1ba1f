package tracking

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
)

// FuzzTokenPath asks for whatever follows /track/ without a ledger: what is no
// valid token must be answered without one, and never with an order.
func FuzzTokenPath(f *testing.F) {
	id := delivery.MakeOrderID(3, 20000, delivery.OrderDigest(delivery.AccountID{1}, "order"))
	for _, seed := range append(forgeries(&delivery.Order{ID: id}), "", "/", "..", "a/live", "assets/1/track.css", "assets/1/nothing", "%", "a//b", "a\x00b") {
		f.Add(seed)
	}

	pages, err := New(nil, keys, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		f.Fatal(err)
	}

	pages.now = time.Now // nothing is read of a ledger
	handler := pages.Handler()
	f.Fuzz(func(t *testing.T, rest string) {
		for _, part := range strings.Split(rest, "/") {
			if _, err := keys.Parse(part); err == nil {
				return // the fuzzer has broken HMAC, or copied a seed
			}
		}

		w := httptest.NewRecorder()
		handler.ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/track/" + rest}, Header: http.Header{}, Host: "example.test"})
		switch {
		case w.Code == http.StatusNotFound, w.Code == http.StatusTemporaryRedirect, w.Code == http.StatusMovedPermanently, w.Code == http.StatusBadRequest:
		case w.Code == http.StatusOK && strings.HasPrefix(rest, "assets/"):
		default:
			t.Fatalf("%q: %d %s", rest, w.Code, w.Body)
		}

		if location := w.Header().Get("Location"); location != "" && (!strings.HasPrefix(location, "/") || strings.HasPrefix(location, "//")) {
			t.Fatalf("%q leads to %q", rest, location)
		}
		if w.Body.Len() > 100_000 || strings.Contains(w.Body.String(), "data-live") || w.Header().Get("Referrer-Policy") != "no-referrer" {
			t.Fatalf("%q: %s", rest, w.Body)
		}
	})
}
