package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Exchange is a request and its answer.
type Exchange struct {
	Method string
	Target string // path and query as in the request line, still encoded; empty for what was no request
	Header http.Header
	// Body is the request's; nil when the service did not read it.
	Body []byte

	Status int
	Answer http.Header
	Said   []byte // the answer's body
}

// Headers of HTTP itself, which the documents do not name.
var (
	fromServer = []string{"Connection", "Content-Length", "Content-Type", "Date"}
	fromClient = []string{"Accept-Encoding", "Connection", "Content-Length", "Content-Type", "User-Agent"}
)

// Judge lists every way in which an exchange is not as documented; an exchange
// without any counts as met. A request is checked when it was accepted, or refused
// for another reason than its form: other refused ones may be wrong on purpose.
func (d *Document) Judge(e Exchange) []error {
	var faults []error
	var response *openapi3.Response
	var place string
	name, status := outside, strconv.Itoa(e.Status)
	op, values := d.find(e.Method, e.Target)
	if op == nil {
		response, place = d.answerOutside(status)
		place = join("/components/responses", place)
	} else {
		name = op.OperationID
		if e.acceptable() && e.Body != nil {
			faults = d.checkRequest(op, values, e)
		}
		if ref := op.Responses.Value(status); ref != nil {
			response, place = ref.Value, placeOf(ref.Ref, join(op.place, "responses", status))
		}
	}
	if response == nil {
		what := name
		if op == nil {
			what = fmt.Sprintf("%s %s is no operation", e.Method, e.Target)
		}
		return append(faults, fmt.Errorf("%s: status %d %s is not documented", what, e.Status, e.code()))
	}
	for _, fault := range d.checkAnswer(place, response, e) {
		faults = append(faults, fmt.Errorf("%s, status %d %s: %w", name, e.Status, e.code(), fault))
	}
	if len(faults) == 0 {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.met[answerName(name, status, e.code())] = true
	}
	return faults
}

// acceptable: a key that was used with another body is a conflict whatever is wrong
// with that body.
func (e *Exchange) acceptable() bool {
	return e.Status < 300 || e.Status == http.StatusLocked ||
		e.Status == http.StatusConflict && e.code() != "DUPLICATE_ORDER"
}

// code is data.errorCode of an answer; empty for a success.
func (e *Exchange) code() string {
	var refusal struct {
		Data struct{ ErrorCode string }
	}
	_ = json.Unmarshal(e.Said, &refusal) // what is no envelope has no code
	return refusal.Data.ErrorCode
}

// checkRequest checks the parameters and the body of a request.
func (d *Document) checkRequest(op *operation, values map[string]string, e Exchange) []error {
	_, rawQuery, _ := strings.Cut(e.Target, "?")
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return []error{fmt.Errorf("request of %s: %w", op.OperationID, err)}
	}
	sent := func(p *openapi3.Parameter) []string {
		switch p.In {
		case openapi3.ParameterInPath:
			return []string{values[p.Name]}
		case openapi3.ParameterInQuery:
			return slices.DeleteFunc(query[p.Name], func(value string) bool { return value == "" }) // empty is absent
		}
		values := e.Header.Values(p.Name)
		return values[:min(1, len(values))] // of a repeated header the first is checked
	}
	faults := d.requests.checkParameters(join("/paths", op.path), op.common, sent)
	faults = append(faults, d.requests.checkParameters(op.place, op.Parameters, sent)...)
	switch body := op.RequestBody; {
	case body == nil: // one that is sent all the same is ignored
	case len(e.Body) == 0 && body.Value.Required:
		faults = append(faults, errors.New("the body is missing"))
	case len(e.Body) > 0:
		if err := d.requests.checkJSON(join(op.place, "requestBody", "content", mediaType, "schema"), e.Body); err != nil {
			faults = append(faults, fmt.Errorf("%w\n%s", err, e.Body))
		}
	}
	for i, fault := range faults {
		faults[i] = fmt.Errorf("request of %s: %w", op.OperationID, fault)
	}
	return faults
}

// checkAnswer checks headers and body against the response documented at place.
func (d *Document) checkAnswer(place string, documented *openapi3.Response, e Exchange) []error {
	var faults []error
	for name := range e.Answer {
		known := slices.Contains(fromServer, name)
		for header := range documented.Headers {
			known = known || sameHeader(header, name)
		}
		if !known {
			faults = append(faults, fmt.Errorf("the header %s is not documented", name))
		}
	}
	for name, ref := range documented.Headers {
		p := ref.Value.Parameter
		p.Name, p.In = name, openapi3.ParameterInHeader
		if err := d.answers.checkTexts(placeOf(ref.Ref, join(place, "headers", name)), &p, e.Answer.Values(name)); err != nil {
			faults = append(faults, err)
		}
	}
	if got := e.Answer.Get("Content-Type"); got != mediaType {
		faults = append(faults, fmt.Errorf("the Content-Type is %q", got))
	}
	if err := d.answers.checkJSON(join(place, "content", mediaType, "schema"), e.Said); err != nil {
		faults = append(faults, fmt.Errorf("%w\n%s", err, e.Said))
	}
	return faults
}

// JudgeEvent returns every way in which a webhook, as a receiver got it, is not as
// documented. The header X-Service-Event names the event.
func (d *Document) JudgeEvent(header http.Header, body []byte) error {
	name := header.Get("X-Service-Event")
	item := d.spec.Webhooks[name]
	if item == nil {
		return fmt.Errorf("the event %q is not documented", name)
	}
	place, parameters := join("/webhooks", name, "post"), item.Post.Parameters
	faults := d.answers.checkParameters(place, parameters, func(p *openapi3.Parameter) []string { return header.Values(p.Name) })
	for given := range header {
		documented := slices.ContainsFunc(parameters, func(p *openapi3.ParameterRef) bool { return sameHeader(p.Value.Name, given) })
		if !documented && !slices.Contains(fromClient, given) {
			faults = append(faults, fmt.Errorf("the header %s is not documented", given))
		}
	}
	if err := d.answers.checkJSON(join(place, "requestBody", "content", mediaType, "schema"), body); err != nil {
		faults = append(faults, fmt.Errorf("%w\n%s", err, body))
	}
	if len(faults) > 0 {
		return fmt.Errorf("event %s: %w", name, errors.Join(faults...))
	}
	return nil
}
