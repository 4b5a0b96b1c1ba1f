package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// exchange is a request and its answer.
type exchange struct {
	Method string
	Target string // path and query as in the request line, still encoded; empty for what was no request
	Header http.Header
	// Body is the request's; nil when the service did not read it.
	Body []byte

	Status int
	Answer http.Header
	Said   []byte // the answer's body
}

// Check says how an exchange is not as documented; one that is counts as met. A request
// is checked when it was accepted, or refused for another reason than its form: other
// refused ones may be wrong on purpose.
func (d *apiContract) Check(e exchange) error {
	op, parameters := d.find(e)
	var fault error
	if e.acceptable() && e.Body != nil && op.id != outside {
		if err := d.checkRequest(op, parameters, e); err != nil {
			fault = fmt.Errorf("request of %s: %w\n%s", op.id, err, e.Body)
		}
	}

	answer := strings.TrimSpace(fmt.Sprintf("%s: %d %s", op.id, e.Status, e.code()))
	if err := checkBody(d.answers, fmt.Sprint(op.id, " ", e.Status), map[string]any{"header": d.values(e.Answer)}, e.Said); err != nil {
		return errors.Join(fault, fmt.Errorf("answer %s: %w\n%s", answer, err, e.Said))
	}

	if fault == nil {
		d.mu.Lock()
		delete(d.unmet, answer)
		d.mu.Unlock()
	}

	var said any
	if json.Unmarshal(e.Said, &said) == nil {
		d.mu.Lock()
		delete(d.unsent, refusalForm(said))
		d.mu.Unlock()
	}

	return fault
}

// checkBody checks a value with a body by a plan.
func checkBody(by *schemas, plan string, value map[string]any, body []byte) (err error) {
	value["body"], err = jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return by.check(plan, value)
}

// values is what was sent as headers or query, by name. What occurs twice is an array,
// which nothing documents.
func (d *apiContract) values(sent map[string][]string) map[string]any {
	values := map[string]any{}
	for name, texts := range sent {
		switch {
		case len(texts) > 1:
			values[name] = []any{}
		case d.numbers[name] && json.Valid([]byte(texts[0])):
			values[name] = json.Number(texts[0])
		default:
			values[name] = texts[0]
		}
	}

	return values
}

// find returns the operation of a request, with the path's parameters. It matches the
// raw path, as the gateway does: an encoded slash is part of a segment.
func (d *apiContract) find(e exchange) (operation, map[string]any) {
	raw, _, _ := strings.Cut(e.Target, "?")
	for _, op := range d.operations {
		found := op.target.FindStringSubmatch(raw)
		if op.method != e.Method || found == nil || path.Clean(raw) != raw {
			continue
		}

		values := map[string]any{}
		for i, name := range op.target.SubexpNames()[1:] {
			value, err := url.PathUnescape(found[i+1])
			if err != nil {
				value = found[i+1] // the answer is checked all the same
			}
			values[name] = value
		}

		return op, values
	}

	return operation{id: outside}, nil
}

// acceptable: a key that was used with another body is a conflict whatever is wrong
// with that body. A batch of which a part was rejected may have been wrong on purpose.
func (e *exchange) acceptable() bool {
	return e.Status < 300 && !e.rejectsAPart() || e.Status == http.StatusLocked ||
		e.Status == http.StatusConflict && e.code() != "DUPLICATE_ORDER"
}

func (e *exchange) rejectsAPart() bool {
	var batch struct {
		Data struct{ RejectedCount int }
	}
	_ = json.Unmarshal(e.Said, &batch) // what is no envelope rejects nothing
	return batch.Data.RejectedCount > 0
}

// code is data.errorCode of an answer; empty for a success.
func (e *exchange) code() string {
	var refusal struct {
		Data struct{ ErrorCode string }
	}
	_ = json.Unmarshal(e.Said, &refusal) // what is no envelope has no code
	return refusal.Data.ErrorCode
}

// checkRequest checks the parameters and the body of a request.
func (d *apiContract) checkRequest(op operation, parameters map[string]any, e exchange) error {
	_, rawQuery, _ := strings.Cut(e.Target, "?")
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return err
	}

	maps.DeleteFunc(query, func(_ string, values []string) bool { return slices.Equal(values, []string{""}) }) // empty is absent
	header := http.Header{}
	for name := range e.Header {
		header.Set(name, e.Header.Get(name)) // of a repeated header the first is checked
	}

	value := map[string]any{"path": parameters, "query": d.values(query), "header": d.values(header)}
	if !op.takesBody || len(e.Body) == 0 { // one that is sent all the same is ignored
		return d.requests.check(op.id, value)
	}

	return checkBody(d.requests, op.id, value, e.Body)
}
