package systemtest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"vendorapi/gateway/openapi/contract"
)

// judged is a transport that holds every call of the three APIs against the
// OpenAPI documents. What is not as documented fails the package: a system is
// shared by tests that begin and end in any order.
type judged struct{ http.RoundTripper }

// undocumented are the faults that were found, each once.
var undocumented findings

type findings struct {
	mu  sync.Mutex
	all map[string]bool
}

func (f *findings) add(fault string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[string]bool{}
	}
	f.all[fault] = true
}

// tell prints the faults and reports whether there are any.
func (f *findings) tell() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for fault := range f.all {
		fmt.Println("not as documented:", fault)
	}
	return len(f.all) > 0
}

// RoundTrip calls, and judges the answer when it has come whole.
func (j judged) RoundTrip(req *http.Request) (*http.Response, error) {
	parts := strings.SplitN(req.URL.EscapedPath(), "/", 4) // "", api, vendor, …
	var sent []byte
	if req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			sent, _ = io.ReadAll(body) // a reader of bytes in memory
		}
	}
	resp, err := j.RoundTripper.RoundTrip(req)
	if err != nil || len(parts) < 4 || parts[1] != "api" || parts[3] == "v1/openapi.yaml" {
		return resp, err
	}
	d, err := contract.API(parts[2])
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
	for _, fault := range d.Judge(e) {
		undocumented.add(fmt.Sprintf("%s %s: %v", e.Method, e.Target, fault))
	}
	return resp, nil
}
