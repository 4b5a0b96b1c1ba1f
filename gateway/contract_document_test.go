package main

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

// apiContract compares requests and answers with the OpenAPI document of an API. An
// answer may have nothing that is not documented, and a request that was accepted must
// be one that the document allows. It records which answers it has met. It is safe for
// concurrent use.
type apiContract struct {
	operations []operation
	numbers    map[string]bool // the parameters and headers that are no texts
	// Requests are checked as published. Answers may have no members that
	// are not documented; the document itself allows them, since clients must.
	requests, answers *schemas

	mu    sync.Mutex
	unmet map[string]bool
	// unsent are the documented examples of refusals that no exchange has shown, as refusalForm
	// has them.
	unsent map[string]bool

	// examples are those of answers, as "createOrder 201 created".
	examples map[string]any
}

// operation is one endpoint.
type operation struct {
	id, method string
	target     *regexp.Regexp // its groups are the path's parameters
	takesBody  bool
}

// contractOfAPI reads one of the three documents, "vendor", "fleet" or "admin", once.
func contractOfAPI(name string) (*apiContract, error) {
	read, known := contracts[name]
	if !known {
		return nil, fmt.Errorf("there is no API %q", name)
	}
	return read()
}

var contracts = map[string]func() (*apiContract, error){
	"vendor": sync.OnceValues(func() (*apiContract, error) { return parseContract(openapi.Vendor) }),
	"fleet":  sync.OnceValues(func() (*apiContract, error) { return parseContract(openapi.Fleet) }),
	"admin":  sync.OnceValues(func() (*apiContract, error) { return parseContract(openapi.Admin) }),
}

// parseContract reads and validates a document with its examples.
func parseContract(text []byte) (*apiContract, error) {
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

	d := &apiContract{numbers: map[string]bool{}, unmet: map[string]bool{}, unsent: map[string]bool{}, examples: map[string]any{}}
	content := map[string]any{"components": spec.Components, checks: d.plan(spec)}
	d.requests, err = newSchemas(content, false)
	if err != nil {
		return nil, err
	}

	d.answers, err = newSchemas(content, true)

	return d, err
}

// outside is the operation of answers that belong to none: to paths that do not
// exist and to what was no request.
const outside = "-"

// schemaObject is a JSON schema of one.
type schemaObject struct {
	Properties map[string]any `json:"properties"`
	Required   []string       `json:"required,omitempty"`
}

// plan makes the schemas by which whole requests and answers are checked, as "createOrder"
// and "createOrder 201", and notes operations and answers.
func (d *apiContract) plan(spec *openapi3.T) map[string]schemaObject {
	plans := map[string]schemaObject{}
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			target := regexp.MustCompile("^" + pathParameter.ReplaceAllString(spec.Servers[0].URL+path, "(?P<$1>[^/]+)") + "$")
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

	return plans
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// request is the schema of a request.
func (d *apiContract) request(body *openapi3.RequestBodyRef, parameters openapi3.Parameters) schemaObject {
	in := map[string]*schemaObject{openapi3.ParameterInPath: textsSchema(), openapi3.ParameterInQuery: textsSchema(), openapi3.ParameterInHeader: textsSchema()}
	for _, ref := range parameters {
		d.add(in[ref.Value.In], ref.Value.Name, ref.Value)
	}

	plan := schemaObject{Properties: map[string]any{}}
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
func (d *apiContract) answer(name string, response *openapi3.Response) schemaObject {
	header := textsSchema("Connection", "Content-Length", "Date")
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

	for title, example := range response.Content[mediaType].Examples {
		d.examples[strings.ReplaceAll(name, ":", "")+" "+title] = example.Value.Value
		if refusal := refusalForm(example.Value.Value); refusal != "" {
			d.unsent[refusal] = true
		}
	}

	return schemaObject{Properties: map[string]any{"header": header, "body": schema}, Required: []string{"body"}}
}

// textsSchema is the schema of headers or parameters, some of which are not documented.
func textsSchema(more ...string) *schemaObject {
	o := &schemaObject{Properties: map[string]any{}}
	for _, name := range more {
		o.Properties[name] = true
	}
	return o
}

func (d *apiContract) add(to *schemaObject, name string, p *openapi3.Parameter) {
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
func (d *apiContract) Unmet() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.unmet))
}

// Unsent lists the examples of refusals that no exchange has shown, sorted.
func (d *apiContract) Unsent() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.unsent))
}

// refusalForm is a refusal's code and message without what differs from one to the next: numbers,
// times and what is in quotes. It is empty for another answer.
func refusalForm(answer any) string {
	content, _ := answer.(map[string]any)
	data, _ := content["data"].(map[string]any)
	message, isRefusal := content["message"].(string)
	code, hasCode := data["errorCode"].(string)
	if !isRefusal || !hasCode {
		return ""
	}
	return code + ": " + changing.ReplaceAllString(message, "…")
}

var changing = regexp.MustCompile(`"[^"]*"|[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}|\bstore [\w-]+|\d[\dT:.+-]*`)
