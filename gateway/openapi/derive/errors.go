package main

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// errorCode is a row of the table.
type errorCode struct {
	code, when, again, do string
	status                int
	apis                  []string
}

// errorTable is ERRORS.md: every error code of the documents with what to do
// about it. A code that two documents have says the same in both.
func errorTable(documents []*openapi3.T) ([]byte, error) {
	rows, err := errorCodes(documents)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(`# Error codes

Every refusal has ` + "`success: false`, a `message` for people, and `data.errorCode`" + ` for programs. Decide by
the code; the wording of messages may change. *With the same key* means: the same request with the
same ` + "`X-Idempotency-Key`" + `, which never makes a second order.

Derived from the OpenAPI documents (` + "`go run ./gateway/openapi/derive -write`" + `).

| Status | Code | When | Send again? | What to do | APIs |
|---|---|---|---|---|---|
`)
	for _, row := range rows {
		fmt.Fprintf(&b, "| %d %s | `%s` | %s | %s | %s | %s |\n", row.status, http.StatusText(row.status), row.code,
			cell(row.when), cell(row.again), cell(row.do), strings.Join(row.apis, ", "))
	}
	return b.Bytes(), nil
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// errorCodes reads the codes: the schemas that carry x-status.
func errorCodes(documents []*openapi3.T) ([]*errorCode, error) {
	found := map[string]*errorCode{}
	for _, document := range documents {
		api := strings.ToLower(strings.Fields(document.Info.Title)[1])
		for name, ref := range document.Components.Schemas {
			status, isError := ref.Value.Extensions["x-status"]
			if !isError {
				continue
			}
			row := &errorCode{code: name, when: ref.Value.Description}
			n, ok := status.(float64)
			again, isText := ref.Value.Extensions["x-again"].(string)
			do, isTextToo := ref.Value.Extensions["x-do"].(string)
			if !ok || !isText || !isTextToo || row.when == "" {
				return nil, fmt.Errorf("%s of the %s API lacks x-status, x-again, x-do or a description", name, api)
			}
			row.status, row.again, row.do = int(n), again, do
			first := found[name]
			if first == nil {
				found[name], first = row, row
			}
			if row.when != first.when || row.again != first.again || row.do != first.do || row.status != first.status {
				return nil, fmt.Errorf("%s says something else in the %s API than in another one", name, api)
			}
			first.apis = append(first.apis, api)
		}
	}
	rows := make([]*errorCode, 0, len(found))
	for _, row := range found {
		if row.code == "FORBIDDEN" {
			row.apis = []string{"panel"}
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b *errorCode) int { return cmp.Or(cmp.Compare(a.status, b.status), cmp.Compare(a.code, b.code)) })
	return rows, nil
}
