package archive

import (
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

//rule:states/a-delivered-without-a-courier
func TestOrderOf_FollowsTheHistory(t *testing.T) {
	t.Parallel()

	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	for _, c := range []struct {
		reached                              []delivery.Status
		assigned, picked, delivered, endedAt time.Time
		failure                              delivery.FailureReason
		cancel                               delivery.CancelReason
	}{
		{},
		{reached: toDelivered[:3], assigned: at(1), picked: at(3)},
		{reached: toDelivered, assigned: at(1), picked: at(3), delivered: at(5), endedAt: at(5)},
		{reached: []delivery.Status{delivery.Assigned, delivery.Cancelled}, assigned: at(1), endedAt: at(2), cancel: delivery.CustomerRequest},
		{reached: []delivery.Status{delivery.Failed}, endedAt: at(1), failure: delivery.CustomerRefused},
	} {
		o := newOrder(account(1), 1, noon, c.reached...)
		row := OrderOf(o, kebap)
		if !row.AssignedAt.Equal(c.assigned) || !row.PickedUpAt.Equal(c.picked) || !row.DeliveredAt.Equal(c.delivered) ||
			!row.EndedAt.Equal(c.endedAt) || row.Failure != c.failure || row.Cancel != c.cancel {
			t.Errorf("%v: %+v", c.reached, row)
		}

		if row.Status != o.Status || row.Version != o.Version || !row.UpdatedAt.Equal(at(len(c.reached))) ||
			row.StoreName != kebap.Name || row.TaxNumber != kebap.TaxNumber || row.ID != o.ID || row.Fleet != o.Fleet.ID {
			t.Errorf("%v: %+v", c.reached, row)
		}

		if p := PlaceOf(o); p != (Place{o.Account, time.Date(2026, 11, 21, 0, 0, 0, 0, delivery.Istanbul), o.ID}) {
			t.Errorf("%+v", p)
		}
	}

	for courier, without := range map[string]bool{"": true, "Mehmet Yılmaz": false} {
		o := newOrder(account(1), 1, noon, toDelivered...)
		o.Courier.Name = courier
		if row := OrderOf(o, kebap); row.WithoutCourier != without {
			t.Errorf("courier %q: %+v", courier, row)
		}
	}

	if row := OrderOf(newOrder(account(1), 1, noon, toDelivered[:4]...), kebap); row.WithoutCourier {
		t.Errorf("on its way: %+v", row)
	}
	if row := OrderOf(newOrder(account(1), 1, noon), nil); row.StoreName != "" || row.TaxNumber != "" {
		t.Errorf("%+v", row)
	}
}

func TestEventOf_VersionsOfAnotherLife(t *testing.T) {
	t.Parallel()

	o := newOrder(account(1), 1, noon, delivery.Assigned, delivery.Failed)
	created, assigned, lost := delivery.FirstVersion(o.CreatedAt), o.Changes[0].Version, o.Changes[1].Version
	failed := delivery.NextVersion(assigned, noon.Add(time.Hour), 0)
	o.Version, o.Changes[1].Version = failed, failed
	for version, known := range map[uint64]bool{
		created: true, assigned: true, failed: true,
		delivery.FirstVersion(noon.Add(time.Hour)): false, lost: false, delivery.NextVersion(failed, noon, 0): false, 0: false,
	} {
		e, ok := EventOf(o, version)
		if ok != known || ok && e.Version != version {
			t.Errorf("%x: %+v %t", version, e, ok)
		}
	}

	if e := EventsOf(o); e[0].Version != created || e[2].Version != failed || e[2].Failure != delivery.CustomerRefused {
		t.Errorf("%+v", e)
	}
}

//rule:finance/days-are-cut-at-00-00
func TestBusinessDay_IsCutAtLocalMidnight(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"2026-11-20T23:59:59.999+03:00": "2026-11-20",
		"2026-11-21T00:00:00.000+03:00": "2026-11-21",
		"2026-11-20T21:00:00.000Z":      "2026-11-21",
		"2028-02-29T23:59:59.999+03:00": "2028-02-29",
		"2026-12-31T21:00:00.000Z":      "2027-01-01",
	} {
		at, err := time.Parse(time.RFC3339Nano, text)
		noError(t, err)
		if got := BusinessDay(at); got.Format(time.DateTime) != want+" 00:00:00" || !got.Equal(BusinessDay(got)) {
			t.Errorf("%s: %s", text, got)
		}
	}
}
