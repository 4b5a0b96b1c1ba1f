package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// Exchange is a request and its answer.
type Exchange struct {
	Method string
	Target string // as in the request line: path and query, still encoded; empty for what was no request
	Header http.Header
	// Body is the request's; nil when it was not read, which an answer other than
	// an acceptance can be given without.
	Body []byte

	Status int
	Answer http.Header
	Said   []byte // the answer's body
}

// fromTheServer are headers of HTTP itself, which no operation documents.
var fromTheServer = []string{"Connection", "Content-Length", "Content-Type", "Date"}

// Judge tells every way in which an exchange is not as documented, and notes
// what was met. A request is judged when it was accepted, or refused for the
// state of things and not for its form: whatever else is refused may be wrong on
// purpose.
func (d *Document) Judge(e Exchange) []error {
	op, parameters := d.find(e.Method, e.Target)
	if op == nil {
		return d.judgeOutside(e)
	}
	var faults []error
	if e.wellMeant() && e.Body != nil {
		faults = d.judgeRequest(op, parameters, e)
	}
	status := strconv.Itoa(e.Status)
	documented := op.strict.Responses.Value(status)
	if documented == nil {
		return append(faults, fmt.Errorf("%s: status %d %s is not documented", op.id, e.Status, e.code()))
	}
	place := placeOf(documented.Ref, join(op.place, "responses", status))
	faults = append(faults, d.judgeAnswer(op.id, place, documented.Value, e)...)
	if len(faults) == 0 {
		d.account.note(met{op.id, e.Status, e.code()})
	}
	return faults
}

// judgeRequest judges the parameters and the body of a request.
func (d *Document) judgeRequest(op *operation, parameters map[string]string, e Exchange) []error {
	var faults []error
	err := openapi3filter.ValidateRequest(context.Background(), &openapi3filter.RequestValidationInput{
		Request: request(&e), PathParams: parameters, Options: options(),
		Route: &routers.Route{Spec: d.given, Path: e.Target, PathItem: op.item, Method: e.Method, Operation: op.given},
	})
	if err != nil {
		faults = append(faults, fmt.Errorf("request of %s: %w", op.id, err))
	}
	switch body := op.given.RequestBody; {
	case body == nil: // one that is sent all the same is ignored
	case len(e.Body) == 0 && body.Value.Required:
		faults = append(faults, fmt.Errorf("request of %s: the body is missing", op.id))
	case len(e.Body) > 0:
		place := join(op.place, "requestBody", "content", mediaType, "schema")
		if err := d.requests.judgeJSON(place, e.Body); err != nil {
			faults = append(faults, fmt.Errorf("request of %s: %w\n%s", op.id, err, e.Body))
		}
	}
	return faults
}

// mediaType is the only one.
const mediaType = "application/json"

// wellMeant: a key that was used with another body is a conflict whatever is wrong
// with that body.
func (e *Exchange) wellMeant() bool {
	return e.Status < 300 || e.Status == http.StatusLocked ||
		e.Status == http.StatusConflict && e.code() != "DUPLICATE_ORDER"
}

// outside is the name of answers that belong to no operation.
const outside = "-"

// judgeOutside judges what no operation answers: paths that do not exist, and
// what was no request.
func (d *Document) judgeOutside(e Exchange) []error {
	names, _ := d.strict.Extensions["x-answers-without-operation"].(map[string]any)
	name, _ := names[strconv.Itoa(e.Status)].(string)
	response := d.strict.Components.Responses[name]
	if response == nil {
		return []error{fmt.Errorf("%s %s is no operation, and status %d %s is not documented for that", e.Method, e.Target, e.Status, e.code())}
	}
	faults := d.judgeAnswer(outside, join("/components/responses", name), response.Value, e)
	if len(faults) == 0 {
		d.account.note(met{outside, e.Status, e.code()})
	}
	return faults
}

// judgeAnswer judges headers and body by the documented answer, which stands at
// place.
func (d *Document) judgeAnswer(id, place string, documented *openapi3.Response, e Exchange) []error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s, status %d %s: "+format, append([]any{id, e.Status, e.code()}, args...)...))
	}
	for name := range e.Answer {
		known := slices.Contains(fromTheServer, name)
		for header := range documented.Headers {
			known = known || http.CanonicalHeaderKey(header) == http.CanonicalHeaderKey(name)
		}
		if !known {
			fault("the header %s is not documented", name)
		}
	}
	for name, ref := range documented.Headers {
		values := e.Answer.Values(name)
		if len(values) == 0 && ref.Value.Required || len(values) > 1 {
			fault("the header %s is there %d times", name, len(values))
		}
		for _, value := range values {
			if err := d.answers.judgeHeader(join(placeOf(ref.Ref, join(place, "headers", name)), "schema"), ref.Value.Schema.Value, value); err != nil {
				fault("the header %s: %w", name, err)
			}
		}
	}
	if got := e.Answer.Get("Content-Type"); got != mediaType {
		fault("the Content-Type is %q", got)
	}
	if err := d.answers.judgeJSON(join(place, "content", mediaType, "schema"), e.Said); err != nil {
		fault("%w\n%s", err, e.Said)
	}
	return faults
}

// find is the operation of a request target with the path's parameters, nil when
// there is none. It looks at the raw path, as the gateway does: an encoded slash
// is part of a segment.
func (d *Document) find(method, target string) (*operation, map[string]string) {
	path, _, _ := strings.Cut(target, "?")
	path, below := strings.CutPrefix(path, d.base+"/")
	if !below {
		return nil, nil
	}
	segments := strings.Split(path, "/")
	for i := range d.operations {
		op := &d.operations[i]
		if op.method != method || len(op.segments) != len(segments) {
			continue
		}
		if parameters, ok := op.match(segments); ok {
			return op, parameters
		}
	}
	return nil, nil
}

func (op *operation) match(segments []string) (map[string]string, bool) {
	parameters := map[string]string{}
	for i, want := range op.segments {
		switch name, isParameter := strings.CutPrefix(want, "{"); {
		case segments[i] == "", segments[i] == ".", segments[i] == "..":
			return nil, false
		case isParameter:
			value, err := url.PathUnescape(segments[i])
			if err != nil {
				value = segments[i] // the answer is judged all the same
			}
			parameters[strings.TrimSuffix(name, "}")] = value
		case segments[i] != want:
			return nil, false
		}
	}
	return parameters, true
}

// code is data.errorCode of an answer; empty for a success.
func (e *Exchange) code() string {
	var refusal struct {
		Data struct{ ErrorCode string }
	}
	_ = json.Unmarshal(e.Said, &refusal) // what is no envelope has no code
	return refusal.Data.ErrorCode
}

// request is the form that the validator takes.
func request(e *Exchange) *http.Request {
	r := &http.Request{Method: e.Method, URL: &url.URL{}, Header: e.Header, Body: io.NopCloser(bytes.NewReader(e.Body))}
	r.URL.Path, r.URL.RawQuery, _ = strings.Cut(e.Target, "?")
	if r.Header == nil {
		r.Header = http.Header{}
	}
	return r
}

// options let the token pass: whether it is good is not the document's to say.
// Bodies are judged by schemas; defaults are not written into the request.
func options() *openapi3filter.Options {
	return &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, ExcludeRequestBody: true,
		MultiError: true, SkipSettingDefaults: true,
		SchemaValidationOptions: []openapi3.SchemaValidationOption{openapi3.WithStringFormatValidators(formats)},
	}
}

// Join is the faults as one error, nil without any.
func Join(faults []error) error { return errors.Join(faults...) }
