package systemtest

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"vendorapi/gateway/openapi/contract"
)

// documented is a transport that holds every call of the three APIs against the
// OpenAPI documents.
type documented struct {
	t *testing.T
	http.RoundTripper
}

// RoundTrip calls, and checks the answer when it has come whole.
func (d documented) RoundTrip(req *http.Request) (*http.Response, error) {
	parts := strings.SplitN(req.URL.EscapedPath(), "/", 4) // "", api, vendor, …
	var sent []byte
	if req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			sent, _ = io.ReadAll(body) // a reader of bytes in memory
		}
	}
	resp, err := d.RoundTripper.RoundTrip(req)
	if err != nil || len(parts) < 4 || parts[1] != "api" || parts[3] == "v1/openapi.yaml" {
		return resp, err
	}
	document, err := contract.API(parts[2])
	if err != nil {
		return resp, nil // another server's
	}
	said, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(said))
	e := contract.Exchange{Method: req.Method, Target: req.URL.RequestURI(), Header: req.Header, Body: append([]byte{}, sent...),
		Status: resp.StatusCode, Answer: resp.Header, Said: said}
	if bytes.Contains(said, []byte(`"errorCode":"NOT_FOUND"`)) {
		e.Target = "/" // the other listener was asked, which has no such path
	}
	if err := document.Check(e); err != nil {
		d.t.Errorf("not as documented: %s %s: %v", e.Method, e.Target, err)
	}
	return resp, nil
}
