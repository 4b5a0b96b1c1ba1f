package archive

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
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
	b.Audit = []ledger.AuditEntry{auditOf("X", 1, at), auditOf("X", 2, at), auditOf("Y", 1, at)}
	noError(t, from.Insert(t.Context(), b))
	noError(t, from.InsertAgain(t.Context(), b)) // rows that replace each other
	batch := uuid.New()
	noError(t, from.Freeze(t.Context(), batch, noon))
	noError(t, from.InsertDays(t.Context(), batch))
	noError(t, from.InsertEntry(t.Context(), &journal.Entry{Text: `{"sequence":1}`, KeyID: "k1", Signature: "x"}))
	noError(t, from.NoteReconciledDay(t.Context(), &ReconciledDay{Day: noon, At: at, Orders: 1}))
	noError(t, from.RecordDeliverySets(t.Context(), []DeliverySet{
		{Target: "erp", Name: "2026-11-closing-000001", Version: 1, ChangedAt: at, DueAt: at},
		{Target: "erp", Name: "2026-11-closing-000001", Version: 2, ChangedAt: at, DueAt: at, Folder: "f", Manifest: "m", Report: "{}", DeliveredAt: at, AnnouncedAt: at, Error: "çöktü"},
	}))
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
