package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas checks values by the plans of one document, each compiled when it is first
// needed.
type schemas struct {
	compiler *jsonschema.Compiler
	mu       sync.Mutex
	compiled map[string]*jsonschema.Schema
}

// resource is the document's name within its compiler, checks where the plans are.
const (
	resource = "https://contract.invalid/document.json"
	checks   = "checks"
)

func newSchemas(document any, closed bool) (*schemas, error) {
	raw, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}

	if closed {
		closeObjects(content)
	}

	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	for name, format := range formats {
		compiler.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(value any) error {
			if text, ok := value.(string); ok {
				return format.Validate(text)
			}
			return nil
		}})
	}

	compiler.AssertFormat()

	return &schemas{compiler: compiler, compiled: map[string]*jsonschema.Schema{}}, compiler.AddResource(resource, content)
}

// closeObjects forbids undocumented members in every object schema.
func closeObjects(value any) {
	switch value := value.(type) {
	case map[string]any:
		_, isObject := value["properties"].(map[string]any)
		if isObject && value["allOf"] == nil && value["oneOf"] == nil && value["anyOf"] == nil {
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

var errUndocumented = errors.New("is not documented")

// check checks a value by a plan; errUndocumented when there is none.
func (s *schemas) check(plan string, value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	schema := s.compiled[plan]
	if schema == nil {
		var err error
		schema, err = s.compiler.Compile(resource + "#/" + checks + "/" + strings.ReplaceAll(plan, " ", "%20"))
		var none *jsonschema.JSONPointerNotFoundError
		if errors.As(err, &none) {
			return errUndocumented
		}

		if err != nil {
			return err
		}

		s.compiled[plan] = schema
	}

	return schema.Validate(value)
}

// formats are those that the documents name; the validation of the examples would
// take any text for them.
var formats = map[string]openapi3.StringFormatValidator{
	"uuid": openapi3.NewRegexpFormatValidator(anyUUID),
	"uri": openapi3.NewCallbackValidator(func(text string) error {
		if u, err := url.Parse(text); err != nil || u.Scheme == "" || u.Host == "" {
			return errors.New("is no absolute URI")
		}
		return nil
	}),
	"date": openapi3.NewCallbackValidator(func(text string) error {
		_, err := time.Parse(time.DateOnly, text)
		return err
	}),
}

// anyUUID is of any version: an order's id is of version 8.
const anyUUID = `^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`
