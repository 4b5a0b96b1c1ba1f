package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/goccy/go-yaml"
)

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
