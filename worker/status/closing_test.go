package status

import (
	"context"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
)

// What a migrating store's vendor is told when its last local day is over.
//
//rule:event-types/store.deactivated states/stores-awaitingfleet-awaitingfleetapproval
func TestTimers_AMigratedStoreTellsTheReason(t *testing.T) {
	t.Parallel()
	b := testenv.New(t)
	v := b.Vendor()
	if _, _, err := b.Ledger.SetWebhookURL(t.Context(), v.Account, "https://vendor.example/"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := delivery.MigrateStore(v.Store, now, now); err != nil {
		t.Fatal(err)
	}
	if err := b.Ledger.WriteStore(t.Context(), v.Store); err != nil {
		t.Fatal(err)
	}
	midnight := time.Date(now.In(delivery.Istanbul).Year(), now.In(delivery.Istanbul).Month(), now.In(delivery.Istanbul).Day()+1, 0, 0, 0, 0, delivery.Istanbul)
	r := newRole(b.Ledger, "w1")
	fireAll(t, r, midnight.Add(-time.Second))
	if s, err := b.Ledger.Store(t.Context(), v.Account, v.Store.ExternalID); err != nil || s.State != delivery.Active {
		t.Fatalf("a second before midnight: %+v, %v", s, err)
	}
	fireAll(t, r, midnight)

	told := make(chan *ledger.Delivery, 10)
	b.Start(func(ctx context.Context) error {
		_ = b.Ledger.RunFeed(ctx, ledger.Feed{Role: ledger.RoleWebhook, Consumer: "w1", Handle: func(ctx context.Context, p int, batch []ledger.Entry) error {
			leased, err := b.Ledger.QueueEvents(ctx, p, batch, ledger.Grant{Limit: 10, Share: 10, InFlight: 10, Lease: time.Minute})
			for _, d := range leased.Deliveries {
				told <- d
			}
			return err
		}})
		return nil // ends with the test
	})
	d := <-told
	if want := `{"externalStoreId":"branch-1","reason":"MigratedToHizliyo"}`; d.Type != delivery.StoreDeactivated || string(d.Data) != want {
		t.Errorf("%s %s", d.Type, d.Data)
	}
}
