package dashboard

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

// hostile is markup that would do something wherever it were not escaped.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>' onfocus='alert(1)`

// Everything that others wrote is text on every page, and links lead nowhere but
// to the panel.
func TestPages_ShowHostileTextAsText(t *testing.T) {
	e := newEnv(t)
	e.Fleet.Name = hostile
	_, err := e.Ledger.Fleets.Update(t.Context(), e.Fleet.ID, func(f *delivery.Fleet) error { f.Name, f.Suspended = hostile, true; return nil })
	must(t, err)
	_, err = e.Ledger.Accounts.Update(t.Context(), e.Vendor.Account, func(a *delivery.Account) error { a.Name = hostile; return nil })
	must(t, err)
	store := e.Vendor.NewStore(hostile, delivery.Active)
	store.Name = hostile
	must(t, e.Ledger.Stores.Write(t.Context(), store))
	e.Vendor.Store = store
	e.Vendor.Edit = func(d *delivery.OrderDraft) {
		d.ExternalOrderID += hostile
		d.Recipient.Name, d.PackageNote = hostile, hostile
		d.Dropoff.Text, d.Dropoff.Note, d.Dropoff.DoorNo, d.Dropoff.Floor, d.Dropoff.BuildingNo = hostile, hostile, hostile, hostile, hostile
	}

	e.register(e.Vendor)
	o := e.Vendor.Order("", time.Now())
	e.Change(o.ID, delivery.Change{Status: delivery.Assigned, At: time.Now(), Courier: delivery.Courier{Name: hostile, VehicleType: hostile}},
		delivery.Change{Status: delivery.Cancelled, At: time.Now(), Note: hostile, Cancel: hostile})
	e.sends(func(s *partitions.Scheduled) partitions.AttemptRecord {
		outcome := failed(hostile)(s)
		outcome.Error = hostile
		return outcome
	})

	e.Step(o.ID.Partition(), func(step *partitions.Step) {
		refused := delivery.Update{Order: o.ID, Fleet: e.Fleet.ID, Kind: delivery.KindStatus, Status: delivery.Delivered, At: time.Now()}
		step.Refuse(&refused, delivery.Searching, hostile, false)
	})

	e.EachKey("e", "redis.call('XADD', k, '*', 'e', '<img src=x onerror=alert(1)>', '<img src=x onerror=alert(1)>', '1')")
	e.export()
	for path, times := range map[string]int{
		"/overview": 1, "/overview/live": 1, "/orders": 4, "/orders?q=" + url.QueryEscape(hostile): 1, "/orders/" + o.ID.String(): 10,
		"/orders/" + o.ID.String() + "/live": 8, "/refused-updates": 3, "/refused-updates?fleet=" + url.QueryEscape(hostile): 0, "/dead-letters": 1,
	} {
		a := e.client.Get(path).Harmless("https://t.example/")
		if n := strings.Count(a.Words(), "onerror=alert(1)>"); n < times {
			t.Errorf("%s shows it %d times, want %d or more", path, n, times)
		}
	}

	e.Do("FLUSHDB")
	e.get("/orders/" + o.ID.String()).Harmless("https://t.example/")
}
