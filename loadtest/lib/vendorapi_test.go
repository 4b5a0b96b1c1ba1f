//go:build long

package lib_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The endpoints of the Vendor API, named as the library names them.
const (
	postToken  = "POST /token"
	putStore   = "PUT /stores/{id}"
	postOrder  = "POST /orders"
	postCancel = "POST /orders/{id}/cancel"
	getOrder   = "GET /orders/{id}"
)

// The endpoints of the fleet API.
const (
	fleetToken   = "fleet POST /token"
	fleetStores  = "fleet GET /stores"
	fleetConfirm = "fleet POST /stores/{id}/confirm"
	fleetJobs    = "fleet GET /jobs"
)

// request is a request that the Vendor API has received.
type request struct {
	endpoint string
	path     string
	body     string
	header   http.Header
}

// A reply answers a request in place of the service.
type reply func(w http.ResponseWriter, r *http.Request)

// handler answers every request so.
func (r reply) handler() http.Handler { return http.HandlerFunc(r) }

// vendorAPI plays the service. It answers as the contract says, unless the test asks it to misbehave.
type vendorAPI struct {
	*httptest.Server

	mu       sync.Mutex
	received []request

	// What is answered in place of what the contract says, by endpoint: each of once to one request, in
	// order, and then always.
	once   map[string][]reply
	always map[string]reply

	// What the service knows.
	orders      map[string]string // the bodies of the first answers, by idempotency key
	fleets      []string          // that are offered to each store
	fleet       string            // that each store has; empty until it is chosen
	isAwaiting  bool              // whether stores wait until their fleet confirms them
	tokensGiven int
	lifetime    int    // of a token, in seconds
	expired     string // the token that is refused as expired; empty for none
}

// newVendorAPI starts a service whose stores are Active and have the fleet "fleet-1".
func newVendorAPI(t *testing.T) *vendorAPI {
	t.Helper()
	api := &vendorAPI{
		once:     make(map[string][]reply),
		always:   make(map[string]reply),
		orders:   make(map[string]string),
		fleets:   []string{"fleet-1"},
		fleet:    "fleet-1",
		lifetime: 3600,
	}

	api.Server = httptest.NewUnstartedServer(http.HandlerFunc(api.serve))
	api.Config.ErrorLog = nil
	api.Start()

	t.Cleanup(api.Close)

	return api
}

// settings are those of a script that plays one account of the service.
func (a *vendorAPI) settings(more settings) settings {
	env := settings{
		"BASE_URL":      a.URL,
		"CLIENT_ID":     recognisableClientID,
		"CLIENT_SECRET": recognisableSecret,
	}
	maps.Copy(env, more)
	return env
}

// offer makes the service offer these fleets to stores, which have none yet.
func (a *vendorAPI) offer(fleets ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fleets = fleets
	a.fleet = ""
}

// awaitConfirmation makes stores wait until their fleet confirms them.
func (a *vendorAPI) awaitConfirmation() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isAwaiting = true
}

// shortenTokens makes tokens end after so many seconds.
func (a *vendorAPI) shortenTokens(lifetime int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lifetime = lifetime
}

// expireFirstToken makes the service refuse the first token that it gives, once stores are registered.
func (a *vendorAPI) expireFirstToken() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expired = tokenNumber(1)
}

// chosenFleet returns the fleet that the stores have.
func (a *vendorAPI) chosenFleet() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fleet
}

// onceReply answers the next requests to an endpoint with these replies, each once; nil stands for
// what the contract says.
func (a *vendorAPI) onceReply(endpoint string, replies ...reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.once[endpoint] = append(a.once[endpoint], replies...)
}

// alwaysReply answers every request to an endpoint so.
func (a *vendorAPI) alwaysReply(endpoint string, r reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.always[endpoint] = r
}

// requests returns the requests to an endpoint so far.
func (a *vendorAPI) requests(endpoint string) []request {
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []request
	for _, r := range a.received {
		if r.endpoint == endpoint {
			found = append(found, r)
		}
	}
	return found
}

func (a *vendorAPI) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	endpoint := endpointOf(r)

	a.mu.Lock()
	a.received = append(a.received, request{endpoint: endpoint, path: r.URL.Path, body: string(body), header: r.Header})
	answer := a.always[endpoint]
	next := a.once[endpoint]
	if len(next) > 0 {
		answer = next[0]
		a.once[endpoint] = next[1:]
	}

	a.mu.Unlock()

	if answer != nil {
		answer(w, r)
		return
	}

	a.answer(w, r, endpoint, string(body))
}

// endpointOf names the endpoint of a request. It accepts any prefix before the API's path.
func endpointOf(r *http.Request) string {
	_, fleetPath, isFleet := strings.Cut(r.URL.Path, "/api/fleet/v1")
	if isFleet {
		return fleetEndpointOf(fleetPath)
	}

	_, path, isAPI := strings.Cut(r.URL.Path, "/api/vendor/v1")
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case !isAPI:
		return "elsewhere"
	case r.Method == http.MethodPost && path == "/token":
		return postToken
	case r.Method == http.MethodPut && len(parts) == 2 && parts[0] == "stores":
		return putStore
	case r.Method == http.MethodPost && path == "/orders":
		return postOrder
	case r.Method == http.MethodPost && len(parts) == 3 && parts[2] == "cancel":
		return postCancel
	case r.Method == http.MethodGet && len(parts) == 2 && parts[0] == "orders":
		return getOrder
	}

	return "unknown"
}

func fleetEndpointOf(path string) string {
	switch {
	case path == "/token":
		return fleetToken
	case path == "/stores":
		return fleetStores
	case strings.HasSuffix(path, "/confirm"):
		return fleetConfirm
	case path == "/jobs":
		return fleetJobs
	}

	return "unknown"
}

// answer is what the contract says.
func (a *vendorAPI) answer(w http.ResponseWriter, r *http.Request, endpoint, body string) {
	isOrder := endpoint == postOrder || endpoint == postCancel || endpoint == getOrder
	if isOrder && a.hasExpired(r.Header.Get("Authorization")) {
		writeJSON(w, http.StatusUnauthorized, map[string]any{"errorCode": "TOKEN_EXPIRED"})
		return
	}

	switch endpoint {
	case postToken:
		limitHeaders(w)
		writeJSON(w, http.StatusOK, a.newToken())
	case putStore:
		limitHeaders(w)
		writeJSON(w, http.StatusOK, a.store(body))
	case postOrder:
		a.createOrder(w, r, body)
	case postCancel:
		limitHeaders(w)
		writeJSON(w, http.StatusOK, map[string]any{"status": "Cancelled"})
	case getOrder:
		limitHeaders(w)
		writeJSON(w, http.StatusOK, map[string]any{"status": "Delivered"})
	case fleetToken:
		writeJSON(w, http.StatusOK, a.newToken())
	case fleetStores:
		writeJSON(w, http.StatusOK, a.storePage(r.URL.Query().Get("cursor")))
	case fleetConfirm:
		a.confirm()
		writeJSON(w, http.StatusOK, map[string]any{"status": "Active"})
	case fleetJobs:
		writeJSON(w, http.StatusOK, jobPage(r.URL.Query().Get("cursor")))
	default:
		refuse(http.StatusNotFound, "NOT_FOUND")(w, r)
	}
}

func (a *vendorAPI) hasExpired(authorization string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.expired != "" && authorization == "Bearer "+a.expired
}

func (a *vendorAPI) newToken() map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokensGiven++
	return map[string]any{"accessToken": tokenNumber(a.tokensGiven), "expiresIn": a.lifetime}
}

// tokenNumber returns the n-th token that the service gives, counted from 1. It is as long as a real one.
func tokenNumber(n int) string {
	return fmt.Sprintf("token-that-nobody-may-see-%d-%s", n, strings.Repeat("eyJhbGciOiJIUzI1NiJ9", 10))
}

func (a *vendorAPI) store(body string) map[string]any {
	var wanted struct {
		FleetID string `json:"fleetId"`
	}
	_ = json.Unmarshal([]byte(body), &wanted) // a body without a fleet chooses none

	a.mu.Lock()
	defer a.mu.Unlock()
	if wanted.FleetID != "" {
		a.fleet = wanted.FleetID
	}

	offered := make([]map[string]string, 0, len(a.fleets))
	for _, id := range a.fleets {
		offered = append(offered, map[string]string{"fleetId": id})
	}

	if a.isAwaiting {
		return map[string]any{"status": "AwaitingFleetApproval", "fleet": map[string]string{"fleetId": a.fleet}}
	}
	if a.fleet == "" {
		return map[string]any{"status": "Draft", "availableFleets": offered}
	}

	return map[string]any{"status": "Active", "availableFleets": offered, "fleet": map[string]string{"fleetId": a.fleet}}
}

// storePage is a page of the stores that wait for the fleet: the first one names another store.
func (a *vendorAPI) storePage(cursor string) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.isAwaiting {
		return map[string]any{"stores": []any{}}
	}
	if cursor == "" {
		return map[string]any{"cursor": "next", "stores": []any{map[string]string{"accountId": "acc-2", "externalStoreId": "other"}}}
	}
	return map[string]any{"stores": []any{map[string]string{"accountId": "acc-1", "externalStoreId": "loadtest-1"}}}
}

func (a *vendorAPI) confirm() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.isAwaiting = false
}

// jobPage is one of two pages of jobs.
func jobPage(cursor string) map[string]any {
	if cursor == "" {
		return map[string]any{"cursor": "next page", "jobs": []any{map[string]string{"orderId": "1"}, map[string]string{"orderId": "2"}}}
	}
	return map[string]any{"jobs": []any{map[string]string{"orderId": "3"}}}
}

// createOrder creates an order, or replays the first answer to its key.
func (a *vendorAPI) createOrder(w http.ResponseWriter, r *http.Request, body string) {
	text, isReplay := a.keepOrder(r.Header.Get("X-Idempotency-Key"), body)
	limitHeaders(w)
	if isReplay {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, text)
}

// keepOrder returns the answer to the order with this key, and whether it was there before.
func (a *vendorAPI) keepOrder(key, body string) (answer string, isReplay bool) {
	var order struct {
		ExternalOrderID string `json:"externalOrderId"`
	}
	_ = json.Unmarshal([]byte(body), &order) // the tests' orders are right

	a.mu.Lock()
	defer a.mu.Unlock()
	answer, isReplay = a.orders[key]
	if !isReplay {
		answer = fmt.Sprintf(`{"success":true,"data":{"orderId":"order-%d","status":"Searching","externalOrderId":%q}}`, len(a.orders)+1, order.ExternalOrderID)
		a.orders[key] = answer
	}

	return answer, isReplay
}

// keepFirstOrder creates the order that has been asked for first.
func (a *vendorAPI) keepFirstOrder() {
	first := a.requests(postOrder)[0]
	a.keepOrder(first.header.Get("X-Idempotency-Key"), first.body)
}

// lostAfterCreation creates the order and cuts the connection before the answer.
func (a *vendorAPI) lostAfterCreation(w http.ResponseWriter, r *http.Request) {
	a.keepFirstOrder()
	cut(w, r)
}

// refuseConnections closes the listener and every connection for a while, then listens on the same
// address again. The request that is being served gets no answer.
func (a *vendorAPI) refuseConnections(t *testing.T, duration time.Duration) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		address := a.Listener.Addr().String()
		if err := a.Listener.Close(); err != nil {
			t.Errorf("close the listener: %v", err)
		}

		time.AfterFunc(duration, func() {
			listener, err := net.Listen("tcp", address)
			if err != nil {
				t.Errorf("listen again: %v", err)
				return
			}

			second := &http.Server{Handler: http.HandlerFunc(a.serve), ReadHeaderTimeout: time.Minute}
			t.Cleanup(func() { _ = second.Close() })
			_ = second.Serve(listener)
		})

		a.CloseClientConnections()
		cut(w, r)
	}
}

func limitHeaders(w http.ResponseWriter) {
	w.Header().Set("X-RateLimit-Limit", "120")
	w.Header().Set("X-RateLimit-Remaining", "100")
	w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+10, 10))
}

func writeJSON(w http.ResponseWriter, status int, data any) {
	text, err := json.Marshal(map[string]any{"success": status < 300, "message": "said by the test", "data": data})
	if err != nil {
		panic(err) // the test's own values
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// cut begins an answer and closes the connection. Without that beginning k6 would send the request a
// second time by itself, see cutInSilence.
func cut(w http.ResponseWriter, _ *http.Request) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err) // HTTP/1.1 can be hijacked
	}
	_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\nDate: ")
	_ = connection.Close()
}

// cutInSilence closes the connection without a byte of an answer. When the connection had been used
// before, k6 sends the request again at once and counts it as the same.
func cutInSilence(http.ResponseWriter, *http.Request) {
	panic(http.ErrAbortHandler)
}

// stall gives no answer for as long as the client waits.
func stall(_ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
}

// cutBody sends a status and half of an answer, and closes the connection.
func cutBody(status int) reply {
	return func(w http.ResponseWriter, _ *http.Request) {
		limitHeaders(w)
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"success":true,"data":{"orderId":"half`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// text answers with a status and a body of any kind, and right limit headers.
func text(status int, body string) reply {
	return func(w http.ResponseWriter, _ *http.Request) {
		limitHeaders(w)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// badGateway is what a balancer answers in place of the service.
func badGateway(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusBadGateway)
	_, _ = io.WriteString(w, "<html><body>Bad Gateway</body></html>")
}

// busy sheds load, as the contract allows.
func busy(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "1")
	writeJSON(w, http.StatusServiceUnavailable, map[string]any{"errorCode": "SERVICE_UNAVAILABLE"})
}

// limited refuses a request for so many seconds, once in the header and once in the body.
func limited(header, body int) reply {
	return func(w http.ResponseWriter, _ *http.Request) {
		limitHeaders(w)
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("Retry-After", strconv.Itoa(header))
		writeJSON(w, http.StatusTooManyRequests, map[string]any{"errorCode": "RATE_LIMITED", "retryAfterSeconds": body})
	}
}

// refuse answers with an error of the contract, and right limit headers.
func refuse(status int, code string) reply {
	return func(w http.ResponseWriter, _ *http.Request) {
		limitHeaders(w)
		writeJSON(w, status, map[string]any{"errorCode": code})
	}
}

// withHeader changes a header of the answer that the contract asks for.
func (a *vendorAPI) withHeader(name, value string) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		a.answer(headerChanger{ResponseWriter: w, name: name, value: value}, r, endpointOf(r), "{}")
	}
}

// headerChanger sets or, with an empty value, removes a header before the answer begins.
type headerChanger struct {
	http.ResponseWriter
	name  string
	value string
}

func (h headerChanger) WriteHeader(status int) {
	if h.value == "" {
		h.Header().Del(h.name)
	} else {
		h.Header().Set(h.name, h.value)
	}
	h.ResponseWriter.WriteHeader(status)
}
