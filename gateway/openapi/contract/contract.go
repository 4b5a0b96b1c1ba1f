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
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"

	"vendorapi/gateway/openapi"
)

// Document is the contract of one API. It is safe for concurrent use.
type Document struct {
	spec       *openapi3.T
	operations []operation
	// Requests are checked as published. Answers and events may have no members that
	// are not documented; the document itself allows them, since clients must.
	requests, answers *schemas

	mu  sync.Mutex
	met map[string]bool // as Unmet writes them
}

// operation is one endpoint.
type operation struct {
	*openapi3.Operation
	method, path string
	place        string              // in the document
	target       *regexp.Regexp      // its groups are the path's parameters
	common       openapi3.Parameters // of every operation of the path
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

// parse reads and validates a document with its examples.
func parse(name string, text []byte) (*Document, error) {
	spec, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if !spec.IsOpenAPI31OrLater() || len(spec.Servers) != 1 {
		return nil, fmt.Errorf("%s: want OpenAPI 3.1 and one server", name)
	}
	spec.SetStringFormatValidators(formats)
	if err := spec.Validate(context.Background(), openapi3.EnableExamplesValidation(), openapi3.EnableMultiError()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d := &Document{spec: spec, met: map[string]bool{}}
	if d.requests, err = newSchemas(spec, false); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if d.answers, err = newSchemas(spec, true); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, path := range spec.Paths.InMatchingOrder() {
		item := spec.Paths.Value(path)
		for method, op := range item.Operations() {
			d.operations = append(d.operations, operation{
				Operation: op, method: method, path: path, place: join("/paths", path, strings.ToLower(method)),
				target: regexp.MustCompile("^" + parameter.ReplaceAllString(spec.Servers[0].URL+path, "(?P<$1>[^/]+)") + "$"),
				common: item.Parameters,
			})
		}
	}
	return d, nil
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// Events lists the documented webhook events, sorted.
func (d *Document) Events() []string { return slices.Sorted(maps.Keys(d.spec.Webhooks)) }

// find returns the operation of a request target, with the path's parameters; nil
// when there is none. It matches the raw path, as the gateway does: an encoded slash
// is part of a segment.
func (d *Document) find(method, target string) (*operation, map[string]string) {
	raw, _, _ := strings.Cut(target, "?")
	for i := range d.operations {
		op := &d.operations[i]
		found := op.target.FindStringSubmatch(raw)
		if op.method != method || found == nil || path.Clean(raw) != raw {
			continue
		}
		values := map[string]string{}
		for i, name := range op.target.SubexpNames()[1:] {
			value, err := url.PathUnescape(found[i+1])
			if err != nil {
				value = found[i+1] // the answer is checked all the same
			}
			values[name] = value
		}
		return op, values
	}
	return nil, nil
}

// outside is the operation of answers that belong to none: to paths that do not
// exist and to what was no request.
const outside = "-"

// answerOutside returns such an answer's response and its name.
func (d *Document) answerOutside(status string) (*openapi3.Response, string) {
	names, _ := d.spec.Extensions["x-answers-without-operation"].(map[string]any)
	name, _ := names[status].(string)
	if ref := d.spec.Components.Responses[name]; ref != nil {
		return ref.Value, name
	}
	return nil, ""
}

// Unmet lists the documented answers that no exchange has shown, as
// "createOrder: 409 DUPLICATE_ORDER", sorted. Events are not among them.
func (d *Document) Unmet() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var missing []string
	add := func(operation, status string, response *openapi3.Response) {
		for _, code := range codesOf(response) {
			if answer := answerName(operation, status, code); !d.met[answer] {
				missing = append(missing, answer)
			}
		}
	}
	for _, op := range d.operations {
		for status, response := range op.Responses.Map() {
			add(op.OperationID, status, response.Value)
		}
	}
	names, _ := d.spec.Extensions["x-answers-without-operation"].(map[string]any)
	for status := range names {
		response, _ := d.answerOutside(status)
		add(outside, status, response)
	}
	slices.Sort(missing)
	return missing
}

func answerName(operation, status, code string) string {
	return strings.TrimSpace(operation + ": " + status + " " + code)
}

// codesOf lists the error codes of a documented answer; one empty code for a
// success. The schemas of errors are named as their codes.
func codesOf(response *openapi3.Response) []string {
	media := response.Content[mediaType]
	if media == nil {
		return nil
	}
	var codes []string
	for _, ref := range append(openapi3.SchemaRefs{media.Schema}, media.Schema.Value.OneOf...) {
		if name, ok := strings.CutPrefix(ref.Ref, "#/components/schemas/"); ok && ref.Value.Extensions["x-status"] != nil {
			codes = append(codes, name)
		}
	}
	if codes == nil {
		return []string{""}
	}
	return codes
}

// mediaType is the only one.
const mediaType = "application/json"

func sameHeader(a, b string) bool { return http.CanonicalHeaderKey(a) == http.CanonicalHeaderKey(b) }
