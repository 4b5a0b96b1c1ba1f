package tracking

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// What a page costs: a forged token, the rendering alone, and all of it.
func BenchmarkPage(b *testing.B) {
	s := newScene(b)
	o := s.order()
	s.reach(o, delivery.Delivering, 5*time.Minute)
	s.locate(o, delivery.Point{Latitude: 40.985, Longitude: 29.027}, 6*time.Minute)
	handler := s.pages.Handler()
	ask := func(b *testing.B, path string, want int) {
		b.ReportAllocs()
		for b.Loop() {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != want {
				b.Fatalf("%d", w.Code)
			}
		}
	}
	b.Run("forged", func(b *testing.B) { ask(b, "/track/"+forgeries(o)[0], http.StatusNotFound) })
	b.Run("page", func(b *testing.B) { ask(b, pathOf(o), http.StatusOK) })
	b.Run("live", func(b *testing.B) { ask(b, pathOf(o)+"/live", http.StatusOK) })
	b.Run("rendering", func(b *testing.B) {
		present, err := s.ledger.Order(context.Background(), o.ID)
		must(b, err)
		b.ReportAllocs()
		for b.Loop() {
			var out bytes.Buffer
			must(b, templates.ExecuteTemplate(&out, string(full), &sheet{words: &turkish, Token: "x", Order: newView(&turkish, present, s.store, s.pages.now())}))
		}
	})
}
