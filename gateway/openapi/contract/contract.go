// Package contract compares requests and answers with the OpenAPI documents, for
// tests. An answer may have nothing that is not documented, and a request that was
// accepted must be one that the document allows. Documents record which answers they
// have met, so that a test can list those that were never tried.
package contract

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"vendorapi/gateway/openapi"
)

// Document is the contract of one API. It is safe for concurrent use.
type Document struct {
	operations []operation
	events     []string
	numbers    map[string]bool // the parameters and headers that are no texts
	// Requests are checked as published. Answers and events may have no members that
	// are not documented; the document itself allows them, since clients must.
	requests, answers *schemas

	mu    sync.Mutex
	unmet map[string]bool
}

// operation is one endpoint.
type operation struct {
	id, method string
	target     *regexp.Regexp // its groups are the path's parameters
	takesBody  bool
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
	"vendor": sync.OnceValues(func() (*Document, error) { return parse(openapi.Vendor) }),
	"fleet":  sync.OnceValues(func() (*Document, error) { return parse(openapi.Fleet) }),
	"admin":  sync.OnceValues(func() (*Document, error) { return parse(openapi.Admin) }),
}

// parse reads and validates a document with its examples.
func parse(text []byte) (*Document, error) {
	spec, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	if !spec.IsOpenAPI31OrLater() || len(spec.Servers) != 1 {
		return nil, fmt.Errorf("%s: want OpenAPI 3.1 and one server", spec.Info.Title)
	}
	spec.SetStringFormatValidators(formats)
	if err := spec.Validate(context.Background(), openapi3.EnableExamplesValidation(), openapi3.EnableMultiError()); err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Info.Title, err)
	}
	d := &Document{numbers: map[string]bool{}, unmet: map[string]bool{}}
	content := map[string]any{"components": spec.Components, checks: d.plan(spec)}
	if d.requests, err = newSchemas(content, false); err != nil {
		return nil, err
	}
	d.answers, err = newSchemas(content, true)
	return d, err
}

// outside is the operation of answers that belong to none: to paths that do not
// exist and to what was no request.
const outside = "-"

// object is a JSON schema of one.
type object struct {
	Properties map[string]any `json:"properties"`
	Required   []string       `json:"required,omitempty"`
}

// plan makes the schemas by which whole requests, answers and events are checked, as
// "createOrder", "createOrder 201" and "event store.activated", and notes operations
// and answers.
func (d *Document) plan(spec *openapi3.T) map[string]object {
	plans := map[string]object{}
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			target := regexp.MustCompile("^" + parameter.ReplaceAllString(spec.Servers[0].URL+path, "(?P<$1>[^/]+)") + "$")
			d.operations = append(d.operations, operation{op.OperationID, method, target, op.RequestBody != nil})
			plans[op.OperationID] = d.request(op.RequestBody, slices.Concat(item.Parameters, op.Parameters))
			for status, response := range op.Responses.Map() {
				plans[op.OperationID+" "+status] = d.answer(op.OperationID+": "+status, response.Value)
			}
		}
	}
	unowned, _ := spec.Extensions["x-answers-without-operation"].(map[string]any)
	for status, name := range unowned {
		plans[outside+" "+status] = d.answer(outside+": "+status, spec.Components.Responses[fmt.Sprint(name)].Value)
	}
	for name, item := range spec.Webhooks {
		d.events = append(d.events, name)
		plans["event "+name] = d.request(item.Post.RequestBody, item.Post.Parameters, "Accept-Encoding", "Connection", "Content-Length", "Content-Type", "User-Agent")
	}
	return plans
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// request is the schema of a request or event; more are headers that are not
// documented.
func (d *Document) request(body *openapi3.RequestBodyRef, parameters openapi3.Parameters, more ...string) object {
	in := map[string]*object{openapi3.ParameterInPath: texts(), openapi3.ParameterInQuery: texts(), openapi3.ParameterInHeader: texts(more...)}
	for _, ref := range parameters {
		d.add(in[ref.Value.In], ref.Value.Name, ref.Value)
	}
	plan := object{Properties: map[string]any{}}
	for name, part := range in {
		plan.Properties[name] = part
	}
	if body != nil {
		plan.Properties["body"] = body.Value.Content[mediaType].Schema
		if body.Value.Required {
			plan.Required = []string{"body"}
		}
	}
	return plan
}

// mediaType is the only one.
const mediaType = "application/json"

// answer is the schema of an answer. Its error codes, or one empty code for a success,
// are noted as not met; the schemas of errors are named as their codes.
func (d *Document) answer(name string, response *openapi3.Response) object {
	header := texts("Connection", "Content-Length", "Date")
	header.Properties["Content-Type"], header.Required = map[string]string{"const": mediaType}, []string{"Content-Type"}
	for name, ref := range response.Headers {
		ref.Value.In = openapi3.ParameterInHeader
		d.add(header, name, &ref.Value.Parameter)
	}
	schema, success := response.Content[mediaType].Schema, true
	for _, ref := range append(openapi3.SchemaRefs{schema}, schema.Value.OneOf...) {
		if code, ok := strings.CutPrefix(ref.Ref, "#/components/schemas/"); ok && ref.Value.Extensions["x-status"] != nil {
			d.unmet[name+" "+code], success = true, false
		}
	}
	if success {
		d.unmet[name] = true
	}
	return object{Properties: map[string]any{"header": header, "body": schema}, Required: []string{"body"}}
}

// texts is the schema of headers or parameters, some of which are not documented.
func texts(more ...string) *object {
	o := &object{Properties: map[string]any{}}
	for _, name := range more {
		o.Properties[name] = true
	}
	return o
}

func (d *Document) add(to *object, name string, p *openapi3.Parameter) {
	if p.In == openapi3.ParameterInHeader {
		name = http.CanonicalHeaderKey(name)
	}
	to.Properties[name] = p.Schema
	if p.Required {
		to.Required = append(to.Required, name)
	}
	if p.Schema.Value.Type.Is("integer") {
		d.numbers[name] = true
	}
}

// Unmet lists the documented answers that no exchange has shown, as
// "createOrder: 409 DUPLICATE_ORDER", sorted. Events are not among them.
func (d *Document) Unmet() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.unmet))
}
