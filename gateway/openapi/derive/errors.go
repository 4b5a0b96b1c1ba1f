package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// errorCode is a row of the table.
type errorCode struct {
	code, when string
	again, do  any // texts
	status     any // a number
}

const tableHead = `# Error codes

Every refusal has ` + "`success: false`, a `message` for people, and `data.errorCode`" + ` for programs. Decide by
the code; the wording of messages may change. *With the same key* means: the same request with the
same ` + "`X-Idempotency-Key`" + `, which never makes a second order.

Derived from the OpenAPI documents (` + "`go run ./gateway/openapi/derive -write`" + `).

| Status | Code | When | Send again? | What to do | APIs |
|---|---|---|---|---|---|
`

// errorTable is ERRORS.md: every error code of the documents with what to do
// about it. A code that two documents have says the same in both.
func errorTable(documents []*openapi3.T) ([]byte, error) {
	apis, err := errorCodes(documents)
	if err != nil {
		return nil, err
	}
	b := bytes.NewBufferString(tableHead)
	for _, row := range slices.SortedFunc(maps.Keys(apis), func(a, b errorCode) int {
		return cmp.Or(cmp.Compare(a.httpStatus(), b.httpStatus()), cmp.Compare(a.code, b.code))
	}) {
		fmt.Fprintf(b, "| %d %s | `%s` | %s | %s | %s | %s |\n", row.httpStatus(), http.StatusText(row.httpStatus()), row.code,
			cell(row.when), cell(row.again), cell(row.do), strings.Join(apis[row], ", "))
	}
	return b.Bytes(), nil
}

func cell(text any) string { return strings.ReplaceAll(fmt.Sprint(text), "|", `\|`) }

func (e errorCode) httpStatus() int {
	status, _ := e.status.(float64)
	return int(status)
}

// errorCodes reads the codes, the schemas that carry x-status, and which APIs have
// them.
func errorCodes(documents []*openapi3.T) (map[errorCode][]string, error) {
	apis, rows := map[errorCode][]string{}, map[string]errorCode{}
	for _, document := range documents {
		api := strings.ToLower(strings.Fields(document.Info.Title)[1])
		for name, ref := range document.Components.Schemas {
			more := ref.Value.Extensions
			if more["x-status"] == nil {
				continue
			}
			row := errorCode{name, ref.Value.Description, more["x-again"], more["x-do"], more["x-status"]}
			if row.httpStatus() == 0 || row.again == nil || row.do == nil || row.when == "" {
				return nil, fmt.Errorf("%s of the %s API lacks x-status, x-again, x-do or a description", name, api)
			}
			if first, known := rows[name]; known && first != row {
				return nil, fmt.Errorf("%s says something else in the %s API than in another one", name, api)
			}
			rows[name], apis[row] = row, append(apis[row], api)
			if name == "FORBIDDEN" {
				apis[row] = []string{"panel"}
			}
		}
	}
	return apis, nil
}
