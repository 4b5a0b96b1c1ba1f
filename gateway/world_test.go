package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ops"
	"vendorapi/internal/stack"
)

const adminKey = "an-admin-key-of-some-length"

// Places: kadikoy and besiktas lie in istanbul, the test fleet's area; ankara
// and sofia do not.
var (
	kadikoy  = delivery.Point{Latitude: 40.9871, Longitude: 29.0276}
	besiktas = delivery.Point{Latitude: 41.0428, Longitude: 29.0075}
	ankara   = delivery.Point{Latitude: 39.9208, Longitude: 32.8541}
)

const (
	istanbul   = `{"type":"Polygon","coordinates":[[[28.5,40.8],[29.5,40.8],[29.5,41.3],[28.5,41.3],[28.5,40.8]]]}`
	ankaraArea = `{"type":"Polygon","coordinates":[[[32.5,39.7],[33.2,39.7],[33.2,40.1],[32.5,40.1],[32.5,39.7]]]}`
)

// world is a gateway with its own Redis, reached over HTTP like any other.
type world struct {
	testing.TB
	g       *gateway
	redis   *stack.Redis
	vendor  string // base URL of the Vendor API
	private string
	logs    *lockedBuffer
	stop    func() // shuts the gateway down and waits
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func key32(c byte) []byte { return bytes.Repeat([]byte{c}, config.KeySize) }

func testSecrets() secrets {
	return secrets{
		TokenKeys:    config.Keyring{Current: "t1", Keys: map[string][]byte{"t1": key32('t')}},
		TrackingKeys: delivery.TrackingKeys{Current: "k1", Keys: map[string][]byte{"k1": key32('k')}},
		WebhookKeys:  config.Keyring{Current: "w1", Keys: map[string][]byte{"w1": key32('w')}},
		AdminKey:     adminKey,
	}
}

// testSettings are the shipped ones on free ports, in the sandbox.
func testSettings(t testing.TB) settings {
	t.Helper()
	t.Setenv("GATEWAY_ADDR", "127.0.0.1:0")
	t.Setenv("OPS_ADDR", "127.0.0.1:0")
	t.Setenv("ENVIRONMENT", "sandbox")
	var s settings
	if err := config.Load("../configs/gateway.yaml", &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func startRedis(t testing.TB) *stack.Redis {
	t.Helper()
	redis, err := stack.StartRedis(t.Context(), stack.RedisOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Stop)
	return redis
}

// newWorld starts Redis and a gateway that is ready; change may alter the
// settings before.
func newWorld(t testing.TB, change ...func(*settings)) *world {
	t.Helper()
	s := testSettings(t)
	redis := startRedis(t)
	s.Redis.URL = redis.URL
	for _, c := range change {
		c(&s)
	}
	w := startGateway(t, s, testSecrets())
	w.redis = redis
	w.awaitReady()
	return w
}

// startGateway starts a gateway; it need not become ready. change may alter it
// before it serves.
func startGateway(t testing.TB, s settings, keys secrets, change ...func(*gateway)) *world {
	t.Helper()
	w := &world{TB: t, logs: new(lockedBuffer)}
	log := slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	work, abandon := context.WithCancel(context.Background())
	g, err := newGateway(work, s, keys, log, ops.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(g)
	}
	fronts, err := g.listen()
	if err != nil {
		t.Fatal(err)
	}
	watch(t, g, fronts)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := g.keep(ctx); err != nil {
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
	w.stop = sync.OnceFunc(func() {
		cancel()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := g.shutDown(fronts); err != nil {
			t.Error(err)
		}
		running.Wait()
		abandon()
		if err := g.close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	w.g = g
	w.vendor = "http://" + fronts[0].listener.Addr().String()
	w.private = "http://" + fronts[1].listener.Addr().String()
	return w
}

// await tries until the condition holds; the test fails when it does not within
// ten seconds.
func (w *world) await(what string, holds func() bool) {
	w.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("%s: not within ten seconds\n%s", what, w.logs)
		}
	}
}

func (w *world) awaitReady() {
	w.Helper()
	w.await("ready", func() bool { return w.get(w.private+"/readyz", "").status == 200 })
}

// answer is what came back.
type answer struct {
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

func (w *world) send(r request) answer {
	w.Helper()
	a, err := w.try(r)
	if err != nil {
		w.Fatalf("%s %s: %v\n%s", r.method, r.url, err, w.logs)
	}
	return a
}

func (w *world) try(r request) (answer, error) {
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
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(resp, raw), nil
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

func (w *world) get(url, token string) answer {
	w.Helper()
	return w.send(request{method: "GET", url: url, token: token})
}

// admin calls the admin API and expects 200.
func (w *world) admin(method, path, body string) answer {
	w.Helper()
	a := w.send(request{method: method, url: w.private + "/api/admin/v1" + path, token: adminKey, body: body})
	if a.status != 200 {
		w.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	return a
}

// party is an account or a fleet with a token.
type party struct{ id, clientID, secret, token string }

func (w *world) login(api, clientID, secret string) answer {
	w.Helper()
	url := w.vendor
	if api == "fleet" {
		url = w.private
	}
	return w.send(request{method: "POST", url: url + "/api/" + api + "/v1/token",
		body: fmt.Sprintf(`{"clientId":%q,"clientSecret":%q}`, clientID, secret)})
}

func (w *world) newParty(api, path, idField, body string) party {
	w.Helper()
	d := w.admin("POST", path, body).data
	p := party{id: d[idField].(string), clientID: d["clientId"].(string), secret: d["clientSecret"].(string)}
	a := w.login(api, p.clientID, p.secret)
	if a.status != 200 {
		w.Fatalf("token: %d %s", a.status, a.body)
	}
	p.token = a.data["accessToken"].(string)
	return p
}

func (w *world) newAccount(limits string) party {
	w.Helper()
	body := `{"name":"Vendor"}`
	if limits != "" {
		body = `{"name":"Vendor","limits":` + limits + `}`
	}
	return w.newParty("vendor", "/accounts", "accountId", body)
}

func (w *world) newFleet(name, coverage string) party {
	w.Helper()
	return w.newParty("fleet", "/fleets", "fleetId",
		fmt.Sprintf(`{"name":%q,"avgDeliveryMinutes":25,"subRegion":"%s region","coverage":%s}`, name, name, coverage))
}
