package contract

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
)

// met is one thing that a document promises: an operation's answer.
type met struct {
	operation string
	status    int
	code      string // empty for a success
}

func (m met) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s: %d %s", m.operation, m.status, m.code))
}

// account is what has been met.
type account struct {
	mu  sync.Mutex
	all map[met]bool
}

func newAccount() *account { return &account{all: map[met]bool{}} }

func (a *account) note(m met) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[m] = true
}

func (a *account) has(m met) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[m]
}

// Unmet lists the answers that are documented and that no exchange has shown,
// as "createOrder: 409 DUPLICATE_ORDER", sorted. Events are not among them.
func (d *Document) Unmet() []string {
	var missing []string
	note := func(m met) {
		if !d.account.has(m) {
			missing = append(missing, m.String())
		}
	}
	for _, op := range d.operations {
		for status, response := range op.given.Responses.Map() {
			for _, code := range codesOf(response.Value) {
				note(met{op.id, number(status), code})
			}
		}
	}
	names, _ := d.given.Extensions["x-answers-without-operation"].(map[string]any)
	for status, name := range names {
		response := d.given.Components.Responses[fmt.Sprint(name)]
		for _, code := range codesOf(response.Value) {
			note(met{outside, number(status), code})
		}
	}
	slices.Sort(missing)
	return missing
}

// Name is the API's: vendor, fleet or admin.
func (d *Document) Name() string { return d.name }

// codesOf are the error codes that a documented answer can have; one empty code
// for a success. The schemas of errors are named as their codes.
func codesOf(response *openapi3.Response) []string {
	media := response.Content["application/json"]
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

func number(status string) int {
	n, _ := strconv.Atoi(status) // documents name them in digits
	return n
}
