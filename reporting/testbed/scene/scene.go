// Package scene sets up both sides of the export for tests: a ledger with a
// vendor and a fleet in a Redis of its own, and a migrated database.
//
// It owns nothing but their combination; whoever tests starts an exporter, or
// does not.
package scene

import (
	"context"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/testbed"
	fleet "vendorapi/worker/testbed"
)

// Scene is a ledger with a vendor and a fleet, and a database.
type Scene struct {
	*fleet.Bed
	T        *testing.T
	Vendor   *fleet.Vendor // whose orders have 123.45 to collect in cash
	Engine   *testbed.Engine
	Archive  *archive.Archive
	Database string
}

// New is a scene in which nobody exports yet.
func New(t *testing.T, engine *testbed.Engine) *Scene {
	t.Helper()
	s := &Scene{Bed: fleet.New(t), T: t, Engine: engine, Database: engine.NewDatabase(t)}
	s.Vendor = s.NewVendor()
	s.Archive = s.OpenArchive()
	if _, err := s.Archive.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// NewVendor is one more account whose orders have 123.45 to collect in cash.
func (s *Scene) NewVendor() *fleet.Vendor {
	s.T.Helper()
	v := s.Bed.Vendor()
	v.Edit = func(d *delivery.OrderDraft) {
		d.OrderAmount = delivery.Money{Minor: 12345, Set: true}
		d.Payment = delivery.Payment{Type: delivery.Cash, CollectionAmount: delivery.Money{Minor: 12345, Set: true}}
	}
	return v
}

// OpenArchive opens the database once more, as another process would.
func (s *Scene) OpenArchive() *archive.Archive {
	s.T.Helper()
	a, err := archive.Open(archive.Settings{URL: s.Engine.URL, Database: s.Database})
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { _ = a.Close() })
	return a
}

// Feed consumes what a role has not, with the given work.
func (s *Scene) Feed(role ledger.Role, handle func(partition int, batch []ledger.Entry) error) {
	s.T.Helper()
	stop := s.Start(func(ctx context.Context) error {
		err := s.Ledger.RunFeed(ctx, ledger.Feed{Role: role, Consumer: "scene",
			Handle: func(_ context.Context, partition int, batch []ledger.Entry) error { return handle(partition, batch) }})
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	s.AwaitSettled(role)
	stop()
}

// AwaitExported waits until everything has been exported.
func (s *Scene) AwaitExported() {
	s.T.Helper()
	s.Await("everything is exported", func() bool {
		lag, err := s.Ledger.Lag(s.T.Context(), ledger.RoleExport)
		if err != nil {
			s.T.Fatal(err)
		}
		return lag.Entries == 0
	})
}

// Commit moves an order as the status role would, without a decision.
func (s *Scene) Commit(o *delivery.Order, changes ...delivery.Change) {
	s.T.Helper()
	results, err := s.Ledger.CommitAll(s.T.Context(), []ledger.Commit{{Order: s.Read(o.ID), Changes: changes}})
	if err != nil || results[0] != nil {
		s.T.Fatal(err, results)
	}
}

// Delivered is a new order that has been delivered.
func (s *Scene) Delivered(at time.Time) *delivery.Order {
	s.T.Helper()
	o := s.Vendor.Order("", at)
	s.Move(o, delivery.Delivered, at)
	return s.Read(o.ID)
}

// Ask is what "SELECT query" answers, as tab-separated text.
func (s *Scene) Ask(query string) string {
	s.T.Helper()
	return s.Engine.Exec(s.T, "SELECT "+query+" SETTINGS final = 1")
}

// Want compares an answer of one line.
func (s *Scene) Want(what, query, want string) {
	s.T.Helper()
	if got := s.Ask(query); got != want+"\n" {
		s.T.Errorf("%s: %q, want %q", what, got, want)
	}
}
