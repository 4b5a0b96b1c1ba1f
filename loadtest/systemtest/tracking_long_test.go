//go:build long

package systemtest

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/tracking"
)

var trackingKeys = delivery.TrackingKeys{Current: "t1", Keys: map[string][]byte{"t1": []byte("one key of thirty-two bytes, yes")}}

// trackingEnv is a vendor whose orders were created some minutes ago, and the tracking
// pages in a browser.
type trackingEnv struct {
	*testenv.Env
	vendor   *testenv.Vendor
	began    time.Time
	url      string
	renewals atomic.Int32 // requests for a renewal
}

func newTrackingEnv(t *testing.T, base *testenv.Env) *trackingEnv {
	t.Helper()
	pages, err := tracking.New(base.OpenAs(stack.ReportingUser), trackingKeys, authenv.Log, prometheus.NewRegistry())
	must(t, err)
	e := &trackingEnv{Env: base, vendor: base.Vendor(), began: time.Now().Add(-7 * time.Minute)}
	e.url = testenv.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/live") {
			e.renewals.Add(1)
		}
		pages.Handler().ServeHTTP(w, r)
	})).URL

	return e
}

func (e *trackingEnv) open(t *testing.T) *Page {
	t.Helper()
	return openPage(t, startBrowser(t), e.url)
}

func (e *trackingEnv) order() *delivery.Order { e.T.Helper(); return e.vendor.Order("", e.began) }

// reach takes an order to a status some minutes after the beginning.
func (e *trackingEnv) reach(o *delivery.Order, status delivery.Status, minutes int, failure delivery.FailureReason) {
	e.T.Helper()
	u := delivery.Update{Order: o.ID, Fleet: e.Fleet.ID, Kind: delivery.KindStatus, Status: status, Failure: failure, Courier: testenv.Courier,
		At: e.began.Add(time.Duration(minutes) * time.Minute)}
	e.Step(o.ID.Partition(), func(step *partitions.Step) {
		order := e.Read(o.ID)
		step.Change(order, delivery.Decide(order, u, u.At).Changes)
	})
}

// locate reports that the courier is at the store, a minute ago.
func (e *trackingEnv) locate(o *delivery.Order) {
	e.T.Helper()
	at := e.began.Add(6 * time.Minute)
	ignored, err := e.Ledger.Orders.ReportLocations(e.T.Context(), e.Fleet.ID,
		[]orders.Position{{Order: o.ID, Location: delivery.Location{Point: e.vendor.Store.Point, At: at}}}, at)
	if err != nil || ignored != 0 {
		e.T.Fatal("the position was ignored", err)
	}
}

func trackingPath(o *delivery.Order) string { return "/track/" + trackingKeys.Token(o.ID) }

// renew makes an open page renew itself now instead of in a few seconds.
func renew(p *Page) { eval[bool](p, "window.dispatchEvent(new Event('online'))") }

func TestTracking_EveryoneCanUseEveryPage(t *testing.T) {
	t.Parallel()

	e := newTrackingEnv(t, testenv.New(t))
	e.Fleet.Name = "Hızlı " + strings.Repeat("ve Güvenilir ", 8) + "Kurye"
	e.vendor.Store.Name, e.vendor.Store.FleetName = strings.Repeat("Uzunisimlirestoranlarındanbiri", 4), e.Fleet.Name
	must(t, e.Ledger.Stores.Write(t.Context(), e.vendor.Store))
	on, searching, delivered, failed, cancelled := e.order(), e.order(), e.order(), e.order(), e.order()
	e.reach(on, delivery.Delivering, 5, "")
	e.locate(on)
	e.reach(delivered, delivery.Delivered, 6, "")
	e.reach(failed, delivery.Failed, 6, delivery.NoCourierFound)
	_, _, err := e.Ledger.Orders.Cancel(t.Context(), e.vendor.Account, cancelled.ID, delivery.CustomerRequest, "", e.began)
	must(t, err)
	p := e.open(t)
	for _, c := range []struct {
		path   string
		status int
		shows  string
	}{
		{trackingPath(on), 200, "Siparişiniz yolda"}, {trackingPath(searching), 200, "Kurye aranıyor"}, {trackingPath(delivered), 200, "Teslim edildi"},
		{trackingPath(failed), 200, "teslim edilemedi"}, {trackingPath(cancelled), 200, "iptal edildi"}, {"/track/x", 404, "tanımıyoruz"},
	} {
		p.Language("tr")
		p.Visit(c.path, c.status)
		p.Shows(c.shows)
		p.Usable()
		p.Language("en")
		p.Visit(c.path, c.status)
		if got := eval[string](p, "document.documentElement.lang"); got != "en" {
			t.Errorf("%s is in %q", c.path, got)
		}
	}
}

// The page renews itself, says so to those who do not see it, and stops at the end.
func TestTracking_FollowsTheOrderByItself(t *testing.T) {
	t.Parallel()

	e := newTrackingEnv(t, testenv.New(t))
	o := e.order()
	p := e.open(t)
	p.Visit(trackingPath(o), http.StatusOK)
	p.Shows("Looking for a courier")
	e.reach(o, delivery.Delivering, 5, "")
	p.WaitText("Your courier is coming to you.") // by its own clock
	if said := p.Text("#said"); !strings.Contains(said, "On the way to you") {
		t.Errorf("announced is %q", said)
	}

	e.locate(o)
	renew(p)
	p.WaitText("Your courier is about")
	e.reach(o, delivery.Delivered, 7, "")
	renew(p)
	p.WaitText("Handed over at")
	if title := eval[string](p, "document.title"); title != "Delivered · Your delivery" {
		t.Errorf("the title is %q", title)
	}

	before := e.renewals.Load()
	for range 3 {
		renew(p)
	}

	// A request of the test's own comes after those that the page had made by now.
	if status := eval[int](p, "fetch(location.pathname + '/live').then(r => r.status)"); status != http.StatusOK {
		t.Errorf("answered %d", status)
	}
	if after := e.renewals.Load(); after != before+1 {
		t.Errorf("the page has asked %d times after the end", after-before-1)
	}
}

// A page that loses the service says so, keeps what it shows, and recovers.
func TestTracking_SaysThatTheConnectionIsLost(t *testing.T) {
	t.Parallel()

	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := newTrackingEnv(t, testenv.NewOn(t, server))
	o := e.order()
	p := e.open(t)
	p.Visit(trackingPath(o), http.StatusOK)
	p.Expect(http.StatusServiceUnavailable)
	server.Stop()
	renew(p)
	p.WaitText("No connection.")
	p.Shows("Looking for a courier")
	p.Usable()
	late := e.open(t) // who comes now
	late.Visit(trackingPath(o), http.StatusServiceUnavailable)
	late.Shows("Just a moment")
	late.Usable()

	must(t, server.Start(t.Context()))
	e.reach(o, delivery.Assigned, 1, "")
	renew(p)
	p.WaitText("A courier has your order")
	p.Until("the page has its connection back", func() bool { return !strings.Contains(p.Text("body"), "No connection.") })
	late.WaitText("A courier has your order") // by itself
}
