package openapi

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

var documents = map[string][]byte{"vendor": Vendor, "fleet": Fleet, "admin": Admin}

func load(t *testing.T, text []byte) *openapi3.T {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// plain is a document as any reader of JSON has it.
func plain(t *testing.T, document any) any {
	t.Helper()
	text, isText := document.([]byte)
	if !isText {
		var err error
		text, err = json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
	}

	var content any
	if err := json.Unmarshal(text, &content); err != nil {
		t.Fatal(err)
	}

	return content
}

func TestJSON_SaysWhatTheYAMLSays(t *testing.T) {
	for name, document := range documents {
		text, err := JSON(document)
		if err != nil {
			t.Fatal(name, err)
		}

		if !reflect.DeepEqual(plain(t, load(t, text)), plain(t, load(t, document))) {
			t.Errorf("%s.json is another document than %s.yaml", name, name)
		}
		if !strings.HasPrefix(string(text), `{"openapi":"3.1.`) {
			t.Errorf("%s.json begins with %.60s", name, text)
		}
	}
}

// The library checks a document of version 3.0 by the rules of 3.0, its examples included.
func TestJSON30_IsAValidDocumentWithTheSameOperations(t *testing.T) {
	for name, document := range documents {
		text, err := JSON30(document)
		if err != nil {
			t.Fatal(name, err)
		}

		converted := load(t, text)
		if converted.OpenAPI != "3.0.3" || converted.IsOpenAPI31OrLater() {
			t.Errorf("%s: version %s", name, converted.OpenAPI)
		}
		if err := converted.Validate(context.Background(), openapi3.EnableExamplesValidation(), openapi3.EnableMultiError()); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		original := load(t, document)
		if got, want := operations(converted), operations(original); !reflect.DeepEqual(got, want) {
			t.Errorf("%s has the operations %v, want %v", name, got, want)
		}
		if got, want := len(converted.Components.Schemas), len(original.Components.Schemas); got != want {
			t.Errorf("%s has %d schemas, want %d", name, got, want)
		}

		webhooks, _ := converted.Extensions["x-webhooks"].(map[string]any)
		if len(webhooks) != len(original.Webhooks) {
			t.Errorf("%s has the webhooks %v, want %d of them", name, webhooks, len(original.Webhooks))
		}
		if found := only31(plain(t, text), ""); found != nil {
			t.Errorf("%s: only OpenAPI 3.1 has %v", name, found)
		}
	}
}

func operations(document *openapi3.T) map[string]string {
	found := map[string]string{}
	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			found[method+" "+path] = op.OperationID
		}
	}
	return found
}

// only31 lists what no tool for 3.0 reads. Members of examples are data.
func only31(value any, path string) (found []string) {
	switch value := value.(type) {
	case map[string]any:
		_, isReference := value["$ref"]
		if isReference && len(value) > 1 {
			found = append(found, path+": members beside $ref")
		}

		for name, inner := range value {
			if name == "example" || name == "examples" && !isList(inner) || name == "enum" || name == "default" {
				continue
			}

			isName := strings.HasSuffix(path, "/properties") || strings.HasSuffix(path, "/schemas")
			_, isFlag := inner.(bool)
			switch {
			case isName:
			case name == "const" || name == "webhooks" || name == "if" || name == "then" || name == "else" || name == "examples",
				name == "type" && isList(inner),
				strings.HasPrefix(name, "exclusive") && !isFlag:
				found = append(found, path+"/"+name)
			}

			found = append(found, only31(inner, path+"/"+name)...)
		}
	case []any:
		for i, inner := range value {
			found = append(found, only31(inner, fmt.Sprintf("%s/%d", path, i))...)
		}
	}

	return found
}

func isList(value any) bool {
	_, is := value.([]any)
	return is
}

func TestJSON30_ConvertsWhatOnly31Has(t *testing.T) {
	for schema, want := range map[string]string{
		"{type: [string, 'null']}":                         `{"type":"string","nullable":true}`,
		"{type: ['null', integer]}":                        `{"type":"integer","nullable":true}`,
		"{type: [string]}":                                 `{"type":"string"}`,
		"{type: [string, 'null'], enum: [a, null]}":        `{"type":"string","nullable":true,"enum":["a",null]}`,
		"{type: string, const: a}":                         `{"type":"string","enum":["a"]}`,
		"{const: a, type: string}":                         `{"type":"string","enum":["a"]}`,
		"{const: a<b}":                                     `{"type":"string","enum":["a<b"]}`,
		"{const: true}":                                    `{"type":"boolean","enum":[true]}`,
		"{const: 3600}":                                    `{"type":"integer","enum":[3600]}`,
		"{const: -1}":                                      `{"type":"integer","enum":[-1]}`,
		"{const: 0.5}":                                     `{"type":"number","enum":[0.5]}`,
		"{type: number, exclusiveMinimum: 0}":              `{"type":"number","minimum":0,"exclusiveMinimum":true}`,
		"{type: number, exclusiveMaximum: 1.5}":            `{"type":"number","maximum":1.5,"exclusiveMaximum":true}`,
		"{type: string, examples: [a, b]}":                 `{"type":"string","example":"a"}`,
		"{$ref: '#/components/schemas/A'}":                 `{"$ref":"#/components/schemas/A"}`,
		"{$ref: '#/components/schemas/A', description: x}": `{"description":"x","allOf":[{"$ref":"#/components/schemas/A"}]}`,
		"{type: object, if: {required: [a]}, then: {required: [b]}, else: {properties: {b: {type: 'null'}}}}": `{"type":"object"}`,
		"{type: array, items: {type: [string, 'null']}}":                                                      `{"type":"array","items":{"type":"string","nullable":true}}`,
		"{type: object, additionalProperties: {const: 1}}":                                                    `{"type":"object","additionalProperties":{"type":"integer","enum":[1]}}`,
		"{type: object, additionalProperties: false}":                                                         `{"type":"object","additionalProperties":false}`,
		"{type: 'null'}": `{"type":"string","nullable":true,"enum":[null]}`,
		"{oneOf: [{$ref: '#/b'}, {type: 'null'}]}":                `{"nullable":true,"allOf":[{"$ref":"#/b"}]}`,
		"{description: c, anyOf: [{type: 'null'}, {const: 1}]}":   `{"description":"c","nullable":true,"allOf":[{"type":"integer","enum":[1]}]}`,
		"{oneOf: [{$ref: '#/b'}, {$ref: '#/c'}, {type: 'null'}]}": `{"oneOf":[{"$ref":"#/b"},{"$ref":"#/c"},{"type":"string","nullable":true,"enum":[null]}]}`,
		"{type: array}": `{"type":"array","items":{}}`,
		"{oneOf: [{const: 1}, {not: {const: 2}}]}": `{"oneOf":[{"type":"integer","enum":[1]},{"not":{"type":"integer","enum":[2]}}]}`,
		// Properties may be named as keywords are; examples and extensions are no schemas.
		"{type: object, properties: {type: {const: a}, const: {type: string}}}": `{"type":"object","properties":{"type":{"type":"string","enum":["a"]},"const":{"type":"string"}}}`,
		"{type: object, example: {type: [a], const: 1}, x-note: {const: 1}}":    `{"type":"object","example":{"type":["a"],"const":1},"x-note":{"const":1}}`,
	} {
		text, err := JSON30([]byte("openapi: 3.1.0\ncomponents: {schemas: {const: " + schema + "}}\n"))
		wanted := `{"openapi":"3.0.3","components":{"schemas":{"const":` + want + `}}}`
		if err != nil || string(text) != wanted {
			t.Errorf("%s becomes\n%s, %v, want\n%s", schema, text, err, wanted)
		}
	}

	text, err := JSON30([]byte(`
openapi: 3.1.1
info: {title: A, summary: B, version: v1}
paths:
  /a:
    get:
      responses:
        '200': {$ref: '#/components/responses/A', description: c}
        '201': {content: {application/json: {schema: {const: 1}, examples: {a: {value: {const: 1}}}}}}
webhooks: {a: {post: {requestBody: {content: {application/json: {schema: {const: 1}}}}}}}
`))

	const want = `{"openapi":"3.0.3","info":{"title":"A","version":"v1"},"paths":{"/a":{"get":{"responses":{` +
		`"200":{"$ref":"#/components/responses/A"},` +
		`"201":{"content":{"application/json":{"schema":{"type":"integer","enum":[1]},"examples":{"a":{"value":{"const":1}}}}}}}}}},` +
		`"x-webhooks":{"a":{"post":{"requestBody":{"content":{"application/json":{"schema":{"type":"integer","enum":[1]}}}}}}}}`

	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want\n%s", text, err, want)
	}
}

func TestJSON30_RefusesWhatItCannotSay(t *testing.T) {
	const schema = "openapi: 3.1.0\ncomponents: {schemas: {A: %s}}\n"
	for text, reason := range map[string]string{
		"a: [":           "no YAML",
		"[1, 2]":         "not an object",
		"":               "not an object",
		"info: {}":       "not 3.1",
		"openapi: 3.0.3": "not 3.1",
		"openapi: 3.2.0": "not 3.1",
		"openapi: 3.1":   "not 3.1",
		"openapi: 3.1.0\ncomponents: {schemas: 1}":               "no object of schemas",
		fmt.Sprintf(schema, "true"):                              "no counterpart",
		fmt.Sprintf(schema, "{type: [string, integer]}"):         "A: type",
		fmt.Sprintf(schema, "{const: null}"):                     "A: const",
		fmt.Sprintf(schema, "{const: [1]}"):                      "A: const",
		fmt.Sprintf(schema, "{patternProperties: {a: {}}}"):      "A: patternProperties",
		fmt.Sprintf(schema, "{prefixItems: [{type: string}]}"):   "A: prefixItems",
		fmt.Sprintf(schema, "{examples: []}"):                    "A: examples",
		fmt.Sprintf(schema, "{examples: a}"):                     "A: examples",
		fmt.Sprintf(schema, "{oneOf: {type: string}}"):           "A: oneOf",
		fmt.Sprintf(schema, "{items: {$defs: {}}}"):              "A: items: $defs",
		fmt.Sprintf(schema, "{$ref: '#/b', contains: {}}"):       "A: contains",
		fmt.Sprintf(schema, "{properties: {b: {type: [a, b]}}}"): "A: properties: b: type",
	} {
		converted, err := JSON30([]byte(text))
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %s, %v, want an error with %q", text, converted, err, reason)
		}
	}

	if text, err := JSON([]byte("a: [")); err == nil {
		t.Errorf("text that is no YAML becomes %s", text)
	}
}
