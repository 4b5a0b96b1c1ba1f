package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"vendorapi/loadtest/receiver"
)

func TestRoutes_CountsSayWhatCame(t *testing.T) {
	t.Parallel()

	r, err := receiver.New(receiver.Options{Secrets: []string{"whsec_c2VjcmV0"}})
	if err != nil {
		t.Fatal(err)
	}

	handler := routes(r)

	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}")))
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/counts", nil))

	body := answer.Body.String()
	if !strings.Contains(body, `"received":0`) || !strings.Contains(body, `"invalid":{"`) {
		t.Error(body)
	}
}
