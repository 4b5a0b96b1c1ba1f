package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas judge values by the schemas of one document, compiled when they are
// first needed. openapi3filter would compile them again for every value, which
// takes a hundred times as long as judging it; and it takes a format that it does
// not know for any text.
type schemas struct {
	compiler *jsonschema.Compiler
	mu       sync.Mutex
	compiled map[string]*jsonschema.Schema
}

// resource is the document's name within its compiler.
const resource = "https://contract.invalid/document.json"

func newSchemas(document *openapi3.T) (*schemas, error) {
	raw, err := document.MarshalJSON()
	if err != nil {
		return nil, err
	}
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	for name, judge := range formats {
		compiler.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(value any) error {
			if text, ok := value.(string); ok {
				return judge.Validate(text)
			}
			return nil
		}})
	}
	compiler.AssertFormat()
	return &schemas{compiler: compiler, compiled: map[string]*jsonschema.Schema{}}, compiler.AddResource(resource, content)
}

// judgeJSON judges a JSON text by the schema at a place such as
// "/components/schemas/Time".
func (s *schemas) judgeJSON(place string, text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.judge(place, value)
}

// judgeHeader judges a header's value, which is a number where the schema wants
// one.
func (s *schemas) judgeHeader(place string, schema *openapi3.Schema, text string) error {
	if schema.Type.Is("integer") {
		return s.judge(place, json.Number(text))
	}
	return s.judge(place, text)
}

func (s *schemas) judge(place string, value any) error {
	if number, ok := value.(json.Number); ok && !json.Valid([]byte(number)) {
		return fmt.Errorf("%q is no number", string(number))
	}
	schema, err := s.at(place)
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func (s *schemas) at(place string) (*jsonschema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if schema := s.compiled[place]; schema != nil {
		return schema, nil
	}
	schema, err := s.compiler.Compile(resource + "#" + place)
	if err != nil {
		return nil, err
	}
	s.compiled[place] = schema
	return schema, nil
}

// join adds a member to a place in a document.
func join(place string, members ...string) string {
	for _, member := range members {
		place += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(member)
	}
	return place
}

// placeOf is where something stands: where its reference leads, or else in line.
func placeOf(reference, inline string) string {
	if place, ok := strings.CutPrefix(reference, "#"); ok {
		return place
	}
	return inline
}
