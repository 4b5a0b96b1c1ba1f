package watch

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// hostile is markup that would do something wherever it were not escaped.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>' onfocus='alert(1)`

// Everything that others wrote is text on every page, and links lead nowhere but
// to the panel.
func TestPages_ShowHostileTextAsText(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.Fleet.Name = hostile
	_, err := w.Ledger.UpdateFleet(t.Context(), w.Fleet.ID, func(f *delivery.Fleet) error { f.Name, f.Suspended = hostile, true; return nil })
	must(t, err)
	_, err = w.Ledger.UpdateAccount(t.Context(), w.Vendor.Account, func(a *delivery.Account) error { a.Name = hostile; return nil })
	must(t, err)
	store := w.Vendor.NewStore(hostile, delivery.Active)
	store.Name = hostile
	must(t, w.Ledger.WriteStore(t.Context(), store))
	w.Vendor.Store = store
	w.Vendor.Edit = func(d *delivery.OrderDraft) {
		d.ExternalOrderID += hostile
		d.Recipient.Name, d.PackageNote = hostile, hostile
		d.Dropoff.Text, d.Dropoff.Note, d.Dropoff.DoorNo, d.Dropoff.Floor, d.Dropoff.BuildingNo = hostile, hostile, hostile, hostile, hostile
	}
	w.register(w.Vendor)
	o := w.Vendor.Order("", time.Now())
	w.Commit(o, delivery.Change{Status: delivery.Assigned, At: time.Now(), Courier: delivery.Courier{Name: hostile, VehicleType: hostile}},
		delivery.Change{Status: delivery.Cancelled, At: time.Now(), Note: hostile, Cancel: hostile})
	w.sends(func(d *ledger.Delivery) ledger.Outcome {
		outcome := failed(hostile)(d)
		outcome.Error = hostile
		return outcome
	})
	w.Fail(o, delivery.CustomerRefused, time.Now())
	w.refuse(delivery.Searching, hostile, false)
	w.EachKey("e", "redis.call('XADD', k, '*', 'e', '<img src=x onerror=alert(1)>', '<img src=x onerror=alert(1)>', '1')")
	w.export()
	for path, times := range map[string]int{
		"/overview": 1, "/overview/live": 1, "/orders": 4, "/orders?q=" + url.QueryEscape(hostile): 1, "/orders/" + o.ID.String(): 10,
		"/orders/" + o.ID.String() + "/live": 8, "/refused-updates": 3, "/refused-updates?fleet=" + url.QueryEscape(hostile): 0, "/dead-letters": 1,
	} {
		a := w.ask("GET", "operator", path)
		a.harmless(t)
		if n := strings.Count(a.words(), "onerror=alert(1)>"); n < times {
			t.Errorf("%s shows it %d times, want %d or more", path, n, times)
		}
	}
	w.Do("FLUSHDB")
	w.get("/orders/" + o.ID.String()).harmless(t)
}

// harmless wants no element or attribute that pages of this package do not have.
func (a answer) harmless(t *testing.T) {
	t.Helper()
	for n := range a.doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if slices.Contains([]string{"img", "iframe", "object", "embed", "base", "style"}, n.Data) {
			t.Errorf("%s: <%s>", a.Request.URL, n.Data)
		}
		for _, at := range n.Attr {
			switch {
			case strings.HasPrefix(at.Key, "on"), at.Key == "style":
				t.Errorf("%s: %s has %s=%q", a.Request.URL, n.Data, at.Key, at.Val)
			case at.Key == "src" || at.Key == "href" || at.Key == "action":
				if !strings.HasPrefix(at.Val, "/") && !strings.HasPrefix(at.Val, "#") && !strings.HasPrefix(at.Val, "https://t.example/") {
					t.Errorf("%s: %s leads to %q", a.Request.URL, n.Data, at.Val)
				}
			}
		}
		if n.Data == "script" && (n.FirstChild != nil || len(n.Attr) == 0) {
			t.Errorf("%s: a script within the page", a.Request.URL)
		}
	}
}
