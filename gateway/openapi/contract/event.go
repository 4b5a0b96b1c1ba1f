package contract

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// fromTheClient are headers of HTTP itself, which no event documents.
var fromTheClient = []string{"Accept-Encoding", "Connection", "Content-Length", "Content-Type", "User-Agent"}

// Events are the documented ones, sorted.
func (d *Document) Events() []string { return slices.Sorted(maps.Keys(d.events)) }

// JudgeEvent tells every way in which a webhook, as it arrived at a receiver, is
// not as documented; nil when it is. Which event it is, its header says.
func (d *Document) JudgeEvent(header http.Header, body []byte) error {
	name := header.Get("X-Service-Event")
	op := d.events[name]
	if op == nil {
		return fmt.Errorf("the event %q is not documented", name)
	}
	var faults []error
	for given := range header {
		documented := slices.ContainsFunc(op.Parameters, func(p *openapi3.ParameterRef) bool {
			return http.CanonicalHeaderKey(p.Value.Name) == http.CanonicalHeaderKey(given)
		})
		if !documented && !slices.Contains(fromTheClient, given) {
			faults = append(faults, fmt.Errorf("event %s: the header %s is not documented", name, given))
		}
	}
	e := Exchange{Method: http.MethodPost, Target: "/", Header: header, Body: body}
	err := openapi3filter.ValidateRequest(context.Background(), &openapi3filter.RequestValidationInput{
		Request: request(&e), Options: options(),
		Route: &routers.Route{Spec: d.strict, PathItem: &openapi3.PathItem{}, Method: e.Method, Operation: op},
	})
	if err != nil {
		faults = append(faults, fmt.Errorf("event %s: %w", name, err))
	}
	if err := d.answers.judgeJSON(join("/webhooks", name, "post", "requestBody", "content", mediaType, "schema"), body); err != nil {
		faults = append(faults, fmt.Errorf("event %s: %w\n%s", name, err, body))
	}
	return errors.Join(faults...)
}
