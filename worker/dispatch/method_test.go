package dispatch

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
)

// A webhook is a POST to exactly the URL that was registered.
//
//rule:webhook-receiver-implemented-by-the-vendor/the-service-sends-post-to events/the-service-posts-each-event
func TestSend_PostsToTheRegisteredURL(t *testing.T) {
	var got atomic.Value
	server := receive(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Store(r.Method + " " + r.RequestURI + " " + string(body))
	})
	s := newSender(guard{local: true}, testSettings(), nil)
	a := s.send(t.Context(), server.URL+"/hooks/a%20b?key=1&key=2", header("a"), []byte(`{"x":1}`))
	if want := `POST /hooks/a%20b?key=1&key=2 {"x":1}`; !a.ok() || got.Load() != want {
		t.Errorf("%+v, received %s, want %s", a, got, want)
	}
}
