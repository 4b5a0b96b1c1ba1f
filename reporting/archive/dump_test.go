package archive

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/audit"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/journal"
)

func nobody(uint64) {}

// What Dump wrote and Load read are the same rows, value by value, NULLs, versions
// that replace each other and all; loaded twice they count once.
func TestDump_LoadsTheSameRows(t *testing.T) {
	t.Parallel()

	from, to := newArchive(t), newArchive(t)
	var all []*delivery.Order
	for i := range 100 {
		o := newOrder(account(i%7), i, noon.AddDate(0, -(i%14), -i%28), toDelivered[:i%6]...)
		if i%5 == 0 { // what a vendor left out
			o.OrderAmount, o.Payment = delivery.Money{}, delivery.Payment{}
		}
		all = append(all, o)
	}

	all = append(all, newOrder(account(1), 1000, noon, delivery.Failed), newOrder(account(2), 1001, noon, delivery.Cancelled))
	b := batchOf(all...)
	at := noon.Add(123 * time.Millisecond)
	b.Late = []LateDelivery{{Account: account(1), Order: all[0].ID, CreatedAt: noon, ReportedAt: at}}
	b.Outcomes = []Outcome{
		{Account: account(1), EventID: "evt_1", Event: delivery.StoreActivated, At: at, State: "delivered", Attempt: 3, HTTPStatus: 200, Milliseconds: 7, Partition: 3, Entry: "1-2", Line: 1},
		{Account: account(1), EventID: "evt_2", Order: all[0].ID, At: at, State: "undelivered", Error: "çöktü; \"x\"\n", Replay: true, Probe: true, Partition: 3, Entry: "1-2", Line: 2},
	}

	b.Audit = []audit.Entry{auditOf("X", 1, at), auditOf("X", 2, at), auditOf("Y", 1, at)}
	noError(t, from.Insert(t.Context(), b))
	noError(t, from.InsertAgain(t.Context(), b)) // rows that replace each other
	batch := uuid.New()
	noError(t, from.Freeze(t.Context(), batch, noon, noon))
	noError(t, from.InsertDays(t.Context(), batch))
	noError(t, from.InsertEntry(t.Context(), &journal.Entry{Text: `{"sequence":1}`, KeyID: "k1", Signature: "x"}))
	noError(t, from.RecordDeliverySets(t.Context(), []DeliverySet{
		{Target: "erp", Name: "2026-11-closing-000001", Version: 1, ChangedAt: at, DueAt: at},
		{Target: "erp", Name: "2026-11-closing-000001", Version: 2, ChangedAt: at, DueAt: at, Folder: "f", Manifest: "m", Report: "{}", DeliveredAt: at, AnnouncedAt: at, Error: "çöktü"},
	}))

	noError(t, from.NoteReconciliation(t.Context(), &Reconciliation{At: at, From: noon, To: noon, Orders: 100, Differences: 1}))
	for range 2 {
		for _, table := range Tables() {
			var file bytes.Buffer
			rows, err := from.Dump(t.Context(), table, &file, nobody)
			noError(t, err)
			noError(t, to.Load(t.Context(), table, &file, rows, nobody))
		}

		requireStored(t, to, noon.AddDate(-2, 0, 0), noon, all...)
		for _, table := range Tables() {
			sum := "SELECT sum(cityHash64(toString(tuple(*)))) + count() FROM " + table + " SETTINGS final = 1"
			if a, b := one[uint64](t, from, sum), one[uint64](t, to, sum); a != b {
				t.Errorf("%s: %d and %d", table, a, b)
			}
		}
	}
}

// notInBackups are the tables that no backup has, and why.
var notInBackups = map[string]string{
	"schema_migrations": "a restore makes the tables first, and notes there what it made",
}

func TestDump_HasEveryTable(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	tables := one[[]string](t, a, "SELECT arraySort(groupArray(name)) FROM system.tables WHERE database = currentDatabase() AND engine NOT LIKE '%View'")
	if len(tables) <= len(notInBackups) {
		t.Fatalf("the database has the tables %q", tables)
	}

	for _, name := range tables {
		columns := one[[]string](t, a, "SELECT groupArray(name) FROM (SELECT name FROM system.columns WHERE database = currentDatabase() AND table = '"+name+"' AND default_kind NOT IN ('ALIAS', 'MATERIALIZED') ORDER BY position)")
		listed, err := rowTable(name)
		if notInBackups[name] != "" {
			if err == nil {
				t.Errorf("%s is in backups, and named as left out", name)
			}
			continue
		}

		if err != nil {
			t.Errorf("%s is in no backup: add it to rowTables, or to notInBackups with a reason", name)
			continue
		}

		for _, column := range columns {
			if listed.index(column) < 0 {
				t.Errorf("%s.%s is in no backup", name, column)
			}
		}
	}

	for name := range notInBackups {
		if !slices.Contains(tables, name) {
			t.Errorf("%s is left out of backups, and there is no such table", name)
		}
	}
}

// optimizeProxy is ClickHouse behind a proxy that passes OPTIMIZE on, and gives its answer to nobody. What is asked
// meanwhile waits until the merge has ended.
func optimizeProxy(t *testing.T, clickHouse string) (address string, passed *atomic.Int32) {
	t.Helper()
	target, err := url.Parse(clickHouse)
	noError(t, err)
	target.User = nil
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.ErrorLog = log.New(io.Discard, "", 0)
	passed = new(atomic.Int32)
	var merging sync.RWMutex

	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}

		r.Body = io.NopCloser(bytes.NewReader(body))
		if !bytes.Contains(body, []byte("OPTIMIZE")) {
			merging.RLock()
			defer merging.RUnlock()
			forward.ServeHTTP(w, r)
			return
		}

		merge := func() {
			merging.Lock()
			defer merging.Unlock()
			forward.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context()))) // whoever asks may have gone
			passed.Add(1)
		}

		merge()
		<-r.Context().Done()
	}))

	t.Cleanup(proxy.Close)

	return proxy.URL, passed
}

// A restore that is begun again over rows of an interrupted one needs merges, which can take longer
// than any answer may; a restore into empty tables needs none.
func TestLoad_WaitsForNoAnswerOfMerges(t *testing.T) {
	t.Parallel()

	from := newArchive(t)
	months := []time.Time{noon, noon.AddDate(0, -1, 0)}
	for range 3 {
		for _, month := range months {
			noError(t, from.exec(t.Context(), "INSERT INTO closed_orders (batch, account_id, posted_day, order_id, entry, sign) SELECT generateUUIDv4(), generateUUIDv4(), toDate('"+dateOf(month)+"'), generateUUIDv4(), 1, 1"))
		}
	}

	var file bytes.Buffer
	rows, err := from.Dump(t.Context(), "closed_orders", &file, nobody)
	noError(t, err)

	e := testserver.SharedClickHouse(t)
	direct := newArchiveIn(t, e)
	address, passed := optimizeProxy(t, e.URL)
	a, err := Open(Settings{URL: address, Database: direct.database})
	noError(t, err)
	t.Cleanup(func() { noError(t, a.Close()) })

	noError(t, a.Load(t.Context(), "closed_orders", bytes.NewReader(file.Bytes()), rows, nobody))
	if n := passed.Load(); n != 0 {
		t.Errorf("%d merges were asked for after a load into an empty table", n)
	}

	noError(t, direct.exec(t.Context(), "INSERT INTO closed_orders SELECT * FROM closed_orders"))
	noError(t, a.deduplicate(t.Context(), closedOrders, 2*time.Second))
	if n := passed.Load(); n != int32(len(months)) {
		t.Errorf("%d merges were asked for, of %d partitions", n, len(months))
	}
	if n := one[uint64](t, direct, "SELECT count() FROM closed_orders"); n != rows {
		t.Errorf("%d rows, want %d", n, rows)
	}
}

func TestLoad_RefusesWhatIsNotWhole(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	noError(t, a.Insert(t.Context(), batchOf(newOrder(account(1), 1, noon), newOrder(account(1), 2, noon))))
	var file bytes.Buffer
	rows, err := a.Dump(t.Context(), "orders", &file, nobody)
	noError(t, err)
	whole := file.Bytes()
	for name, c := range map[string]struct {
		table string
		in    io.Reader
		rows  uint64
	}{
		"cut off":         {"orders", bytes.NewReader(whole[:len(whole)-1]), rows},
		"empty":           {"orders", strings.NewReader(""), rows},
		"fewer rows":      {"orders", bytes.NewReader(whole), rows + 1},
		"another table's": {"order_events", bytes.NewReader(whole), rows},
		"no table":        {"schema_migrations", bytes.NewReader(whole), rows},
		"not this format": {"orders", strings.NewReader("account_id;business_day\n1;2\n"), 1},
	} {
		if err := a.Load(t.Context(), c.table, c.in, c.rows, nobody); err == nil {
			t.Errorf("%s: it was loaded", name)
		}
	}

	if _, err := a.Dump(t.Context(), "schema_migrations", io.Discard, nobody); err == nil {
		t.Error("a table that no backup has was copied")
	}
}
