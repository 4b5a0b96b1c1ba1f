package main

import (
	"compress/gzip"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"vendorapi/gateway/docs"
)

// fetch asks as a browser does; the body is unpacked when it came packed.
func (w *env) fetch(url string, header ...string) (*http.Response, string) {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, url, nil)
	if err != nil {
		w.Fatal(err)
	}

	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}

	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()

	body := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		body, err = gzip.NewReader(body)
		if err != nil {
			w.Fatal(err)
		}
	}

	content, err := io.ReadAll(body)
	if err != nil {
		w.Fatal(err)
	}

	return resp, string(content)
}

// references are what a page has a browser load or offers to follow.
var references = regexp.MustCompile(`(?:href|src|data-document)="([^"]*)"`)

func TestDocumentation_PagesLeadNowhereElse(t *testing.T) {
	w := newEnvWithoutRedis(t)
	for base, starts := range map[string][]string{w.vendor: {"/docs"}, w.private: {"/docs"}} {
		seen := map[string]bool{}
		for len(starts) > 0 {
			path := starts[0]
			starts = starts[1:]
			if seen[path] {
				continue
			}

			seen[path] = true
			resp, body := w.fetch(base + path)
			kind := resp.Header.Get("Content-Type")
			if resp.StatusCode != 200 || body == "" || resp.Header.Get("Content-Security-Policy") != docs.Policy || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: %d %s %v", path, resp.StatusCode, kind, resp.Header)
			}
			if !strings.HasPrefix(kind, "text/html") {
				continue
			}
			if strings.Contains(body, "<script>") || strings.Contains(body, " style=") || strings.Contains(body, " onload=") {
				t.Errorf("%s has what its policy forbids", path)
			}

			for _, m := range references.FindAllStringSubmatch(body, -1) {
				to, _, _ := strings.Cut(m[1], "#")
				switch {
				case strings.HasPrefix(to, "/"):
					starts = append(starts, to)
				case to != "" && !strings.HasPrefix(to, "data:,") && !strings.HasPrefix(to, "https://www.standardwebhooks.com"):
					t.Errorf("%s leads to %s", path, to)
				}
			}
		}

		if len(seen) < 7 {
			t.Errorf("only %v", seen)
		}
	}

	for _, path := range []string{"/docs/none", "/docs/..%2fopenapi", "/docs/admin", "/docs/admin.yaml", "/api/admin/v1/openapi.yaml"} {
		want(t, w.get(w.vendor+path, ""), 404, "NOT_FOUND")
	}
}

// Tools that generate clients differ in what they read.
func TestDocumentation_OffersEachDocumentInThreeForms(t *testing.T) {
	w := newEnvWithoutRedis(t, func(s *settings) { s.VendorAPI.PublicURL = "https://delivery.example" })
	for api, base := range map[string]string{
		w.vendor + "/api/vendor/v1": "https://delivery.example/api/vendor/v1",
		w.private + "/api/fleet/v1": "/api/fleet/v1", w.private + "/api/admin/v1": "/api/admin/v1",
	} {
		resp, text := w.fetch(api + "/openapi.yaml")
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/yaml" {
			t.Errorf("%s/openapi.yaml: %d %v", api, resp.StatusCode, resp.Header)
		}
		if !strings.Contains(text, "\nopenapi: 3.1.0\n") || !strings.Contains(text, "`openapi: 3.0.3`") {
			t.Errorf("%s/openapi.yaml is not 3.1, or does not name its other forms", api)
		}

		for form, version := range map[string]string{"/openapi.json": "3.1.0", "/openapi-3.0.json": "3.0.3"} {
			resp, text := w.fetch(api + form)
			if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%s%s: %d %v", api, form, resp.StatusCode, resp.Header)
			}

			document, err := openapi3.NewLoader().LoadFromData([]byte(text))
			if err != nil {
				t.Errorf("%s%s: %v", api, form, err)
				continue
			}

			if document.OpenAPI != version || document.Servers[0].URL != base {
				t.Errorf("%s%s is %s of %s", api, form, document.OpenAPI, document.Servers[0].URL)
			}
		}
	}

	for _, path := range []string{"/api/vendor/v1/openapi", "/api/vendor/v1/openapi-3.1.json", "/api/vendor/v1/openapi.json/", "/api/admin/v1/openapi.json"} {
		want(t, w.get(w.vendor+path, ""), 404, "NOT_FOUND")
	}
}

func TestDocumentation_IsAskedForOnce(t *testing.T) {
	w := newEnvWithoutRedis(t, func(s *settings) { s.VendorAPI.PublicURL = "https://delivery.example" })
	for _, path := range []string{"/docs", "/docs/swagger-ui-bundle.js", "/api/vendor/v1/openapi.yaml", "/api/vendor/v1/openapi-3.0.json"} {
		resp, plain := w.fetch(w.vendor + path)
		packed, unpacked := w.fetch(w.vendor+path, "Accept-Encoding", "br, gzip")
		if resp.Header.Get("Content-Encoding") != "" || packed.Header.Get("Content-Encoding") != "gzip" || plain != unpacked ||
			packed.ContentLength >= resp.ContentLength || packed.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %v and %v", path, resp.Header, packed.Header)
		}

		for _, accept := range []string{"gzip;q=0", "br, gzip; q=0.0", "gzipped", "identity"} {
			if refused, _ := w.fetch(w.vendor+path, "Accept-Encoding", accept); refused.Header.Get("Content-Encoding") != "" {
				t.Errorf("%s to %q: %v", path, accept, refused.Header)
			}
		}

		again, body := w.fetch(w.vendor+path, "If-None-Match", `"other", `+resp.Header.Get("ETag"))
		if again.StatusCode != 304 || body != "" || again.Header.Get("ETag") != resp.Header.Get("ETag") || resp.Header.Get("ETag") == "" {
			t.Errorf("%s again: %d %v", path, again.StatusCode, again.Header)
		}
	}

	if _, document := w.fetch(w.vendor + "/api/vendor/v1/openapi.yaml"); !strings.Contains(document, "\n  - url: https://delivery.example/api/vendor/v1\n") {
		t.Error("the document does not name the gateway's origin")
	}
	if _, document := w.fetch(w.private + "/api/fleet/v1/openapi.yaml"); !strings.Contains(document, "\n  - url: /api/fleet/v1\n") {
		t.Error("without a setting the document is not relative")
	}
	if _, page := w.fetch(w.vendor + "/docs/ten-minutes"); strings.Contains(page, "{base_url}") || !strings.Contains(page, "https://delivery.example") {
		t.Error("the page for integrators does not name the gateway's origin")
	}
}
