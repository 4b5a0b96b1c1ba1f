package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas checks values against the schemas of one document, each compiled when it
// is first needed.
type schemas struct {
	compiler *jsonschema.Compiler
	mu       sync.Mutex
	compiled map[string]*jsonschema.Schema
}

// resource is the document's name within its compiler.
const resource = "https://contract.invalid/document.json"

func newSchemas(document *openapi3.T, closed bool) (*schemas, error) {
	raw, err := document.MarshalJSON()
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

// closeObjects forbids undocumented members in every object schema of a document.
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

// checkParameters checks the parameters that the document lists at place. values
// returns what was sent of one.
func (s *schemas) checkParameters(place string, documented openapi3.Parameters, values func(*openapi3.Parameter) []string) (faults []error) {
	for i, ref := range documented {
		at := placeOf(ref.Ref, join(place, "parameters", strconv.Itoa(i)))
		if err := s.checkTexts(at, ref.Value, values(ref.Value)); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// checkTexts checks what was sent of a parameter or header documented at place.
func (s *schemas) checkTexts(place string, p *openapi3.Parameter, sent []string) error {
	if len(sent) == 0 && p.Required || len(sent) > 1 {
		return fmt.Errorf("the %s %s is there %d times", p.In, p.Name, len(sent))
	}
	for _, text := range sent {
		var value any = text
		if p.Schema.Value.Type.Is("integer") {
			if !json.Valid([]byte(text)) {
				return fmt.Errorf("the %s %s: %q is no number", p.In, p.Name, text)
			}
			value = json.Number(text)
		}
		if err := s.check(join(place, "schema"), value); err != nil {
			return fmt.Errorf("the %s %s: %w", p.In, p.Name, err)
		}
	}
	return nil
}

// checkJSON checks a JSON text against the schema at a place such as
// "/components/schemas/Time".
func (s *schemas) checkJSON(place string, text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.check(place, value)
}

func (s *schemas) check(place string, value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	schema := s.compiled[place]
	if schema == nil {
		var err error
		if schema, err = s.compiler.Compile(resource + "#" + place); err != nil {
			return err
		}
		s.compiled[place] = schema
	}
	return schema.Validate(value)
}

// join adds members to a place in a document.
func join(place string, members ...string) string {
	for _, member := range members {
		place += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(member)
	}
	return place
}

// placeOf is where a reference leads, or else the inline place.
func placeOf(reference, inline string) string {
	if place, ok := strings.CutPrefix(reference, "#"); ok {
		return place
	}
	return inline
}

// formats are those that the documents name; the validation of the examples would
// take any text for them.
var formats = map[string]openapi3.StringFormatValidator{
	"uuid": openapi3.NewRegexpFormatValidator(uuid),
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

// uuid is of any version: an order's id is of version 8.
const uuid = `^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`
