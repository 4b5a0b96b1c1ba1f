package archive

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open is an archive on a database of an engine, which Migrate has not seen.
func open(t testing.TB, e *testserver.ClickHouse, database string) *Archive {
	t.Helper()
	a, err := Open(Settings{URL: e.URL, Database: database})
	noError(t, err)
	t.Cleanup(func() { noError(t, a.Close()) })
	return a
}

// newArchive is an archive on an empty database of the shared engine.
func newArchive(t testing.TB) *Archive {
	t.Helper()
	e := testserver.SharedClickHouse(t)
	return open(t, e, e.NewMigratedDatabase(t, func(database string) error { return migrateIn(e, database) }))
}

// migrateIn makes every table and view in a new database of an engine.
func migrateIn(e *testserver.ClickHouse, database string) error {
	a, err := Open(Settings{URL: e.URL, Database: database})
	if err != nil {
		return err
	}
	_, err = a.Migrate(context.Background())
	return errors.Join(err, a.Close())
}

// newArchiveIn is one on a new database of an engine.
func newArchiveIn(t testing.TB, e *testserver.ClickHouse) *Archive {
	t.Helper()
	a := open(t, e, e.NewDatabase(t))
	_, err := a.Migrate(t.Context())
	noError(t, err)
	return a
}

var idle struct {
	once    sync.Once
	archive *Archive
}

// idleArchive is shared by tests that store nothing. It stays until the engine ends.
func idleArchive(t testing.TB) *Archive {
	t.Helper()
	idle.once.Do(func() {
		a, err := Open(Settings{URL: testserver.SharedClickHouse(t).URL, Database: "idle_" + strings.ToLower(rand.Text()[:10])})
		noError(t, err)
		_, err = a.Migrate(t.Context())
		noError(t, err)
		idle.archive = a
	})

	if idle.archive == nil {
		t.Fatal("the shared archive could not be made")
	}

	return idle.archive
}

// one is the only value of a query's only row.
func one[V any](t testing.TB, a *Archive, query string) (value V) {
	t.Helper()
	row := a.conn.QueryRow(clickhouse.Context(t.Context()), query)
	if err := row.Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// noon is a business day's middle.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, delivery.Istanbul)

func account(n int) (id delivery.AccountID) {
	binary.BigEndian.PutUint32(id[:], uint32(n))
	binary.BigEndian.PutUint32(id[12:], uint32(n)*2654435761)
	return id
}

func money(minor int64) delivery.Money { return delivery.Money{Minor: minor, Set: true} }

// newOrder is an order that was created at a time and reached the given states,
// a minute apart.
func newOrder(account delivery.AccountID, n int, created time.Time, reached ...delivery.Status) *delivery.Order {
	external := fmt.Sprintf("YS-%07d", n)
	o := &delivery.Order{
		ID:      delivery.MakeOrderID(n%8, delivery.DayOf(created), delivery.OrderDigest(account, external)),
		Account: account,
		OrderDraft: delivery.OrderDraft{
			ExternalStoreID: fmt.Sprintf("şube-%d", n%50), ExternalOrderID: external,
			ReadyAt:     created.Add(20 * time.Minute),
			OrderAmount: money(int64(10000 + n)),
			Payment:     delivery.Payment{Type: delivery.Cash, CollectionAmount: money(int64(10000 + n))},
		},
		Fleet:     delivery.FleetTerms{ID: delivery.FleetID{9}, Name: "Hızlı Kurye", PickupMinutes: 10, DeliveryMinutes: 20},
		CreatedAt: created,
		Status:    delivery.Searching,
		Version:   delivery.FirstVersion(created),
	}

	for i, s := range reached {
		at := created.Add(time.Duration(i+1) * time.Minute)
		o.Version = delivery.NextVersion(o.Version, at, 0)
		o.Status = s
		c := delivery.Change{Version: o.Version, Status: s, At: at}
		if s == delivery.Failed {
			c.Failure = delivery.CustomerRefused
		}

		if s == delivery.Cancelled {
			c.Cancel = delivery.CustomerRequest
		}

		o.Changes = append(o.Changes, c)
	}

	return o
}

// toDelivered is the way of most orders.
var toDelivered = []delivery.Status{delivery.Assigned, delivery.PickingUp, delivery.PickedUp, delivery.Delivering, delivery.Delivered}

var kebap = &delivery.Store{Name: "Köşe Kebap İğdır 🥙", TaxNumber: "1234567890"}

// batchOf are all rows of the orders.
func batchOf(all ...*delivery.Order) *Batch {
	b := &Batch{}
	for _, o := range all {
		b.Orders = append(b.Orders, OrderOf(o, kebap))
		b.Events = append(b.Events, EventsOf(o)...)
	}
	return b
}

// stored collects what Stored reads.
func stored(t testing.TB, a *Archive, s Selection) (all []*Stored) {
	t.Helper()
	noError(t, a.Stored(t.Context(), s, func(one *Stored) error {
		all = append(all, one)
		return nil
	}))
	return all
}

// requireStored checks that these orders are stored on their days and nothing
// else is.
func requireStored(t testing.TB, a *Archive, from, to time.Time, want ...*delivery.Order) {
	t.Helper()
	found := map[delivery.OrderID]*Stored{}
	for _, s := range stored(t, a, Selection{From: from, To: to}) {
		if found[s.Order] != nil {
			t.Errorf("order %s is there twice", s.Order)
		}
		found[s.Order] = s
	}

	for _, o := range want {
		s := found[o.ID]
		if s == nil {
			t.Errorf("order %s is missing", o.ID)
			continue
		}

		row := OrderOf(o, nil)
		for _, d := range s.Differences(&row, EventsOf(o)) {
			t.Errorf("order %s: %s", o.ID, d)
		}

		delete(found, o.ID)
	}

	for _, s := range found {
		t.Errorf("nobody stored %s", s.Describe())
	}
}

func isUnavailable(err error) bool { return errors.Is(err, delivery.ErrUnavailable) }
