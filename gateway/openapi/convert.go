package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// JSON returns an OpenAPI document, given as YAML, in JSON. Members keep their order.
func JSON(document []byte) ([]byte, error) {
	content, err := parse(document)
	if err != nil {
		return nil, err
	}

	return encode(content)
}

// JSON30 returns an OpenAPI 3.1 document, given as YAML, as OpenAPI 3.0.3 in JSON, for
// tools that know only that version. What 3.0 cannot say is left out, so that the result
// allows everything that the document allows: conditions between members (if, then, else)
// and descriptions beside a reference. Webhooks become the extension x-webhooks.
//
// A keyword that this conversion does not know is an error.
func JSON30(document []byte) ([]byte, error) {
	content, err := parse(document)
	if err != nil {
		return nil, err
	}

	converted, err := documentTo30(content)
	if err != nil {
		return nil, err
	}
	return encode(converted)
}

// object is a JSON object whose members keep the order of the YAML text. Values are
// objects, lists ([]any), texts, numbers, booleans and nil.
type object []member

type member struct {
	name  string
	value any
}

// get returns the value of a member, and whether there is one.
func (o object) get(name string) (any, bool) {
	for _, m := range o {
		if m.name == name {
			return m.value, true
		}
	}
	return nil, false
}

// with returns the object with the member set: in its place, or behind the others.
func (o object) with(name string, value any) object {
	changed := slices.Clone(o)
	for i := range changed {
		if changed[i].name == name {
			changed[i].value = value
			return changed
		}
	}
	return append(changed, member{name, value})
}

// MarshalJSON writes the members in their order, and texts as they are ("<", not "\u003c").
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}

		name, err := encode(m.name)
		if err != nil {
			return nil, err
		}
		value, err := encode(m.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}

		b = append(b, name...)
		b = append(b, ':')
		b = append(b, value...)
	}

	return append(b, '}'), nil
}

func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// parse reads a YAML document, which must be an object.
func parse(document []byte) (object, error) {
	var content any
	if err := yaml.UnmarshalWithOptions(document, &content, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("the document is no YAML: %w", err)
	}

	parsed, ok := ordered(content).(object)
	if !ok {
		return nil, fmt.Errorf("the document is %T, not an object", content)
	}

	return parsed, nil
}

// ordered returns a value of the YAML library with objects in place of its maps.
func ordered(value any) any {
	switch value := value.(type) {
	case yaml.MapSlice:
		members := make(object, 0, len(value))
		for _, item := range value {
			members = append(members, member{fmt.Sprint(item.Key), ordered(item.Value)})
		}
		return members
	case []any:
		list := make([]any, 0, len(value))
		for _, element := range value {
			list = append(list, ordered(element))
		}
		return list
	default:
		return value
	}
}

// documentTo30 converts the document itself: its version, and what only 3.1 has.
func documentTo30(document object) (object, error) {
	version, _ := document.get("openapi")
	text, _ := version.(string)
	if !strings.HasPrefix(text, "3.1.") {
		return nil, fmt.Errorf("the document is OpenAPI %v, not 3.1", version)
	}

	var converted object
	for _, m := range document {
		value, err := partTo30(m.name, m.value)
		if err != nil {
			return nil, err
		}

		switch m.name {
		case "openapi":
			converted = append(converted, member{"openapi", "3.0.3"})
		case "info":
			converted = append(converted, member{"info", without(value, "summary")})
		case "webhooks":
			converted = append(converted, member{"x-webhooks", value})
		default:
			converted = append(converted, member{m.name, value})
		}
	}

	return converted, nil
}

// without returns an object without a member, any other value as it is.
func without(value any, name string) any {
	members, ok := value.(object)
	if !ok {
		return value
	}
	return slices.DeleteFunc(slices.Clone(members), func(m member) bool { return m.name == name })
}

// partTo30 converts the value of a member outside of schemas. Examples and extensions are
// data and stay as they are.
func partTo30(name string, value any) (any, error) {
	isData := name == "example" || name == "examples" || strings.HasPrefix(name, "x-")
	if isData {
		return value, nil
	}
	if name == "schema" {
		return schemaTo30(value)
	}
	if name == "schemas" {
		return schemasTo30(value)
	}

	switch value := value.(type) {
	case object:
		// In 3.0 nothing stands beside a reference.
		reference, isReference := value.get("$ref")
		if isReference {
			return object{{"$ref", reference}}, nil
		}

		var converted object
		for _, m := range value {
			part, err := partTo30(m.name, m.value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			converted = append(converted, member{m.name, part})
		}

		return converted, nil
	case []any:
		converted := make([]any, 0, len(value))
		for i, element := range value {
			part, err := partTo30("", element)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", i, err)
			}
			converted = append(converted, part)
		}
		return converted, nil
	default:
		return value, nil
	}
}

// schemasTo30 converts an object whose members are schemas, whatever their names.
func schemasTo30(value any) (any, error) {
	schemas, ok := value.(object)
	if !ok {
		return nil, fmt.Errorf("%v is no object of schemas", value)
	}

	converted := make(object, 0, len(schemas))
	for _, m := range schemas {
		schema, err := schemaTo30(m.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		converted = append(converted, member{m.name, schema})
	}

	return converted, nil
}

// sameIn30 are the keywords that have one meaning in both versions and hold no schemas.
var sameIn30 = []string{
	"title", "description", "default", "deprecated", "example", "format", "enum", "required",
	"readOnly", "writeOnly", "discriminator", "externalDocs",
	"minimum", "maximum", "multipleOf", "minLength", "maxLength", "pattern",
	"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
}

func schemaTo30(value any) (any, error) {
	schema, ok := value.(object)
	if !ok {
		return nil, fmt.Errorf("the schema %v has no counterpart in OpenAPI 3.0", value)
	}

	reference, isReference := schema.get("$ref")
	if isReference {
		return referenceTo30(reference, schema)
	}

	var converted object
	for _, m := range schema {
		changed, err := keywordTo30(converted, m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		converted = changed
	}

	// In 3.0 an array has to say what its elements are, even if they may be anything.
	kind, _ := converted.get("type")
	_, hasItems := converted.get("items")
	if kind == "array" && !hasItems {
		converted = converted.with("items", object{})
	}

	return converted, nil
}

// referenceTo30 converts a reference. What 3.1 allows beside it stands around it in 3.0.
func referenceTo30(reference any, schema object) (any, error) {
	beside, ok := without(schema, "$ref").(object)
	if !ok || len(beside) == 0 {
		return schema, nil
	}

	converted, err := schemaTo30(beside)
	if err != nil {
		return nil, err
	}

	around, _ := converted.(object)

	return around.with("allOf", []any{object{{"$ref", reference}}}), nil
}

// keywordTo30 adds a keyword of a 3.1 schema to the schema of 3.0.
func keywordTo30(schema object, keyword member) (object, error) {
	name, value := keyword.name, keyword.value
	same := slices.Contains(sameIn30, name) || strings.HasPrefix(name, "x-")
	if same {
		return schema.with(name, value), nil
	}

	switch name {
	case "type":
		return typeTo30(schema, value)
	case "const":
		return constTo30(schema, value)
	case "examples":
		examples, ok := value.([]any)
		if !ok || len(examples) == 0 {
			return nil, fmt.Errorf("%v is no list of examples", value)
		}
		return schema.with("example", examples[0]), nil
	case "exclusiveMinimum":
		return schema.with("minimum", value).with(name, true), nil
	case "exclusiveMaximum":
		return schema.with("maximum", value).with(name, true), nil
	case "properties":
		properties, err := schemasTo30(value)
		return schema.with(name, properties), err
	case "items", "not":
		inner, err := schemaTo30(value)
		return schema.with(name, inner), err
	case "additionalProperties":
		if _, isFlag := value.(bool); isFlag {
			return schema.with(name, value), nil
		}
		inner, err := schemaTo30(value)
		return schema.with(name, inner), err
	case "allOf", "anyOf", "oneOf":
		return alternativesTo30(schema, keyword)
	case "if", "then", "else":
		return schema, nil // 3.0 has no conditions: both branches are allowed
	default:
		return nil, fmt.Errorf("the keyword has no counterpart in OpenAPI 3.0 that is known here")
	}
}

// typeTo30 sets the type. One type or null is that type and nullable.
func typeTo30(schema object, value any) (object, error) {
	types, isList := value.([]any)
	if !isList {
		types = []any{value}
	}

	withNull := slices.Contains(types, any("null"))
	types = slices.DeleteFunc(slices.Clone(types), func(name any) bool { return name == "null" })
	if withNull && len(types) == 0 {
		// 3.0 has no type of null alone: it is a nullable text that can be nothing else.
		return schema.with("type", "string").with("nullable", true).with("enum", []any{nil}), nil
	}

	if len(types) != 1 {
		return nil, fmt.Errorf("%v: OpenAPI 3.0 has one type, which may be nullable", value)
	}

	schema = schema.with("type", types[0])
	if withNull {
		schema = schema.with("nullable", true)
	}

	return schema, nil
}

// constTo30 sets the only value. Generators of 3.0 want its type, which 3.1 can do without.
func constTo30(schema object, value any) (object, error) {
	if _, typed := schema.get("type"); !typed {
		var kind string
		switch value.(type) {
		case string:
			kind = "string"
		case bool:
			kind = "boolean"
		case int, int64, uint64:
			kind = "integer"
		case float64:
			kind = "number"
		default:
			return nil, fmt.Errorf("%v: OpenAPI 3.0 has no such single value", value)
		}

		schema = schema.with("type", kind)
	}

	return schema.with("enum", []any{value}), nil
}

func alternativesTo30(schema object, keyword member) (object, error) {
	alternatives, ok := keyword.value.([]any)
	if !ok {
		return nil, fmt.Errorf("%v is no list of schemas", keyword.value)
	}

	// One schema or null is that schema and nullable, in the form that generators know.
	others := slices.DeleteFunc(slices.Clone(alternatives), isNull)
	orNull := keyword.name != "allOf" && len(alternatives) == 2 && len(others) == 1
	if orNull {
		inner, err := schemaTo30(others[0])
		return schema.with("nullable", true).with("allOf", []any{inner}), err
	}

	converted := make([]any, 0, len(alternatives))
	for i, alternative := range alternatives {
		inner, err := schemaTo30(alternative)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", i, err)
		}
		converted = append(converted, inner)
	}

	return schema.with(keyword.name, converted), nil
}

// isNull reports whether a schema is {type: "null"}.
func isNull(schema any) bool {
	members, ok := schema.(object)
	return ok && len(members) == 1 && members[0] == member{"type", "null"}
}
