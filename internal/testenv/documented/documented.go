// Package documented holds webhooks to the Vendor API's document.
package documented

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"vendorapi/gateway/openapi"
)

// Events are those of the document, each with the schema of its headers and its body, which may
// have nothing that is not documented.
var Events = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	spec, err := openapi3.NewLoader().LoadFromData(openapi.Vendor)
	if err != nil {
		return nil, err
	}
	type object = map[string]any
	checks := object{}
	for name, item := range spec.Webhooks {
		known := object{"Accept-Encoding": true, "Connection": true, "Content-Length": true, "Content-Type": true, "User-Agent": true}
		required := []string{}
		for _, p := range item.Post.Parameters {
			header := http.CanonicalHeaderKey(p.Value.Name)
			if known[header] = p.Value.Schema; p.Value.Required {
				required = append(required, header)
			}
		}
		checks[name] = object{"required": []string{"body"}, "properties": object{
			"header": object{"properties": known, "required": required},
			"body":   item.Post.RequestBody.Value.Content["application/json"].Schema,
		}}
	}
	text, err := json.Marshal(object{"components": spec.Components, "checks": checks})
	if err != nil {
		return nil, err
	}
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	closeObjects(content)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("mem:vendor", content); err != nil {
		return nil, err
	}
	events := map[string]*jsonschema.Schema{}
	for name := range checks {
		if events[name], err = compiler.Compile("mem:vendor#/checks/" + name); err != nil {
			return nil, err
		}
	}
	return events, nil
})

// closeObjects forbids members that an object schema does not name.
func closeObjects(value any) {
	switch value := value.(type) {
	case map[string]any:
		if _, isObject := value["properties"].(map[string]any); isObject && value["allOf"] == nil && value["oneOf"] == nil && value["anyOf"] == nil {
			value["additionalProperties"] = false
		}
		for _, member := range value {
			closeObjects(member)
		}
	case []any:
		for _, member := range value {
			closeObjects(member)
		}
	}
}

// Check says how a webhook, as a receiver got it, is not as documented.
func Check(header http.Header, body []byte) error {
	events, err := Events()
	if err != nil {
		return err
	}
	name := header.Get("X-Service-Event")
	if events[name] == nil {
		return fmt.Errorf("the event %q is not documented", name)
	}
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	headers := map[string]any{}
	for name, values := range header {
		headers[name] = strings.Join(values, "\n") // twice is as no schema has it
		if n := json.Number(values[0]); len(values) == 1 && (name == "X-Service-Attempt" || name == "Webhook-Timestamp") {
			headers[name] = n
		}
	}
	return events[name].Validate(map[string]any{"header": headers, "body": content})
}
