package tracking

import (
	"context"
	"fmt"
	"log/slog"
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
)

func TestMain(m *testing.M) { testserver.Main(m) }

var must = testenv.Must

// began is when the orders are created: 14:00 local time.
var began = time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)

var keys = delivery.TrackingKeys{Current: "t1", Keys: map[string][]byte{"t1": []byte("one key of thirty-two bytes, yes")}}

// env is a vendor with a store, and the tracking pages.
type env struct {
	*testenv.Env
	vendor  *testenv.Vendor
	store   *delivery.Store
	courier delivery.Courier
	pages   *Pages
	client  *testenv.Client
	clock   atomic.Int64 // of the pages, milliseconds
	orders  int
}

// The recipient's side of every order. None of it may be shown.
var private = []string{"Zeynep", "Gizlisoy", "5329998877", "Saklı Sokak", "B-17", "D-42", "9. kat", "zili çalmayın", "baklavayı ters çevirmeyin",
	"1234", "1.234,56", "1234.56", "987.65", "Cash", "ORDER-EXT"}

func newEnv(t *testing.T) *env {
	t.Helper()
	return newEnvOn(t, testenv.New(t))
}

func newEnvOn(t *testing.T, base *testenv.Env) *env {
	t.Helper()
	e := &env{Env: base, vendor: base.Vendor(), courier: testenv.Courier}
	e.store = e.vendor.Store
	e.store.Point = delivery.Point{Latitude: 40.9816, Longitude: 29.0258}
	e.rename("Moda Şubesi", "Hızlı Kurye")
	var err error
	e.pages, err = New(base.OpenAs(stack.ReportingUser), keys, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)
	e.pages.now = func() time.Time { return time.UnixMilli(e.clock.Load()) }
	e.pages.readTimeout = testserver.Timeout // on a busy machine Redis answers later than customers are kept waiting
	e.at(0)
	e.client = testenv.Serve(t, e.pages.Handler())

	return e
}

// rename calls the store and the fleet otherwise, for the orders to come.
func (e *env) rename(store, fleet string) {
	e.T.Helper()
	e.Fleet.Name, e.store.Name, e.store.FleetName = fleet, store, fleet
	must(e.T, e.Ledger.Stores.Write(e.T.Context(), e.store))
}

// at sets the pages' clock to a time after the beginning.
func (e *env) at(d time.Duration) { e.clock.Store(began.Add(d).UnixMilli()) }

// order creates an order at the beginning, full of what is nobody's business.
func (e *env) order(change ...func(*delivery.OrderDraft)) *delivery.Order {
	e.T.Helper()
	e.orders++
	e.vendor.Edit = func(d *delivery.OrderDraft) {
		d.ExternalOrderID, d.PackageNote = fmt.Sprintf("ORDER-EXT-%d", e.orders), "baklavayı ters çevirmeyin"
		d.Recipient = delivery.Recipient{Name: "Zeynep Gizlisoy", Phone: "5329998877"}
		d.Dropoff = delivery.Dropoff{Text: "Saklı Sokak No 7, Kadıköy", Point: delivery.Point{Latitude: 40.98812, Longitude: 29.03047},
			BuildingNo: "B-17", DoorNo: "D-42", Floor: "9. kat", Note: "zili çalmayın"}
		d.OrderAmount = delivery.Money{Minor: 123456, Set: true}
		d.Payment = delivery.Payment{Type: delivery.Cash, CollectionAmount: delivery.Money{Minor: 98765, Set: true}}
		for _, c := range change {
			c(d)
		}
	}

	return e.vendor.Order("", began)
}

// report commits a fleet's update as the status worker would, and sets the
// clock to its time.
func (e *env) report(o *delivery.Order, after time.Duration, u delivery.Update) {
	e.T.Helper()
	u.Order, u.Fleet, u.At = o.ID, e.Fleet.ID, began.Add(after)
	e.Step(o.ID.Partition(), func(step *partitions.Step) {
		present := e.Read(o.ID)
		decided := delivery.Decide(present, u, u.At)
		if decided.Action != delivery.Move {
			e.T.Fatalf("%+v: action %d", u, decided.Action)
		}
		step.Change(present, decided.Changes)
	})

	e.at(after)
}

// reach takes the order to a status.
func (e *env) reach(o *delivery.Order, status delivery.Status, after time.Duration) {
	e.T.Helper()
	e.report(o, after, delivery.Update{Kind: delivery.KindStatus, Status: status, Courier: e.courier})
}

// fail ends the order without a delivery.
func (e *env) fail(o *delivery.Order, why delivery.FailureReason, after time.Duration) {
	e.T.Helper()
	e.report(o, after, delivery.Update{Kind: delivery.KindStatus, Status: delivery.Failed, Failure: why})
}

func (e *env) cancel(o *delivery.Order, note string, after time.Duration) {
	e.T.Helper()
	_, _, err := e.Ledger.Orders.Cancel(context.Background(), e.vendor.Account, o.ID, delivery.CustomerRequest, note, began.Add(after))
	must(e.T, err)
}

// locate reports where the courier is.
func (e *env) locate(o *delivery.Order, at delivery.Point, after time.Duration) {
	e.T.Helper()
	when := began.Add(after)
	ignored, err := e.Ledger.Orders.ReportLocations(context.Background(), e.Fleet.ID,
		[]orders.Position{{Order: o.ID, Location: delivery.Location{Point: at, At: when}}}, when)
	if err != nil || ignored != 0 {
		e.T.Fatal("the position was ignored", err)
	}

	e.at(after)
}

// counted is what the metric of a form and a result stands at.
func (e *env) counted(f form, r result) float64 {
	e.T.Helper()
	return testenv.Value(e.T, e.pages.counter(f, r))
}

const inTurkish = "Accept-Language: tr-TR,tr;q=0.9,en;q=0.8"

// get is the order's page, in English unless a header says otherwise.
func (e *env) get(o *delivery.Order, headers ...string) *testenv.Answer {
	e.T.Helper()
	return e.client.Get(pathOf(o), headers...).Want(200)
}

// renewed is the fragment of the order's page.
func (e *env) renewed(o *delivery.Order, headers ...string) *testenv.Answer {
	e.T.Helper()
	return e.client.Get(pathOf(o)+"/live", headers...).Want(200)
}

func pathOf(o *delivery.Order) string { return "/track/" + keys.Token(o.ID) }
