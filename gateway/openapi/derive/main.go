// Command derive writes what is derived from the OpenAPI documents: the Postman
// collection and the table of error codes.
//
//	go run ./gateway/openapi/derive          says what is out of date, and fails
//	go run ./gateway/openapi/derive -write   writes it
package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/goccy/go-yaml"

	"vendorapi/gateway/openapi"
)

func main() {
	write := flag.Bool("write", false, "write the files")
	dir := flag.String("dir", "gateway/openapi", "where they are")
	flag.Parse()
	if err := run(*dir, *write); err != nil {
		fmt.Fprintln(os.Stderr, "derive:", err)
		os.Exit(1)
	}
}

func run(dir string, write bool) error {
	files, err := derived()
	if err != nil {
		return err
	}
	var faults []error
	for name, content := range files {
		path := filepath.Join(dir, name)
		if write {
			faults = append(faults, os.WriteFile(path, content, 0o644))
		} else if found, err := os.ReadFile(path); err != nil || !bytes.Equal(found, content) {
			faults = append(faults, fmt.Errorf("%s is out of date: go run ./gateway/openapi/derive -write", path))
		}
	}
	return errors.Join(faults...)
}

func derived() (map[string][]byte, error) {
	var documents []*openapi3.T
	for _, text := range [][]byte{openapi.Vendor, openapi.Fleet, openapi.Admin} {
		document, err := openapi3.NewLoader().LoadFromData(text)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	table, err := errorTable(documents)
	if err != nil {
		return nil, err
	}
	collection, err := postmanCollection(documents[0])
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"ERRORS.md": table, "postman.json": collection}, nil
}

type errorCode struct {
	code, when string
	again, do  any // texts
	status     int
}

const tableHead = `# Error codes

Every refusal has ` + "`success: false`, a `message` for people, and `data.errorCode`" + ` for programs. Decide by
the code; the wording of messages may change. *The same request* has the same path and bytes and,
for an order, the same ` + "`X-Idempotency-Key`" + `; sent twice it makes one order.

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
		return cmp.Or(cmp.Compare(a.status, b.status), cmp.Compare(a.code, b.code))
	}) {
		fmt.Fprintf(b, "| %d %s | `%s` | %s | %s | %s | %s |\n", row.status, http.StatusText(row.status), row.code,
			cell(row.when), cell(row.again), cell(row.do), strings.Join(apis[row], ", "))
	}
	return b.Bytes(), nil
}

func cell(text any) string { return strings.ReplaceAll(fmt.Sprint(text), "|", `\|`) }

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
			status, _ := more["x-status"].(float64)
			row := errorCode{name, ref.Value.Description, more["x-again"], more["x-do"], int(status)}
			if row.status == 0 || row.again == nil || row.do == nil || row.when == "" {
				return nil, fmt.Errorf("%s of the %s API lacks x-status, x-again, x-do or a description", name, api)
			}
			if first, known := rows[name]; known && first != row {
				return nil, fmt.Errorf("%s says something else in the %s API than in another one", name, api)
			}
			rows[name], apis[row] = row, append(apis[row], api)
			if name == "FORBIDDEN" {
				apis[row] = append(apis[row], "panel")
			}
		}
	}
	return apis, nil
}

//go:embed collection.yaml
var collectionText []byte

// collection is what stands in collection.yaml, where it is explained.
type collection struct {
	Variables []map[string]string
	Steps     []step
}

type step struct {
	Operation, Name, Example string
	With                     map[string]any
	Key                      bool
	Before, After            []string
}

// object is one of the collection's form, version 2.1.
type object = map[string]any

func postmanCollection(document *openapi3.T) ([]byte, error) {
	var c collection
	if err := yaml.UnmarshalWithOptions(collectionText, &c, yaml.Strict()); err != nil {
		return nil, err
	}
	var items []object
	for _, s := range c.Steps {
		item, err := s.item(document)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		items = append(items, item)
	}
	text, err := indented(object{
		"info": object{
			"name":        document.Info.Title,
			"description": "Set base_url, client_id, client_secret and webhook_url, then send the requests from top to bottom.",
			"schema":      "https://schema.getpostman.com/json/collection/v2.1.0/collection.json",
		},
		"auth":     object{"type": "bearer", "bearer": []object{{"key": "token", "value": "{{token}}", "type": "string"}}},
		"variable": c.Variables,
		"item":     items,
	})
	return []byte(text + "\n"), err
}

func (s step) item(document *openapi3.T) (object, error) {
	path, method, op := find(document, s.Operation)
	if op == nil {
		return nil, fmt.Errorf("there is no operation %s", s.Operation)
	}
	path = strings.NewReplacer("{externalStoreId}", "{{external_store_id}}", "{orderId}", "{{order_id}}").Replace(document.Servers[0].URL + path)
	headers := []object{}
	request := object{
		"method": method, "description": strings.TrimSpace(op.Summary + ".\n\n" + op.Description),
		"url": object{"raw": "{{base_url}}" + path, "host": []string{"{{base_url}}"}, "path": strings.Split(path[1:], "/")},
	}
	if op.Security != nil && len(*op.Security) == 0 {
		request["auth"] = object{"type": "noauth"}
	}
	if s.Key {
		headers = append(headers, object{"key": "X-Idempotency-Key", "value": "{{external_order_id}}"})
	}
	if s.Example != "" {
		raw, err := s.body(op)
		if err != nil {
			return nil, err
		}
		headers = append(headers, contentType)
		request["body"] = object{"mode": "raw", "raw": raw, "options": object{"raw": object{"language": "json"}}}
	}
	request["header"] = headers
	events := []object{script("test", append([]string{"pm.test('it is done', () => pm.response.to.be.success);"}, s.After...))}
	if s.Before != nil {
		events = append([]object{script("prerequest", s.Before)}, events...)
	}
	answers, err := savedAnswers(op)
	return object{"name": s.Name, "event": events, "request": request, "response": answers}, err
}

var contentType = object{"key": "Content-Type", "value": "application/json"}

func script(when string, lines []string) object {
	return object{"listen": when, "script": object{"type": "text/javascript", "exec": lines}}
}

func find(document *openapi3.T, operation string) (path, method string, op *openapi3.Operation) {
	for path, entry := range document.Paths.Map() {
		for method, op := range entry.Operations() {
			if op.OperationID == operation {
				return path, method, op
			}
		}
	}
	return "", "", nil
}

// body is the example with the collection's own members.
func (s step) body(op *openapi3.Operation) (string, error) {
	example := op.RequestBody.Value.Content["application/json"].Examples[s.Example]
	if example == nil {
		return "", fmt.Errorf("there is no example %s", s.Example)
	}
	members, ok := example.Value.Value.(map[string]any)
	if !ok {
		return "", fmt.Errorf("the example %s is no object", s.Example)
	}
	members = maps.Clone(members)
	maps.Copy(members, s.With)
	maps.DeleteFunc(members, func(_ string, value any) bool { return value == nil })
	return indented(members)
}

func indented(value any) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(value)
	return strings.TrimSpace(b.String()), err
}

// savedAnswers are the documented examples of the answers, by status and name.
func savedAnswers(op *openapi3.Operation) ([]object, error) {
	all := []object{}
	answers := op.Responses.Map()
	for _, status := range slices.Sorted(maps.Keys(answers)) {
		code, err := strconv.Atoi(status)
		if err != nil {
			return nil, err
		}
		examples := answers[status].Value.Content["application/json"].Examples
		for _, name := range slices.Sorted(maps.Keys(examples)) {
			text, err := indented(examples[name].Value.Value)
			if err != nil {
				return nil, err
			}
			all = append(all, object{"name": status + " " + name, "status": http.StatusText(code), "code": code,
				"_postman_previewlanguage": "json", "header": []object{contentType}, "body": text})
		}
	}
	return all, nil
}
