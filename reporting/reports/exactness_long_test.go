//go:build long

package reports

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	core "vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/archive/archiveenv"
)

// faults says how much happens: more with FAULTS=long.
type faults struct {
	orders, exporterKills, engineKills int
	pause                              time.Duration // about, between two kills of the exporter
}

func faultsWanted() faults {
	if os.Getenv("FAULTS") == "long" {
		return faults{orders: 50_000, exporterKills: 30, engineKills: 10, pause: 3 * time.Second}
	}
	return faults{orders: 2_500, exporterKills: 8, engineKills: 3, pause: 800 * time.Millisecond}
}

// Whatever crashes, repeats or arrives late: the reports are what the orders say,
// to the kuruş, and reconcile proves it, and finds and repairs a single
// corrupted row.
//
//rule:finance/database-delivery-tables-orders-and
func TestExactness_SurvivesKillsAndReplays(t *testing.T) {
	seed, f := testserver.Seed(t), faultsWanted()
	e := newEnv(t, f)
	e.underFaults(f, func() { e.makeOrders(f.orders, seed) })
	e.reportLate()
	e.awaitExported()
	e.SetExportBack()
	e.awaitExported()
	e.requireReports()
	e.reconcile(true)
	// An order that is exported once more would repair what is spoiled now.
	e.killExporter()
	e.corruptOne()
	e.requireReports()
}

// env is a ledger, what the test knows by itself of the orders that it made there,
// and processes that are killed. Nothing of the sample comes from the ledger's
// records or from ClickHouse.
type env struct {
	*archiveenv.System
	stores    []*delivery.Store
	terms     []accounts.Candidate
	config    string
	variables []string

	mu       sync.Mutex
	sample   sample
	exporter *exec.Cmd
	log      bytes.Buffer
}

// The period of the orders holds a leap day and ends of months.
var (
	playBegins = time.Date(2024, 2, 10, 0, 0, 0, 0, delivery.Istanbul)
	played     = asked{from: "2024-02-10", to: "2024-03-22"}
)

const playedDays = 40

func newEnv(t *testing.T, f faults) *env {
	e := &env{System: archiveenv.NewOn(testenv.New(t), testserver.DedicatedClickHouse(t))}
	root, err := stack.ModuleDir()
	noError(t, err)
	settings, err := os.ReadFile(filepath.Join(root, "configs", "reporting.yaml"))
	noError(t, err)
	// Small batches, so that many are cut off, for the number of orders.
	text := strings.Replace(string(settings), "interval: 1s", "interval: 100ms", 1)
	text = strings.Replace(text, "batch: 1000", fmt.Sprint("batch: ", max(40, f.orders/200)), 1)
	e.config = filepath.Join(t.TempDir(), "reporting.yaml")
	noError(t, os.WriteFile(e.config, []byte(text), 0o600))
	e.variables = append(os.Environ(), "ENVIRONMENT=sandbox", "REDIS_URL="+e.ConfigFor(stack.ReportingUser).URL,
		fmt.Sprint("PARTITIONS=", testenv.Partitions), "CLICKHOUSE_URL="+e.ClickHouse.URL, "CLICKHOUSE_DATABASE="+e.Database,
		"REPORTING_INSTANCE=x1", "REPORTING_OPS_ADDR=127.0.0.1:0", "LOG_LEVEL=warn")
	e.makeStores()
	e.startExporter()
	t.Cleanup(func() {
		e.killExporter()
		if t.Failed() {
			t.Logf("the exporter's log ends:\n%s", e.log.Bytes()[max(0, e.log.Len()-4000):])
		}
	})

	return e
}

// makeStores makes vendors with stores of two fleets; one store's name is what
// spreadsheets fear.
func (e *env) makeStores() {
	second := &delivery.Fleet{ID: delivery.NewFleetID(), Name: "Yıldız Kurye; \"Ağrı\"", SubRegion: "Kadıköy",
		DeliveryMinutes: 20, PickupMinutes: 5, Couriers: -1, Coverage: e.Fleet.Coverage}
	noError(e.T, e.Ledger.Fleets.Create(e.T.Context(), second, [32]byte{9}))
	for _, f := range []*delivery.Fleet{e.Fleet, second} {
		e.terms = append(e.terms, accounts.Candidate{Terms: f.Terms(), Covers: true})
	}

	for i := range 5 {
		v := e.NewVendor()
		for j, name := range []string{"Çiğköfteci Şükrü Ünal", "=1+1 Döner"} {
			s := v.NewStore(fmt.Sprintf("store-%d", j), delivery.Active)
			s.Name, s.TaxNumber = fmt.Sprint(name, " ", i), fmt.Sprintf("%010d", 10*i+j)
			if (i+j)%2 == 1 {
				s.Fleet, s.FleetName = second.ID, second.Name
			}
			noError(e.T, e.Ledger.Stores.Write(e.T.Context(), s))
			e.stores = append(e.stores, s)
		}
	}
}

func (e *env) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(testserver.Programs(e.T), "reporting"), append(args, "--config", e.config)...)
	cmd.Env = e.variables
	return cmd
}

func (e *env) startExporter() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exporter = e.command("export")
	e.exporter.Stderr = &e.log
	if err := e.exporter.Start(); err != nil {
		e.T.Error(err)
	}
}

func (e *env) killExporter() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.exporter.Process.Kill() // it may have been killed before
	_ = e.exporter.Wait()
}

// underFaults works while exporter and engine are killed again and again.
func (e *env) underFaults(f faults, work func()) {
	var all sync.WaitGroup
	all.Go(work)
	all.Go(func() {
		for range f.exporterKills {
			time.Sleep(f.pause/4 + rand.N(f.pause*3/2))
			e.killExporter()
			e.startExporter()
		}
	})

	all.Go(func() {
		for range f.engineKills {
			time.Sleep(f.pause/2 + rand.N(f.pause*4))
			e.ClickHouse.Kill(e.T)
			time.Sleep(rand.N(500 * time.Millisecond))
			e.ClickHouse.Start(e.T)
		}
	})

	all.Wait()
}

// makeOrders makes n orders, several at a time, each moved in several commits.
func (e *env) makeOrders(n int, seed uint64) {
	const workers = 8
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(worker)))
			for i := worker; i < n && !e.T.Failed(); i += workers {
				if err := e.makeOrder(r, i); err != nil {
					e.T.Error(i, err)
				}
			}
		})
	}

	all.Wait()
}

func (e *env) makeOrder(r *rand.Rand, n int) error {
	s := e.stores[r.IntN(len(e.stores))]
	o := archive.Order{Account: s.Account, ExternalOrderID: fmt.Sprintf("ş-%d", n), ExternalStoreID: s.ExternalID, StoreName: s.Name, TaxNumber: s.TaxNumber,
		Fleet: s.Fleet, FleetName: s.FleetName, Status: delivery.Searching, PaymentType: delivery.PaymentType(r.IntN(4)), CreatedAt: drawCreation(r)}
	if r.IntN(10) > 0 {
		o.OrderAmount = delivery.Money{Minor: r.Int64N(1_000_000), Set: true}
	}

	switch r.IntN(4) {
	case 0:
	case 1:
		o.Collection = delivery.Money{Minor: r.Int64N(delivery.MaxMoneyMinor + 1), Set: true}
	default:
		o.Collection = o.OrderAmount
	}

	created, _, err := e.Ledger.Orders.Create(e.T.Context(), &orders.Creation{Account: o.Account,
		IdempotencyKey: o.ExternalOrderID, Body: []byte(o.ExternalOrderID), Now: o.CreatedAt, Candidates: e.terms, Draft: &delivery.OrderDraft{
			ExternalStoreID: o.ExternalStoreID, ExternalOrderID: o.ExternalOrderID, ReadyAt: o.CreatedAt,
			Recipient:   delivery.Recipient{Name: "Ali Veli", Phone: "5321234567"},
			Dropoff:     delivery.Dropoff{Text: "Bahariye Cd. No 5 D 3", Point: delivery.Point{Latitude: 40.99, Longitude: 29.03}},
			OrderAmount: o.OrderAmount, Payment: delivery.Payment{Type: o.PaymentType, CollectionAmount: o.Collection},
		}})
	if err != nil {
		return err
	}

	o.ID = created.Order.ID
	for changes := drawChanges(r, &o); len(changes) > 0; {
		some := changes[:1+r.IntN(len(changes))]
		changes = changes[len(some):]
		stored, err := e.Ledger.Orders.Get(e.T.Context(), o.ID)
		if err != nil {
			return err
		}

		change := func(step *partitions.Step) { step.Change(stored, some) } // nobody else changes it
		if err := testenv.Step(e.T.Context(), e.Ledger, o.ID.Partition(), change); err != nil {
			return err
		}
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	e.sample.orders = append(e.sample.orders, o)

	return nil
}

// drawCreation draws a time within the period, one in ten at the edge of a day.
func drawCreation(r *rand.Rand) time.Time {
	day := playBegins.AddDate(0, 0, r.IntN(playedDays))
	switch r.IntN(20) {
	case 0:
		return day
	case 1:
		return day.AddDate(0, 0, 1).Add(-time.Millisecond)
	}
	return day.Add(time.Duration(r.Int64N(int64(24*time.Hour/time.Millisecond))) * time.Millisecond)
}

// drawChanges takes the order a random way: delivered, failed or cancelled at some
// step, or still open. Steps take up to an hour, so that many end on a later day
// than they began.
func drawChanges(r *rand.Rand, o *archive.Order) (changes []delivery.Change) {
	at := o.CreatedAt
	reach := func(s delivery.Status) *delivery.Change {
		at = at.Add(time.Duration(r.Int64N(int64(time.Hour/time.Millisecond))) * time.Millisecond)
		o.Status, o.CourierName = s, "Mehmet Y." // as exported
		changes = append(changes, delivery.Change{Status: s, At: at, Courier: testenv.Courier})
		if s.Terminal() {
			o.EndedAt = at
		}
		return &changes[len(changes)-1]
	}

	steps := r.IntN(6)
	for s := delivery.Assigned; s <= delivery.Delivered && int(s) <= int(delivery.Searching)+steps; s++ {
		reach(s)
		switch s {
		case delivery.PickedUp:
			o.PickedUpAt = at
		case delivery.Delivered:
			o.DeliveredAt = at
			return changes
		}
	}

	switch {
	case r.IntN(8) == 0: // stays open
	case o.Status.Cancellable() && r.IntN(2) == 0:
		o.Cancel = delivery.CustomerRequest
		reach(delivery.Cancelled).Cancel = o.Cancel
	default:
		o.Failure = []delivery.FailureReason{delivery.TimedOut, delivery.CourierIncident, delivery.OtherFailure}[r.IntN(3)]
		reach(delivery.Failed).Failure = o.Failure
	}

	return changes
}

// reportLate has couriers report some of the orders that had been given up as
// delivered after all; the reports are refused.
func (e *env) reportLate() {
	for i := range e.sample.orders {
		if o := &e.sample.orders[i]; o.Failure == delivery.TimedOut && len(e.sample.late) < 20 {
			at := o.EndedAt.Add(7 * time.Minute)
			e.sample.late = append(e.sample.late, archive.LateDelivery{Account: o.Account, Order: o.ID, CreatedAt: o.CreatedAt, ReportedAt: at})
			u := delivery.Update{Order: o.ID, Fleet: o.Fleet, Kind: delivery.KindStatus, Status: delivery.Delivered, At: at}
			_, err := e.Ledger.Orders.Report(e.T.Context(), u, at)
			noError(e.T, err)
		}
	}

	e.Decide()
}

// awaitExported gives 50,000 orders more time than Await does.
func (e *env) awaitExported() {
	e.T.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		lag, err := e.Ledger.Streams.Lag(e.T.Context(), core.RoleExport)
		noError(e.T, err)
		if lag.Entries == 0 {
			return
		}
		if time.Now().After(deadline) {
			e.T.Fatalf("%d entries are not exported", lag.Entries)
		}
	}
}

func (e *env) requireReports() {
	e.T.Helper()
	a := e.OpenArchive()
	requireReports(e.T, a, live, e.sample, played)
	requireControl(e.T, a, e.sample, played)
}

// reconcile runs the command and wants it to find all equal, or not.
func (e *env) reconcile(equal bool, args ...string) string {
	e.T.Helper()
	out, err := e.command(append([]string{"reconcile", "--from", played.from, "--to", played.to}, args...)...).CombinedOutput()
	if (err == nil) != equal {
		e.T.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// corruptOne changes one amount by a kuruş, which reconcile must find and repair. A
// plain 0.01 would be a Float64, whose sum is cut: some amounts would stay the same.
func (e *env) corruptOne() {
	e.T.Helper()
	id := e.sample.orders[slices.IndexFunc(e.sample.orders, func(o archive.Order) bool { return expected(&o) > 0 })].ID.String()
	e.ClickHouse.Exec(e.T, fmt.Sprintf("ALTER TABLE %s.orders UPDATE collection_amount = collection_amount + toDecimal64('0.01', 2) WHERE order_id = '%s' SETTINGS mutations_sync = 2", e.Database, id))
	out := e.reconcile(false)
	if strings.Count(out, " order ") != 1 || !strings.Contains(out, id) || !strings.Contains(out, "collection_amount") {
		e.T.Errorf("reconcile found\n%s", out)
	}
	if out := e.reconcile(true, "--fix"); !strings.Contains(out, "(fixed)") {
		e.T.Errorf("reconcile --fix said\n%s", out)
	}

	e.reconcile(true)
}
