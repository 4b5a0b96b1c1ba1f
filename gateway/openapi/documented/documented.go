// Package documented holds webhooks to the documents of the APIs.
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

// Events are those of the documents, each with the schema of its headers and its body, which may
// have nothing that is not documented.
var Events = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	events := map[string]*jsonschema.Schema{}
	if err := addEvents(events, "vendor", openapi.Vendor); err != nil {
		return nil, err
	}
	return events, addEvents(events, "admin", openapi.Admin)
})

// Examples are the documented examples of events: their bodies, by the event's name.
func Examples() (map[string][]json.RawMessage, error) {
	examples := map[string][]json.RawMessage{}
	for _, text := range [][]byte{openapi.Vendor, openapi.Admin} {
		spec, err := openapi3.NewLoader().LoadFromData(text)
		if err != nil {
			return nil, err
		}

		for event, item := range spec.Webhooks {
			for _, example := range item.Post.RequestBody.Value.Content["application/json"].Examples {
				body, err := json.Marshal(example.Value.Value)
				if err != nil {
					return nil, fmt.Errorf("an example of %s: %w", event, err)
				}
				examples[event] = append(examples[event], body)
			}
		}
	}

	return examples, nil
}

type object = map[string]any

// addEvents adds the events of a document. The headers of all are those of webhook.test in the Vendor API's.
func addEvents(events map[string]*jsonschema.Schema, name string, text []byte) error {
	spec, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return err
	}
	vendor, err := openapi3.NewLoader().LoadFromData(openapi.Vendor)
	if err != nil {
		return err
	}

	checks := object{}
	for event, item := range spec.Webhooks {
		parameters := item.Post.Parameters
		if parameters == nil {
			parameters = vendor.Webhooks["webhook.test"].Post.Parameters
		}

		known := object{"Accept-Encoding": true, "Connection": true, "Content-Length": true, "Content-Type": true, "User-Agent": true}
		required := []string{}
		for _, p := range parameters {
			header := http.CanonicalHeaderKey(p.Value.Name)
			known[header] = p.Value.Schema
			if p.Value.Required {
				required = append(required, header)
			}
		}

		checks[event] = object{"required": []string{"body"}, "properties": object{
			"header": object{"properties": known, "required": required},
			"body":   item.Post.RequestBody.Value.Content["application/json"].Schema,
		}}
	}

	encoded, err := json.Marshal(object{"components": spec.Components, "checks": checks})
	if err != nil {
		return err
	}
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	if err != nil {
		return err
	}

	closeObjects(content)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("mem:"+name, content); err != nil {
		return err
	}

	for event := range checks {
		events[event], err = compiler.Compile("mem:" + name + "#/checks/" + event)
		if err != nil {
			return err
		}
	}

	return nil
}

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
