package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/goccy/go-yaml"

	"vendorapi/gateway/openapi"
	"vendorapi/internal/delivery"
)

func TestDerived_IsUpToDate(t *testing.T) {
	if err := run("..", false); err != nil {
		t.Error(err)
	}
}

func documents(t *testing.T) (all []*openapi3.T) {
	for _, text := range [][]byte{openapi.Vendor, openapi.Fleet, openapi.Admin} {
		document, err := openapi3.NewLoader().LoadFromData(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, document)
	}
	return all
}

// The table has every code that the service can answer, with its status, and no
// other.
func TestErrorTable_HasEveryCode(t *testing.T) {
	rows, err := errorCodes(documents(t))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]int{}
	for _, code := range delivery.Codes() {
		known[string(code)] = code.HTTPStatus()
	}
	for row := range rows {
		if known[row.code] != row.status {
			t.Errorf("%s is documented with %d, the service answers %d", row.code, row.status, known[row.code])
		}
		delete(known, row.code)
	}
	for code := range known {
		t.Errorf("%s is not documented", code)
	}
}

// Whoever imports the collection can call everything, and it uses no variable that
// it does not have.
func TestPostman_HasEveryOperationAndItsVariables(t *testing.T) {
	document := documents(t)[0]
	content, err := postmanCollection(document)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(content) {
		t.Error("it is no JSON")
	}
	var c collection
	if err := yaml.Unmarshal(collectionText, &c); err != nil {
		t.Fatal(err)
	}
	called := map[string]bool{}
	for _, s := range c.Steps {
		called[s.Operation] = true
	}
	for path, entry := range document.Paths.Map() {
		for method, op := range entry.Operations() {
			if !called[op.OperationID] {
				t.Errorf("%s %s is not in the collection", method, path)
			}
		}
	}
	text := string(content)
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "{{")
		if !found {
			break
		}
		name, after, _ := strings.Cut(after, "}}")
		if !strings.Contains(text, `"key": "`+name+`"`) {
			t.Errorf("the variable %s is not defined", name)
		}
		rest = after
	}
}
