package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// step is a request of the collection, in the order in which they work when they
// are sent one after the other.
type step struct {
	operation string // operationId
	name      string
	example   string         // of the request's body; empty: there is none
	with      map[string]any // members of the body that are this collection's own
	key       bool           // sends an X-Idempotency-Key
	before    []string       // lines of script
	after     []string
}

// steps are a vendor's first delivery and everything else that it can call.
var steps = []step{
	{operation: "getToken", name: "1 Get a token", example: "credentials",
		with:  map[string]any{"clientId": "{{client_id}}", "clientSecret": "{{client_secret}}"},
		after: []string{"pm.collectionVariables.set('token', pm.response.json().data.accessToken);"}},
	{operation: "putStore", name: "2 Register a store", example: "register",
		after: []string{
			"const store = pm.response.json().data;",
			"const fleet = store.fleet || store.availableFleets[0];",
			"pm.collectionVariables.set('fleet_id', fleet.fleetId);",
		}},
	{operation: "putStore", name: "3 Choose a fleet", example: "choose", with: map[string]any{"fleetId": "{{fleet_id}}"}},
	{operation: "createOrder", name: "4 Create an order", example: "order", key: true,
		with: map[string]any{"externalStoreId": "{{external_store_id}}", "externalOrderId": "{{external_order_id}}",
			"packageNote": "SIM:HOLD=Assigned", "orderedAt": nil},
		before: []string{
			"pm.collectionVariables.set('external_order_id', 'PM-' + Date.now());",
			"setTimeout(function () {}, 7000); // the fleet confirms the store meanwhile; in a sandbox that takes seconds",
		},
		after: []string{"pm.collectionVariables.set('order_id', pm.response.json().data.orderId);"}},
	{operation: "getOrder", name: "5 Read the order"},
	{operation: "cancelOrder", name: "6 Cancel the order", example: "customer"},
	{operation: "putWebhook", name: "7 Register a receiver", example: "receiver", with: map[string]any{"url": "{{webhook_url}}"},
		after: []string{
			"const secret = pm.response.json().data.secret; // shown once",
			"if (secret) pm.collectionVariables.set('webhook_secret', secret);",
		}},
	{operation: "getWebhook", name: "8 Look at the receiver"},
	{operation: "testWebhook", name: "9 Have a test event sent"},
	{operation: "replayWebhook", name: "10 Have the last hour's events sent again", example: "since", with: map[string]any{"since": "{{since}}"},
		before: []string{"pm.collectionVariables.set('since', new Date(Date.now() - 3600e3).toISOString());"}},
	{operation: "deleteWebhook", name: "11 Remove the receiver (leave it out to keep it)"},
}

// variables are what the collection is given, and what it finds out for itself.
var variables = []variable{
	{"base_url", ""}, {"client_id", ""}, {"client_secret", ""},
	{"webhook_url", "https://pos.example/hooks/delivery"}, {"external_store_id", "moda"},
	{"token", ""}, {"fleet_id", ""}, {"external_order_id", ""}, {"order_id", ""}, {"webhook_secret", ""}, {"since", ""},
}

// The form of a collection, version 2.1.
type (
	variable struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	collection struct {
		Info     map[string]string `json:"info"`
		Auth     auth              `json:"auth"`
		Variable []variable        `json:"variable"`
		Item     []item            `json:"item"`
	}
	auth struct {
		Type   string `json:"type"`
		Bearer []pair `json:"bearer,omitempty"`
	}
	pair struct {
		Key   string `json:"key"`
		Value string `json:"value"`
		Type  string `json:"type,omitempty"`
	}
	item struct {
		Name     string  `json:"name"`
		Event    []event `json:"event,omitempty"`
		Request  request `json:"request"`
		Response []saved `json:"response"`
	}
	event struct {
		Listen string `json:"listen"`
		Script script `json:"script"`
	}
	script struct {
		Type string   `json:"type"`
		Exec []string `json:"exec"`
	}
	request struct {
		Method      string `json:"method"`
		Auth        *auth  `json:"auth,omitempty"`
		Header      []pair `json:"header"`
		Body        *body  `json:"body,omitempty"`
		URL         target `json:"url"`
		Description string `json:"description"`
	}
	body struct {
		Mode    string         `json:"mode"`
		Raw     string         `json:"raw"`
		Options map[string]any `json:"options"`
	}
	target struct {
		Raw  string   `json:"raw"`
		Host []string `json:"host"`
		Path []string `json:"path"`
	}
	saved struct {
		Name     string `json:"name"`
		Status   string `json:"status"`
		Code     int    `json:"code"`
		Language string `json:"_postman_previewlanguage"`
		Header   []pair `json:"header"`
		Body     string `json:"body"`
	}
)

// postmanCollection is postman.json.
func postmanCollection(document *openapi3.T) ([]byte, error) {
	c := collection{
		Info: map[string]string{
			"name":        document.Info.Title,
			"description": "Set base_url, client_id, client_secret and webhook_url, then send the requests from top to bottom.",
			"schema":      "https://schema.getpostman.com/json/collection/v2.1.0/collection.json",
		},
		Auth:     auth{Type: "bearer", Bearer: []pair{{Key: "token", Value: "{{token}}", Type: "string"}}},
		Variable: variables,
	}
	for _, s := range steps {
		it, err := s.item(document)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		c.Item = append(c.Item, it)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(c)
	return b.Bytes(), err
}

func (s step) item(document *openapi3.T) (item, error) {
	path, method, op := find(document, s.operation)
	if op == nil {
		return item{}, fmt.Errorf("there is no operation %s", s.operation)
	}
	path = strings.NewReplacer("{externalStoreId}", "{{external_store_id}}", "{orderId}", "{{order_id}}").Replace(document.Servers[0].URL + path)
	it := item{Name: s.name, Request: request{
		Method: method, Description: strings.TrimSpace(op.Summary + ".\n\n" + op.Description), Header: []pair{},
		URL: target{Raw: "{{base_url}}" + path, Host: []string{"{{base_url}}"}, Path: strings.Split(path[1:], "/")},
	}}
	if op.Security != nil && len(*op.Security) == 0 {
		it.Request.Auth = &auth{Type: "noauth"}
	}
	if s.key {
		it.Request.Header = append(it.Request.Header, pair{Key: "X-Idempotency-Key", Value: "{{external_order_id}}"})
	}
	if s.example != "" {
		raw, err := s.body(op)
		if err != nil {
			return item{}, err
		}
		it.Request.Header = append(it.Request.Header, pair{Key: "Content-Type", Value: "application/json"})
		it.Request.Body = &body{Mode: "raw", Raw: raw, Options: map[string]any{"raw": map[string]string{"language": "json"}}}
	}
	after := append([]string{"pm.test('it is done', () => pm.response.to.be.success);"}, s.after...)
	for _, e := range []event{{"prerequest", script{"text/javascript", s.before}}, {"test", script{"text/javascript", after}}} {
		if len(e.Script.Exec) > 0 {
			it.Event = append(it.Event, e)
		}
	}
	var err error
	it.Response, err = savedAnswers(op)
	return it, err
}

func find(document *openapi3.T, operation string) (path, method string, op *openapi3.Operation) {
	for path, entry := range document.Paths.Map() {
		for method, op := range entry.Operations() {
			if op.OperationID == operation {
				return path, method, op
			}
		}
	}
	return "", "", nil
}

// body is the documented example with this collection's own members; nil takes
// one away.
func (s step) body(op *openapi3.Operation) (string, error) {
	example := op.RequestBody.Value.Content["application/json"].Examples[s.example]
	if example == nil {
		return "", fmt.Errorf("there is no example %s", s.example)
	}
	members, ok := example.Value.Value.(map[string]any)
	if !ok {
		return "", fmt.Errorf("the example %s is no object", s.example)
	}
	members = maps.Clone(members)
	for name, value := range s.with {
		if members[name] = value; value == nil {
			delete(members, name)
		}
	}
	return indented(members)
}

func indented(value any) (string, error) {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(value)
	return strings.TrimSpace(b.String()), err
}

// savedAnswers are the documented examples of the answers, by status and name.
func savedAnswers(op *openapi3.Operation) ([]saved, error) {
	all := []saved{}
	answers := op.Responses.Map()
	for _, status := range slices.Sorted(maps.Keys(answers)) {
		code, err := strconv.Atoi(status)
		if err != nil {
			return nil, err
		}
		examples := answers[status].Value.Content["application/json"].Examples
		for _, name := range slices.Sorted(maps.Keys(examples)) {
			text, err := indented(examples[name].Value.Value)
			if err != nil {
				return nil, err
			}
			all = append(all, saved{Name: status + " " + name, Status: http.StatusText(code), Code: code, Language: "json",
				Header: []pair{{Key: "Content-Type", Value: "application/json"}}, Body: text})
		}
	}
	return all, nil
}
