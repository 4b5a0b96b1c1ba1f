package auth

import (
	"net/http"
	"testing"
)

func TestAcceptsGzip(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{"gzip": true, "br, gzip;q=0.5": true, "*": true, "GZIP": true, "x-gzip": true,
		"": false, "identity": false, "br": false, "gzip;q=0": false, "*;q=0": false, "gzip;q=0, *": false, "gzip;q=x": false, "gzip;q=0.0": false, "gzip; q=0, br": false} {
		if got := AcceptsGzip(&http.Request{Header: http.Header{"Accept-Encoding": {accept}}}); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
}

func TestWantsPage(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{"text/html": true, "text/html;q=0.5": true, "text/html;q=0": false, "text/html;q=0.0": false, "*/*": false, "": false} {
		if got := WantsPage(&http.Request{Header: http.Header{"Accept": {accept}}}); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
}
