package main

import (
	"cmp"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"vendorapi/gateway/openapi"
)

// unnamed is a path whose parameters have no names, as the routes have it.
func unnamed(path string) string { return pathParameter.ReplaceAllString(path, "{}") }

// patternsOf returns an API's routes as "POST /orders/{}/cancel".
func patternsOf(rs routes, root string) []string {
	found := make([]string, len(rs))
	for i, r := range rs {
		found[i] = r.method + " " + strings.TrimPrefix(r.pattern, root)
	}
	return slices.Sorted(slices.Values(found))
}

// The routes are those of the OpenAPI document, and every endpoint that the
// specification or the decisions name is one of them.
func TestRoutes_AreThoseOfTheDocuments(t *testing.T) {
	t.Parallel()

	const spec, decisions = "docs/spec/delivery-vendor-api-v1.md", "docs/spec/decisions.md"
	for api, c := range map[string]struct {
		routes   routes
		table    string
		document []byte
		promised string // the file that names endpoints
		section  string // its heading; empty: the whole file
		least    int    // endpoints that are named there
	}{
		"vendor": {vendorRoutes(), "gateway/vendor.go", openapi.Vendor, spec, "", 5},
		"fleet":  {fleetRoutes(), "gateway/fleet.go", openapi.Fleet, decisions, "### Fleet API\n", 10},
		"admin":  {adminRoutes(), "gateway/admin.go", openapi.Admin, decisions, "### Admin API\n", 15},
	} {
		document, err := openapi3.NewLoader().LoadFromData(c.document)
		if err != nil {
			t.Fatal(err)
		}

		got := patternsOf(c.routes, document.Servers[0].URL)
		var documented []string
		for path, item := range document.Paths.Map() {
			for method := range maps.Keys(item.Operations()) {
				documented = append(documented, method+" "+unnamed(path))
			}
		}

		for _, pattern := range got {
			if !slices.Contains(documented, pattern) {
				t.Errorf("%s: add the operation, as %s has the route, to gateway/openapi/%s.yaml", pattern, c.table, api)
			}
		}

		for _, pattern := range documented {
			if !slices.Contains(got, pattern) {
				t.Errorf("%s: add the route to %s, as gateway/openapi/%s.yaml documents it", pattern, c.table, api)
			}
		}

		promised := endpointsIn(t, "../"+c.promised, c.section)
		for _, pattern := range promised {
			if !slices.Contains(got, pattern) {
				t.Errorf("%s: add the route to %s, as %s promises it", pattern, c.table, c.promised)
			}
		}

		if len(promised) < c.least {
			t.Errorf("only %d endpoints of the %s API are found in %s", len(promised), api, c.promised)
		}
	}
}

// endpointsIn returns the endpoints that a section of a file names, without their
// parameters' names.
func endpointsIn(t *testing.T, file, section string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	_, part, found := strings.Cut(string(text), cmp.Or(section, "\n"))
	if !found {
		t.Fatalf("%s has no section %q", file, section)
	}

	if section != "" {
		part, _, _ = strings.Cut(part, "\n#")
	}

	endpoints := map[string]bool{}
	for _, m := range namedEndpoint.FindAllStringSubmatch(part, -1) {
		endpoints[m[1]+" "+unnamed(m[2])] = true
	}

	return slices.Sorted(maps.Keys(endpoints))
}

var namedEndpoint = regexp.MustCompile(`\b(GET|POST|PUT|PATCH|DELETE) (/[A-Za-z{}/-]*[A-Za-z}])`)
