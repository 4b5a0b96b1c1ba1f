// Package contract holds requests and answers against the OpenAPI documents, for
// tests: what an answer has and the document has not is a fault, and so is a
// request that the service accepted and the document would not allow.
// It also records what was met, from which tests see what is documented and was never
// tried. No program contains it.
package contract

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"vendorapi/gateway/openapi"
)

// Document is the contract of one API. It is safe for concurrent use.
type Document struct {
	name string
	// given is the document as it is published: what requests are held against.
	// Answers are held against strict, in which no object may have members that are
	// not documented. Clients must take such members, so the document itself does
	// not forbid them.
	given, strict *openapi3.T
	// requests and answers hold the schemas of the two.
	requests, answers *schemas
	operations        []operation
	events            map[string]*openapi3.Operation
	base              string // the path in front of every path
	account           *account
}

// operation is one endpoint in both readings.
type operation struct {
	id, method    string
	place         string   // in the document
	segments      []string // "{orderId}" stands for one segment
	item          *openapi3.PathItem
	given, strict *openapi3.Operation
}

// API reads one of the three documents, "vendor", "fleet" or "admin", once.
func API(name string) (*Document, error) {
	read, known := documents[name]
	if !known {
		return nil, fmt.Errorf("there is no API %q", name)
	}
	return read()
}

var documents = map[string]func() (*Document, error){
	"vendor": sync.OnceValues(func() (*Document, error) { return parse("vendor", openapi.Vendor) }),
	"fleet":  sync.OnceValues(func() (*Document, error) { return parse("fleet", openapi.Fleet) }),
	"admin":  sync.OnceValues(func() (*Document, error) { return parse("admin", openapi.Admin) }),
}

// parse reads and validates a document, its examples included.
func parse(name string, text []byte) (*Document, error) {
	given, err := load(text)
	if err == nil {
		err = given.Validate(context.Background(), openapi3.EnableExamplesValidation(), openapi3.EnableMultiError())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	strict, err := load(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := seal(strict); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d := &Document{name: name, given: given, strict: strict, account: newAccount(), events: map[string]*openapi3.Operation{}}
	if d.requests, err = newSchemas(given); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if d.answers, err = newSchemas(strict); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(given.Servers) != 1 {
		return nil, fmt.Errorf("%s: want one server", name)
	}
	d.base = given.Servers[0].URL
	for _, path := range given.Paths.InMatchingOrder() {
		for method, op := range given.Paths.Value(path).Operations() {
			d.operations = append(d.operations, operation{
				id: op.OperationID, method: method, place: join("/paths", path, strings.ToLower(method)), segments: strings.Split(path[1:], "/"),
				item: given.Paths.Value(path), given: op, strict: strict.Paths.Value(path).GetOperation(method),
			})
		}
	}
	for name, item := range strict.Webhooks {
		d.events[name] = item.Post
	}
	return d, nil
}

func load(text []byte) (*openapi3.T, error) {
	loader := openapi3.NewLoader()
	document, err := loader.LoadFromData(text)
	if err != nil {
		return nil, err
	}
	if !document.IsOpenAPI31OrLater() {
		return nil, errors.New("is not OpenAPI 3.1")
	}
	document.SetStringFormatValidators(formats)
	return document, nil
}

// seal forbids members that are not documented, in every object of the
// document.
func seal(document *openapi3.T) error {
	no := false
	shut := func(_ string, ref *openapi3.SchemaRef) error {
		s := ref.Value
		composed := len(s.AllOf)+len(s.OneOf)+len(s.AnyOf) > 0
		if len(s.Properties) > 0 && !composed {
			s.AdditionalProperties.Has = &no
		}
		return nil
	}
	return walk(document, shut)
}

// walk visits every schema of an answer and of an event.
func walk(document *openapi3.T, visit func(string, *openapi3.SchemaRef) error) error {
	content := func(c openapi3.Content) error {
		for _, media := range c {
			if media.Schema != nil {
				if err := media.Schema.WalkSubtree(visit); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, response := range document.Components.Responses {
		if err := content(response.Value.Content); err != nil {
			return err
		}
	}
	for _, item := range document.Paths.Map() {
		for _, op := range item.Operations() {
			for _, response := range op.Responses.Map() {
				if err := content(response.Value.Content); err != nil {
					return err
				}
			}
		}
	}
	for _, item := range document.Webhooks {
		if err := content(item.Post.RequestBody.Value.Content); err != nil {
			return err
		}
	}
	return nil
}
