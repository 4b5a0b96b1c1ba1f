// Package archiveenv gives tests an environment of package testenv with a ClickHouse database. It is a
// package of its own so that tests that need none do not compile its client.
package archiveenv

import (
	"context"
	"fmt"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/journal"
)

// System is an environment with a vendor and a migrated ClickHouse database. Nothing is exported
// from one to the other before the test starts an exporter.
type System struct {
	*testenv.Env
	Vendor     *testenv.Vendor // whose orders have 123.45 to collect in cash
	ClickHouse *testserver.ClickHouse
	Archive    *archive.Archive
	Database   string
}

// BooksKeys sign and check the log of the books in tests.
var BooksKeys = journal.NewKeys("sandbox", "k1", map[string][]byte{"k1": []byte("0123456789abcdef0123456789abcdef")})

// New is an environment on the shared servers.
func New(t *testing.T) *System {
	t.Helper()
	return NewOn(testenv.New(t), testserver.SharedClickHouse(t))
}

// NewOn puts the two together; either may be on a server of the test's own.
func NewOn(e *testenv.Env, c *testserver.ClickHouse) *System {
	e.T.Helper()
	env := &System{Env: e, ClickHouse: c}
	if c.IsShared() {
		env.Database = c.NewMigratedDatabase(e.T, func(database string) error { return migrate(c.URL, database) })
	} else {
		env.Database = c.NewDatabase(e.T)
		testenv.Must(e.T, migrate(c.URL, env.Database))
	}

	env.Vendor = env.NewVendor()
	env.Archive = env.OpenArchive()
	testenv.Must(e.T, env.Archive.Claim(e.T.Context(), archive.Owner{Environment: e.Ledger.Environment(), Ledger: e.Ledger.ID()}))

	return env
}

// migrate makes every table and view in a new database.
func migrate(url, database string) error {
	a, err := archive.Open(archive.Settings{URL: url, Database: database, BooksKeys: BooksKeys})
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }() // every statement has been answered

	_, err = a.Migrate(context.Background())
	return err
}

// NewVendor is one more account whose orders have 123.45 to collect in cash.
func (e *System) NewVendor() *testenv.Vendor {
	e.T.Helper()
	v := e.Env.Vendor()
	v.Edit = func(d *delivery.OrderDraft) {
		d.OrderAmount = delivery.Money{Minor: 12345, Set: true}
		d.Payment = delivery.Payment{Type: delivery.Cash, CollectionAmount: delivery.Money{Minor: 12345, Set: true}}
	}
	return v
}

// OpenArchive opens the database once more, as another process would.
func (e *System) OpenArchive() *archive.Archive { e.T.Helper(); return e.open(e.ClickHouse.URL) }

func (e *System) open(url string) *archive.Archive {
	e.T.Helper()
	a, err := archive.Open(archive.Settings{URL: url, Database: e.Database, BooksKeys: BooksKeys})
	testenv.Must(e.T, err)
	a.UseHead(e.Ledger.Books.Head)
	e.T.Cleanup(func() { _ = a.Close() })

	return a
}

// AwaitExported waits until everything has been exported.
func (e *System) AwaitExported() {
	e.T.Helper()
	e.Await("everything is exported", func() bool {
		lag, err := e.Ledger.Streams.Lag(e.T.Context(), ledger.RoleExport)
		testenv.Must(e.T, err)
		return lag.Entries == 0
	})
}

// Delivered is a new order that has been delivered.
func (e *System) Delivered(at time.Time) *delivery.Order {
	e.T.Helper()
	o := e.Vendor.Order("", at)
	e.Move(o, delivery.Delivered, at)
	return e.Read(o.ID)
}

// RetireAll makes every order that has ended leave Redis. export settles for the exporter what there is.
func (e *System) RetireAll(export func()) {
	e.T.Helper()
	// An hour is retired when it is over: an event of a later one says so.
	e.EachKey("e", fmt.Sprintf(`redis.call('XADD', k, '%d-0', 'e', '\2evt_x')`, time.Now().Add(3*time.Hour).UnixMilli()))
	e.Decide()
	e.Consume(ledger.RoleWebhook)
	export()
	for p := range e.Ledger.Partitions() {
		_, err := e.Ledger.Orders.Retire(e.T.Context(), p, time.Now().Add(48*time.Hour), 1000)
		testenv.Must(e.T, err)
	}
}

// Ask is what "SELECT query" answers, as tab-separated text.
func (e *System) Ask(query string) string {
	e.T.Helper()
	return e.ClickHouse.Exec(e.T, "SELECT "+query+" SETTINGS final = 1")
}

// Want compares an answer of one line.
func (e *System) Want(what, query, want string) {
	e.T.Helper()
	if got := e.Ask(query); got != want+"\n" {
		e.T.Errorf("%s: %q, want %q", what, got, want)
	}
}

// SetExportBack makes the group of exporters begin again with the oldest entry.
func (e *System) SetExportBack() {
	e.T.Helper()
	for _, kind := range []string{"e", "v", "V", "U"} {
		e.EachKey(kind, "redis.call('XGROUP', 'SETID', k, 'export', '0')")
	}
}
