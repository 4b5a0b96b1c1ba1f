package openapi

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"vendorapi/internal/delivery"
)

var write = flag.Bool("write", false, "write ERRORS.md")

const tableHead = `# Error codes

Every refusal has ` + "`success: false`, a `message` for people, and `data.errorCode`" + ` for programs. Decide by
the code; the wording of messages may change. *The same request* has the same path and bytes and,
for an order, the same ` + "`X-Idempotency-Key`" + `; sent twice it makes one order.

Derived from the OpenAPI documents (` + "`go test ./gateway/openapi -write`" + `).

| Status | Code | When | Send again? | What to do | APIs |
|---|---|---|---|---|---|
`

// errorCode is what a document says of a code.
type errorCode struct {
	code   string
	status int

	when              string
	sendAgain, advice string
}

// ERRORS.md has every error code of the documents with what to do about it.
func TestErrors_TableIsUpToDate(t *testing.T) {
	apis := errorCodes(t)
	rows := slices.SortedFunc(maps.Keys(apis), func(a, b errorCode) int {
		return cmp.Or(cmp.Compare(a.status, b.status), cmp.Compare(a.code, b.code))
	})

	table := bytes.NewBufferString(tableHead)
	for _, row := range rows {
		fmt.Fprintf(table, "| %d %s | `%s` | %s | %s | %s | %s |\n", row.status, http.StatusText(row.status), row.code,
			cell(row.when), cell(row.sendAgain), cell(row.advice), strings.Join(apis[row], ", "))
	}

	if *write {
		err := os.WriteFile("ERRORS.md", table.Bytes(), 0o644)
		if err != nil {
			t.Fatal(err)
		}
		return
	}

	if Errors != table.String() {
		t.Error("ERRORS.md is out of date: go test ./gateway/openapi -write")
	}
}

// The table has every code that the service can answer, with its status, and no other.
func TestErrors_TableHasEveryCode(t *testing.T) {
	undocumented := map[string]int{}
	for _, code := range delivery.Codes() {
		undocumented[string(code)] = code.HTTPStatus()
	}

	for row := range errorCodes(t) {
		if undocumented[row.code] != row.status {
			t.Errorf("%s is documented with %d, the service answers %d", row.code, row.status, undocumented[row.code])
		}
		delete(undocumented, row.code)
	}

	for code := range undocumented {
		t.Errorf("%s is not documented", code)
	}
}

// errorCodes reads the codes, which are the schemas that carry x-status, and which APIs have them. A code
// that several documents have says the same in all.
func errorCodes(t *testing.T) map[errorCode][]string {
	t.Helper()
	apis := map[errorCode][]string{}
	byName := map[string]errorCode{}

	for _, text := range [][]byte{Vendor, Fleet, Admin} {
		document := load(t, text)
		api := strings.ToLower(strings.Fields(document.Info.Title)[1])
		for name, schema := range document.Components.Schemas {
			if schema.Value.Extensions["x-status"] == nil {
				continue
			}

			row := errorCodeOf(t, api, name, schema.Value)
			first, isKnown := byName[name]
			if isKnown && first != row {
				t.Errorf("%s says something else in the %s API than in another one", name, api)
			}

			byName[name] = row

			apis[row] = append(apis[row], api)
			if name == "FORBIDDEN" {
				apis[row] = append(apis[row], "panel")
			}
		}
	}

	return apis
}

// errorCodeOf returns what the schema of a code says.
func errorCodeOf(t *testing.T, api, name string, schema *openapi3.Schema) errorCode {
	t.Helper()
	status, _ := schema.Extensions["x-status"].(float64)
	sendAgain, _ := schema.Extensions["x-again"].(string)
	advice, _ := schema.Extensions["x-do"].(string)
	row := errorCode{
		code:      name,
		status:    int(status),
		when:      schema.Description,
		sendAgain: sendAgain,
		advice:    advice,
	}

	isComplete := row.status != 0 && row.when != "" && row.sendAgain != "" && row.advice != ""
	if !isComplete {
		t.Errorf("%s of the %s API has no description, no number as x-status, or no text as x-again or x-do", name, api)
	}

	return row
}

// cell returns a text as a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
