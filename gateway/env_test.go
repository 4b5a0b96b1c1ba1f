package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

const adminKey = "an-admin-key-of-some-length"

// Places: kadikoy and besiktas are in istanbul, the test fleet's area; ankara is not.
var (
	kadikoy  = delivery.Point{Latitude: 40.9871, Longitude: 29.0276}
	besiktas = delivery.Point{Latitude: 41.0428, Longitude: 29.0075}
	ankara   = delivery.Point{Latitude: 39.9208, Longitude: 32.8541}
)

const (
	istanbul   = `{"type":"Polygon","coordinates":[[[28.5,40.8],[29.5,40.8],[29.5,41.3],[28.5,41.3],[28.5,40.8]]]}`
	ankaraArea = `{"type":"Polygon","coordinates":[[[32.5,39.7],[33.2,39.7],[33.2,40.1],[32.5,40.1],[32.5,39.7]]]}`
)

// env is a gateway that is reached over HTTP like any other.
type env struct {
	testing.TB
	g       *gateway
	vendor  string // base URL of the Vendor API
	private string
	fleets  string // the fleets' own listener, where the settings open one; else private
	logs    *logBuffer
	stop    func()         // shuts the gateway down and waits
	ledger  *ledger.Ledger // opened as the operator, for what a worker does and a test looks at

	client  *http.Client
	redis   redisServer
	clock   *testClock     // nil: the system's
	quiet   bool           // see newQuietEnv
	worker  *testenv.Owner // nil: nobody decides or sends
	feeds   context.Context
	feeding sync.WaitGroup
	secrets secrets

	account, courier party // of newStoreEnv
}

// redisServer is a testserver.Redis or a stack.Redis.
type redisServer interface{ URLFor(user string) string }

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func key32(c byte) []byte { return bytes.Repeat([]byte{c}, config.KeySize) }

// onlyBy is a ring of one key.
func onlyBy(kid string, c byte) config.Keyring {
	return config.Keyring{Current: kid, Keys: map[string][]byte{kid: key32(c)}}
}

func testSecrets() secrets {
	return secrets{TokenKeys: onlyBy("t1", 't'), TrackingKeys: delivery.TrackingKeys(onlyBy("k1", 'k')), WebhookKeys: onlyBy("w1", 'w'), AdminKey: adminKey}
}

// testSettings are the shipped ones on free ports, in the sandbox.
func testSettings(t testing.TB) settings {
	t.Helper()
	var s settings
	if err := config.Load("../configs/gateway.yaml", &s); err != nil {
		t.Fatal(err)
	}
	s.VendorAPI.Addr, s.PrivateAPI.Addr, s.Environment = "127.0.0.1:0", "127.0.0.1:0", delivery.Sandbox
	return s
}

// newEnv starts a gateway on an empty database of the shared Redis, with the
// gateway's own rights, and lets the test run beside others.
func newEnv(t testing.TB, change ...func(*settings)) *env {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	return newEnvOn(t, testserver.NewRedis(t), nil, change...)
}

// newEnvOn is newEnv on a given Redis, and with a clock unless that is nil. The
// gateway need not become ready when the server is down.
func newEnvOn(t testing.TB, redis redisServer, clock *testClock, change ...func(*settings)) *env {
	t.Helper()
	s := testSettings(t)
	s.Redis.URL = redis.URLFor(stack.GatewayUser)
	for _, c := range change {
		c(&s)
	}

	e := startGateway(t, s, testSecrets(), func(e *env) { e.redis, e.clock = redis, clock })
	e.awaitReady()
	e.openLedger()

	return e
}

// newQuietEnv is newEnvOn with a gateway that asks Redis for nothing but what requests need, so that tests can
// count what one costs: it polls for no changes, and the clock by which it remembers what it has read stands still, so
// that it takes Redis's clock for one that runs ahead.
func newQuietEnv(t testing.TB, redis redisServer) *env {
	t.Helper()
	s := testSettings(t)
	s.Redis.URL = redis.URLFor(stack.GatewayUser)
	e := startGateway(t, s, testSecrets(), func(e *env) { e.redis, e.quiet = redis, true })
	e.awaitReady()
	e.openLedger()

	return e
}

// newStoreEnv is newEnv with an account that has an Active store "s1" at a fleet
// that serves Istanbul.
func newStoreEnv(t testing.TB, limits string, change ...func(*settings)) *env {
	t.Helper()
	return newEnv(t, change...).withStore(limits)
}

func (e *env) withStore(limits string) *env {
	e.Helper()
	e.account, e.courier = e.newAccount(limits), e.newFleet("Kurye", istanbul)
	e.activeStore(e.account, e.courier, "s1")
	return e
}

// as is the environment with another account, for another test.
func (e *env) as(t testing.TB, account party) *env {
	return &env{TB: t, g: e.g, vendor: e.vendor, private: e.private, logs: e.logs, ledger: e.ledger, client: e.client, account: account, courier: e.courier}
}

// twin is another gateway over the same Redis.
func (e *env) twin(keys secrets) *env {
	e.Helper()
	other := startGateway(e.TB, e.g.settings, keys, func(o *env) { o.redis, o.clock = e.redis, e.clock })
	other.awaitReady()
	other.ledger, other.account, other.courier = e.ledger, e.account, e.courier
	return other
}

// newEnvWithoutRedis is a gateway for tests that ask nothing of Redis.
func newEnvWithoutRedis(t *testing.T, change ...func(*settings)) *env {
	t.Helper()
	t.Parallel()

	s := testSettings(t)
	s.Redis.URL = "redis://127.0.0.1:1" // nobody listens there
	for _, c := range change {
		c(&s)
	}
	return startGateway(t, s, testSecrets())
}

// startGateway starts a gateway; it need not become ready. change may alter it
// before it serves.
func startGateway(t testing.TB, s settings, keys secrets, change ...func(*env)) *env {
	t.Helper()
	work, abandon := context.WithCancel(context.Background())
	e := &env{TB: t, logs: new(logBuffer), client: &http.Client{Transport: &http.Transport{}}, secrets: keys}
	log := slog.New(slog.NewTextHandler(e.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	e.g, err = newGateway(work, s, keys, log)
	if err != nil {
		t.Fatal(err)
	}

	e.g.accounts.wait, e.g.lastFlush, e.g.lingerTime = testserver.Timeout, testserver.Timeout, testserver.Timeout
	for _, c := range change {
		c(e)
	}

	fronts, err := e.g.listen()
	if err != nil {
		t.Fatal(err)
	}

	checkAnswers(t, e.g, fronts)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.keep(ctx); err != nil {
			t.Error(err)
		}
	})

	for _, f := range fronts {
		running.Go(func() {
			if err := f.serve(); err != nil {
				t.Error(err)
			}
		})
	}

	e.stop = sync.OnceFunc(func() {
		cancel()
		e.client.CloseIdleConnections()
		if err := e.g.shutDown(fronts); err != nil {
			t.Error(err)
		}

		running.Wait()
		abandon()
		e.g.close()
	})

	t.Cleanup(e.stop)
	e.vendor = "http://" + fronts[0].listener.Addr().String()
	e.private = "http://" + fronts[len(fronts)-1].listener.Addr().String()
	e.fleets = "http://" + fronts[1].listener.Addr().String()

	return e
}

// keep does what the gateway's own does, unless the environment is quiet.
func (e *env) keep(ctx context.Context) error {
	if !e.quiet {
		return e.g.keep(ctx, e.config())
	}

	_, err := e.g.connect(ctx, e.config())
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// config is the gateway's own, with the environment's clock if it has one. An environment without
// redis has the gateway's real timeouts.
func (e *env) config() ledger.Config {
	c := e.g.settings.ledgerConfig(e.secrets, e.g.Log)
	if e.redis != nil {
		c.Timeout = testserver.Timeout
	}

	if e.clock != nil {
		c.Now, c.ClockKey = e.clock.process, clockKey
	}

	if e.quiet {
		now := time.Now()
		c.Now = func() time.Time { return now }
	}

	return c
}

func (e *env) openLedger() {
	e.Helper()
	c := e.config()
	c.URL = e.redis.URLFor(stack.OperatorUser)
	var err error
	e.ledger, err = ledger.Open(e.Context(), c)
	if err != nil {
		e.Fatal(err)
	}

	var cancel context.CancelFunc
	e.feeds, cancel = context.WithCancel(context.Background())
	e.Cleanup(func() {
		cancel()
		_ = e.ledger.Close() // which ends the reads that the feeds wait in
		e.feeding.Wait()
	})
}

// clockKey begins as the sandbox's keys do, so that the gateway may read it.
const clockKey = "{sclock}"

// testClock is the time of the ledger's windows; it stands still until it is moved.
// Requests are stamped with the system's clock all the same.
type testClock struct {
	redis *testserver.Redis
	// process is the gateway's own clock as its ledger sees it: the same one, or another.
	process func() time.Time

	mu sync.Mutex
	at time.Time
}

// newClockEnv is newEnv with a clock that begins at the present.
func newClockEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	c := &testClock{redis: testserver.NewRedis(t), at: time.Now()}
	c.process = c.now
	c.pass(t, 0)

	return newEnvOn(t, c.redis, c)
}

// newWrongEnv is newEnv with a gateway whose clock is ahead of Redis's.
func newWrongEnv(t *testing.T, ahead time.Duration) *env {
	t.Helper()
	t.Parallel()
	c := &testClock{redis: testserver.NewRedis(t), process: time.Now, at: time.Now().Add(-ahead)}
	c.pass(t, 0)
	return newEnvOn(t, c.redis, c)
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// pass moves the clock ahead.
func (c *testClock) pass(t testing.TB, d time.Duration) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
	c.redis.Do(t, "SET", clockKey, c.at.UnixMicro())
}

func (e *env) await(what string, holds func() bool) {
	e.Helper()
	testserver.Await(e, what, holds)
}

func (e *env) awaitReady() {
	e.Helper()
	e.await("ready", func() bool {
		a, err := e.try(request{method: "GET", url: e.private + "/readyz"})
		return err == nil && a.status == 200
	})
}

// answer is what came back.
type answer struct {
	asked  string // the request, for messages
	status int
	header http.Header
	body   string
	data   map[string]any
	// code is data.errorCode, message the envelope's.
	code, message string
	// closed: the response announced the end of the connection.
	closed bool
}

// request describes a request; the zero parts are left out.
type request struct {
	method, url, token, body string
	header                   map[string]string
}

func (e *env) send(r request) answer {
	e.Helper()
	a, err := e.try(r)
	if err != nil {
		e.Fatalf("%s %s: %v\n%s", r.method, r.url, err, e.logs)
	}
	return a
}

func (e *env) try(r request) (answer, error) {
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}

	req, err := http.NewRequest(r.method, r.url, body)
	if err != nil {
		return answer{}, err
	}

	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}

	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}

	for name, value := range r.header {
		req.Header.Set(name, value)
	}

	resp, err := e.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()

	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}

	a := readAnswer(resp, raw)
	a.asked = fmt.Sprintf("%s %s %.100s", r.method, r.url, r.body)

	return a, nil
}

// readAnswer parses the envelope; whatever is none has no code and no data.
func readAnswer(resp *http.Response, raw []byte) answer {
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(raw), closed: resp.Close}
	var envelope struct {
		Success *bool          `json:"success"`
		Message string         `json:"message"`
		Data    map[string]any `json:"data"`
	}

	if json.Unmarshal(raw, &envelope) == nil && envelope.Success != nil {
		a.data, a.message = envelope.Data, envelope.Message
		a.code, _ = envelope.Data["errorCode"].(string)
		if *envelope.Success != (a.status < 300) {
			a.code = "success contradicts the status"
		}
	}

	return a
}

// absent stands for a member that is not there.
var absent any = struct{ absent bool }{true}

// want fails the test unless the answer has the status, the error code ("": a
// success), and members of data, given as names and values.
func want(t testing.TB, a answer, status int, code string, members ...any) answer {
	t.Helper()
	if a.status != status || a.code != code || code != "" && a.message == "" {
		t.Errorf("%s: got %d %.400s, want %d %s", a.asked, a.status, a.body, status, code)
	}
	wantMembers(t, a.asked, a.data, members...)
	return a
}

func wantMembers(t testing.TB, what string, object map[string]any, members ...any) {
	t.Helper()
	for i := 0; i+1 < len(members); i += 2 {
		got, there := object[members[i].(string)]
		var value any
		if raw, err := json.Marshal(members[i+1]); err != nil || json.Unmarshal(raw, &value) != nil {
			t.Fatalf("%v is no JSON", members[i+1])
		}
		if isAbsent := members[i+1] == absent; isAbsent == there || there && !reflect.DeepEqual(got, value) {
			t.Errorf("%s: %s is %v, want %v, in %v", what, members[i], got, members[i+1], object)
		}
	}
}

// wantField is want for a refusal that names a field first.
func wantField(t testing.TB, a answer, status int, code, field string) {
	t.Helper()
	want(t, a, status, code)
	if a.firstField() != field {
		t.Errorf("%s: names %q, want %q, in %.400s", a.asked, a.firstField(), field, a.body)
	}
}

// firstField is the first field of a VALIDATION_FAILED.
func (a answer) firstField() string {
	fields, ok := a.data["fields"].([]any)
	if !ok || len(fields) == 0 {
		return ""
	}
	return fields[0].(map[string]any)["field"].(string)
}

func (a answer) quota() bool {
	return a.header.Get("X-RateLimit-Limit") != "" && a.header.Get("X-RateLimit-Remaining") != "" && a.header.Get("X-RateLimit-Reset") != "" &&
		strings.Contains(a.header.Get("RateLimit-Policy"), ";q="+a.header.Get("X-RateLimit-Limit")) &&
		strings.Contains(a.header.Get("RateLimit"), ";r="+a.header.Get("X-RateLimit-Remaining")+";t=")
}

// everyLimit is so wide that nothing is refused for being too much.
func everyLimit() string {
	const wide = `{"sustained":{"count":100000,"seconds":1},"burst":{"count":100000,"seconds":1}}`
	return `{"orders":` + wide + `,"orderStatus":` + wide + `,"cancel":` + wide + `,"stores":` + wide + `,"token":` + wide + `}`
}

// list is a member of data that is an array of objects.
func (a answer) list(name string) (all []map[string]any) {
	members, _ := a.data[name].([]any)
	for _, m := range members {
		all = append(all, m.(map[string]any))
	}
	return all
}

func headerInt(a answer, name string) int {
	n, err := strconv.Atoi(a.header.Get(name))
	if err != nil {
		return -1
	}
	return n
}

func (e *env) get(url, token string) answer {
	e.Helper()
	return e.send(request{method: "GET", url: url, token: token})
}

// admin calls the admin API and expects 200; tryAdmin lets the caller decide.
func (e *env) admin(method, path, body string) answer {
	e.Helper()
	a := e.tryAdmin(method, path, body)
	if a.status != 200 {
		e.Fatalf("%s: %d %s", a.asked, a.status, a.body)
	}
	return a
}

func (e *env) tryAdmin(method, path, body string) answer {
	e.Helper()
	return e.send(request{method: method, url: e.private + "/api/admin/v1" + path, token: adminKey, body: body})
}

// fleet calls the fleet API.
func (e *env) fleet(p party, method, path, body string) answer {
	e.Helper()
	return e.send(request{method: method, url: e.private + "/api/fleet/v1" + path, token: p.token, body: body})
}

// call calls the Vendor API as the environment's account.
func (e *env) call(method, path, body string) answer {
	e.Helper()
	return e.send(request{method: method, url: e.vendor + "/api/vendor/v1" + path, token: e.account.token, body: body})
}

// party is an account or a fleet with a token.
type party struct{ id, clientID, secret, token string }

func (e *env) login(api, clientID, secret string) answer {
	e.Helper()
	url := e.vendor
	if api == "fleet" {
		url = e.private
	}
	return e.send(request{method: "POST", url: url + "/api/" + api + "/v1/token",
		body: fmt.Sprintf(`{"clientId":%q,"clientSecret":%q}`, clientID, secret)})
}

func (e *env) newParty(api, path, idField, body string) party {
	e.Helper()
	made := e.admin("POST", path, body)
	p := party{id: e.text(made, idField), clientID: e.text(made, "clientId"), secret: e.text(made, "clientSecret")}
	a := e.login(api, p.clientID, p.secret)
	if a.status != 200 {
		e.Fatalf("token: %d %s", a.status, a.body)
	}

	p.token = e.text(a, "accessToken")
	return p
}

// only returns the member of a list in an answer's data, which must have one.
func (e *env) only(a answer, name string) map[string]any {
	e.Helper()
	members := a.list(name)
	if len(members) != 1 {
		e.Fatalf("%s: %d %s in %d %s", a.asked, len(members), name, a.status, a.body)
	}
	return members[0]
}

// text returns a text of an answer's data, which must have it.
func (e *env) text(a answer, member string) string {
	e.Helper()
	text, isText := a.data[member].(string)
	if !isText {
		e.Fatalf("%s: no %s in %d %s", a.asked, member, a.status, a.body)
	}
	return text
}

func (e *env) newAccount(limits string) party {
	e.Helper()
	body := `{"name":"Vendor"}`
	if limits != "" {
		body = `{"name":"Vendor","limits":` + limits + `}`
	}
	return e.newParty("vendor", "/accounts", "accountId", body)
}

func (e *env) newFleet(name, coverage string) party {
	e.Helper()
	return e.newParty("fleet", "/fleets", "fleetId",
		fmt.Sprintf(`{"name":%q,"avgDeliveryMinutes":25,"subRegion":"%s region","coverage":%s}`, name, name, coverage))
}

func (p party) accountID() delivery.AccountID {
	id, err := delivery.ParseAccountID(p.id)
	if err != nil {
		panic(err)
	}
	return id
}

// freshAccount is a further account with an Active store s1.
func (e *env) freshAccount() party {
	e.Helper()
	account := e.newAccount("")
	e.activeStore(account, e.courier, "s1")
	return account
}

func storeBody(p delivery.Point, fleetID string) string {
	body := fmt.Sprintf(`{"taxNumber":"1234567890","name":"Branch","phone":"02161234567","address":{"text":"Moda Cad. 1","latitude":%v,"longitude":%v}`,
		p.Latitude, p.Longitude)
	if fleetID != "" {
		body += `,"fleetId":"` + fleetID + `"`
	}
	return body + "}"
}

func (e *env) putStore(account party, id, body string) answer {
	e.Helper()
	return e.send(request{method: "PUT", url: e.vendor + "/api/vendor/v1/stores/" + id, token: account.token, body: body})
}

// activeStore registers a store in Kadikoy with the fleet and has it confirmed.
func (e *env) activeStore(account, fleet party, id string) {
	e.Helper()
	want(e, e.putStore(account, id, storeBody(kadikoy, fleet.id)), 200, "", "status", "AwaitingFleetApproval")
	want(e, e.fleet(fleet, "POST", "/stores/"+account.id+"/"+id+"/confirm", ""), 200, "", "status", "Active")
}

// orderBody is a valid order; the changes replace or add members by path, with
// values as JSON; "-" removes one.
func orderBody(externalID string, changes ...string) string {
	order := map[string]any{
		"externalStoreId": "s1", "externalOrderId": externalID,
		"recipient": map[string]any{"name": "Ayşe Yılmaz", "phone": "05321234567"},
		"dropoff": map[string]any{"text": "Caferağa Mah. Moda Cad. No:12", "latitude": kadikoy.Latitude,
			"longitude": kadikoy.Longitude},
		"orderAmount": json.Number("349.90"),
		"payment":     map[string]any{"type": "Card", "collectionAmount": json.Number("349.90")},
	}

	for i := 0; i+1 < len(changes); i += 2 {
		into, path := order, changes[i]
		if parent, child, nested := strings.Cut(path, "."); nested {
			into, path = order[parent].(map[string]any), child
		}

		if changes[i+1] == "-" {
			delete(into, path)
			continue
		}

		into[path] = json.RawMessage(changes[i+1])
	}

	body, err := json.Marshal(order)
	if err != nil {
		panic(err)
	}

	return string(body)
}

func (e *env) order(body, key string) answer {
	e.Helper()
	r := request{method: "POST", url: e.vendor + "/api/vendor/v1/orders", token: e.account.token, body: body}
	if key != "" {
		r.header = map[string]string{"X-Idempotency-Key": key}
	}
	return e.send(r)
}

// created creates an order and returns its id.
func (e *env) created(externalID string, changes ...string) string {
	e.Helper()
	a := e.order(orderBody(externalID, changes...), "")
	if a.status != 201 {
		e.Fatalf("POST /orders: %d %s", a.status, a.body)
	}
	return e.text(a, "orderId")
}

func (e *env) cancel(orderID, body string) answer {
	e.Helper()
	return e.call("POST", "/orders/"+orderID+"/cancel", body)
}

// stored is the order as the ledger has it.
func (e *env) stored(orderID string) *delivery.Order {
	e.Helper()
	id, err := delivery.ParseOrderID(orderID)
	if err != nil {
		e.Fatal(err)
	}
	order, err := e.ledger.Orders.Get(e.Context(), id)
	if err != nil {
		e.Fatal(err)
	}

	return order
}

// storedStore is the account's store as the ledger has it.
func (e *env) storedStore(account party, id string) *delivery.Store {
	e.Helper()
	store, err := e.ledger.Stores.Get(e.Context(), account.accountID(), id)
	if err != nil {
		e.Fatal(err)
	}
	return store
}
