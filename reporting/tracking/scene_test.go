package tracking

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
)

// One redis-server serves the tests, each in a database of its own.
var (
	redis    *stack.Redis
	database atomic.Int32
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tracking-test-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	redis, err = stack.StartRedis(context.Background(), stack.RedisOptions{Dir: dir, Extra: []string{"--databases", "256", "--appendfsync", "no"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer redis.Stop()
	return m.Run()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// began is when the scenes' orders are created: 14:00 local time.
var began = time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)

var keys = delivery.TrackingKeys{Current: "t1", Keys: map[string][]byte{"t1": []byte("one key of thirty-two bytes, yes")}}

// scene is a fleet, a vendor with a store, and the tracking pages.
type scene struct {
	testing.TB
	ledger   *ledger.Ledger
	pages    *Pages
	registry *prometheus.Registry
	server   *httptest.Server
	fleet    *delivery.Fleet
	store    *delivery.Store
	courier  delivery.Courier
	clock    atomic.Int64 // milliseconds
	orders   int
}

// The recipient's side of every scene's orders. None of it may be shown.
var private = []string{"Zeynep", "Gizlisoy", "5329998877", "Saklı Sokak", "B-17", "D-42", "9. kat", "zili çalmayın", "baklavayı ters çevirmeyin",
	"1234", "1.234,56", "1234.56", "987.65", "Cash", "ORDER-EXT"}

func newScene(t testing.TB, change ...func(*scene)) *scene {
	t.Helper()
	return newSceneOn(t, fmt.Sprintf("redis://%s/%d", redis.Addr, database.Add(1)%256), change...)
}

func newSceneOn(t testing.TB, url string, change ...func(*scene)) *scene {
	t.Helper()
	ctx := context.Background()
	s := &scene{TB: t, registry: prometheus.NewRegistry(),
		courier: delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5321112233", VehicleType: "Motorcycle"}}
	area, err := delivery.ParseCoverage([]byte(`{"type":"Polygon","coordinates":[[[28,40.5],[30,40.5],[30,41.5],[28,41.5],[28,40.5]]]}`))
	must(t, err)
	s.fleet = &delivery.Fleet{ID: delivery.NewFleetID(), Name: "Hızlı Kurye", SubRegion: "Kadıköy", DeliveryMinutes: 25, PickupMinutes: 10, Couriers: -1, Coverage: area}
	account := &delivery.Account{ID: delivery.NewAccountID(), Name: "Test", CreatedAt: began, Limits: delivery.DefaultLimits()}
	s.store = &delivery.Store{Account: account.ID, ExternalID: "branch-1", State: delivery.Active, TaxNumber: "1234567890", Name: "Moda Şubesi",
		Phone: "2161112233", Address: "Moda Cd. 1", Point: delivery.Point{Latitude: 40.9816, Longitude: 29.0258}, Fleet: s.fleet.ID, UpdatedAt: began}
	for _, c := range change {
		c(s)
	}
	s.store.FleetName = s.fleet.Name
	s.ledger, err = ledger.Open(ctx, ledger.Config{URL: url, Environment: "sandbox", Partitions: 2, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = s.ledger.Close() })
	must(t, s.ledger.CreateFleet(ctx, s.fleet, [32]byte{1}))
	must(t, s.ledger.CreateAccount(ctx, account, [32]byte{2}))
	must(t, s.ledger.WriteStore(ctx, s.store))
	s.pages, err = New(s.ledger, keys, slog.New(slog.DiscardHandler), s.registry)
	must(t, err)
	s.pages.now = func() time.Time { return time.UnixMilli(s.clock.Load()) }
	s.at(0)
	s.server = httptest.NewServer(s.pages.Handler())
	t.Cleanup(s.server.Close)
	return s
}

// at sets the pages' clock to a time after the beginning.
func (s *scene) at(d time.Duration) { s.clock.Store(began.Add(d).UnixMilli()) }

// order creates an order at the beginning, full of what is nobody's business.
func (s *scene) order(change ...func(*delivery.OrderDraft)) *delivery.Order {
	s.Helper()
	s.orders++
	draft := &delivery.OrderDraft{ExternalStoreID: s.store.ExternalID, ExternalOrderID: fmt.Sprintf("ORDER-EXT-%d", s.orders), ReadyAt: began,
		Recipient: delivery.Recipient{Name: "Zeynep Gizlisoy", Phone: "5329998877"},
		Dropoff: delivery.Dropoff{Text: "Saklı Sokak No 7, Kadıköy", Point: delivery.Point{Latitude: 40.98812, Longitude: 29.03047},
			BuildingNo: "B-17", DoorNo: "D-42", Floor: "9. kat", Note: "zili çalmayın"},
		PackageNote: "baklavayı ters çevirmeyin", OrderAmount: delivery.Money{Minor: 123456, Set: true},
		Payment: delivery.Payment{Type: delivery.Cash, CollectionAmount: delivery.Money{Minor: 98765, Set: true}}}
	for _, c := range change {
		c(draft)
	}
	created, _, err := s.ledger.CreateOrder(context.Background(), &ledger.Creation{Account: s.store.Account, IdempotencyKey: draft.ExternalOrderID,
		Body: []byte(draft.ExternalOrderID), Draft: draft, Now: began, Candidates: []ledger.Candidate{{Terms: s.fleet.Terms(), Covers: true}}})
	must(s, err)
	return created.Order
}

// report commits a fleet's update as the status worker would, and sets the
// clock to its time.
func (s *scene) report(o *delivery.Order, after time.Duration, u delivery.Update) {
	s.Helper()
	ctx := context.Background()
	u.Order, u.Fleet, u.At = o.ID, s.fleet.ID, began.Add(after)
	present, err := s.ledger.Order(ctx, o.ID)
	must(s, err)
	decided := delivery.Decide(present, u, u.At)
	if decided.Verdict != delivery.Move {
		s.Fatalf("%+v: %s", u, decided.Verdict)
	}
	results, err := s.ledger.CommitAll(ctx, []ledger.Commit{{Order: present, Changes: decided.Changes}})
	must(s, err)
	must(s, results[0])
	s.at(after)
}

// reach takes the order to a status.
func (s *scene) reach(o *delivery.Order, status delivery.Status, after time.Duration) {
	s.Helper()
	s.report(o, after, delivery.Update{Kind: delivery.KindStatus, Status: status, Courier: s.courier})
}

// fail ends the order without a delivery.
func (s *scene) fail(o *delivery.Order, why delivery.FailureReason, after time.Duration) {
	s.Helper()
	s.report(o, after, delivery.Update{Kind: delivery.KindStatus, Status: delivery.Failed, Failure: why})
}

// locate reports where the courier is.
func (s *scene) locate(o *delivery.Order, at delivery.Point, after time.Duration) {
	s.Helper()
	when := began.Add(after)
	ignored, err := s.ledger.ReportLocations(context.Background(), s.fleet.ID,
		[]ledger.Position{{Order: o.ID, Location: delivery.Location{Point: at, At: when}}}, when)
	must(s, err)
	if ignored != 0 {
		s.Fatal("the position was ignored")
	}
	s.at(after)
}

// answer is a response with its body read.
type answer struct {
	*http.Response
	text string
}

// do sends a request with headers "Name: value".
func (s *scene) do(method, path string, headers ...string) answer {
	s.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, s.server.URL+path, nil)
	must(s, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	client := &http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	must(s, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(s, err)
	return answer{resp, string(text)}
}

const inTurkish = "Accept-Language: tr-TR,tr;q=0.9,en;q=0.8"

// get is the order's page in English.
func (s *scene) get(o *delivery.Order, headers ...string) answer {
	s.Helper()
	return s.do("GET", pathOf(o), headers...).want(s, http.StatusOK)
}

// renewed is the fragment of the order's page.
func (s *scene) renewed(o *delivery.Order, headers ...string) answer {
	s.Helper()
	return s.do("GET", pathOf(o)+"/live", headers...).want(s, http.StatusOK)
}

func pathOf(o *delivery.Order) string { return "/track/" + keys.Token(o.ID) }

// want checks the status and that the text has all parts.
func (a answer) want(t testing.TB, status int, parts ...string) answer {
	t.Helper()
	if a.StatusCode != status {
		t.Fatalf("%s %s: %d, want %d: %s", a.Request.Method, a.Request.URL, a.StatusCode, status, a.text)
	}
	return a.has(t, parts...)
}

func (a answer) has(t testing.TB, parts ...string) answer {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(a.text, part) {
			t.Errorf("%s %s: no %q in %s", a.Request.Method, a.Request.URL, part, a.text)
		}
	}
	return a
}

func (a answer) hasNot(t testing.TB, parts ...string) answer {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(a.text, part) {
			t.Errorf("%s %s: %q in %s", a.Request.Method, a.Request.URL, part, a.text)
		}
	}
	return a
}
