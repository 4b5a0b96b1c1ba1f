package reports

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

// sample is what happened, as a test gives it.
type sample struct {
	orders []archive.Order
	late   []archive.LateDelivery
}

var (
	sampleAccounts = []delivery.AccountID{{1}, {2, 0xff}, {0xfe, 3}}
	fleets         = []delivery.FleetID{{7}, {0xf0, 1}}
	// The same store id in several accounts; ids and names that a spreadsheet could
	// take for formulas, and such as a writer could make equal to another one.
	storeIDs   = []string{"moda", "şube-2", "=1+1", "-1001", "'-1001", "\ufeff-1001"}
	storeNames = []string{"Çiğköfteci Ömer, İğdır", "=1+1", "+cmd|' /C calc'!A0", "@SUM(A1:A9)", "-2+3", `Ağa "Usta"; Şube`, " =2+2", "\tSekme", "Satır\nSonu", ""}
)

// turns are moments after which it is another day, month or year.
var turns = []string{
	"2026-11-01T00:00:00.000+03:00", "2026-11-15T00:00:00.000+03:00", "2026-12-01T00:00:00.000+03:00",
	"2027-01-01T00:00:00.000+03:00", "2028-02-29T00:00:00.000+03:00", "2028-03-01T00:00:00.000+03:00",
	"2027-03-01T00:00:00.000+03:00",
}

func moment(s string) time.Time {
	t, err := time.Parse("2006-01-02T15:04:05.000-07:00", s)
	if err != nil {
		panic(err)
	}
	return t
}

// around is a time at, just before, or some time around a turn.
func around(t *rapid.T, label string) time.Time {
	turn := moment(rapid.SampledFrom(turns).Draw(t, label))
	switch rapid.IntRange(0, 3).Draw(t, label+" side") {
	case 0:
		return turn
	case 1:
		return turn.Add(-time.Millisecond)
	default:
		return turn.Add(time.Duration(rapid.Int64Range(-3*86400_000, 3*86400_000).Draw(t, label+" ms")) * time.Millisecond)
	}
}

// lasts is how long an order lives: mostly within 90 minutes, at times 30 days.
func lasts(t *rapid.T) time.Duration {
	if rapid.IntRange(0, 5).Draw(t, "long") == 0 {
		return time.Duration(rapid.Int64Range(0, 30*86400_000).Draw(t, "life")) * time.Millisecond
	}
	return time.Duration(rapid.Int64Range(0, 90*60_000).Draw(t, "life")) * time.Millisecond
}

func drawMoney(t *rapid.T, label string) delivery.Money {
	switch rapid.IntRange(0, 4).Draw(t, label+" kind") {
	case 0:
		return delivery.Money{}
	case 1:
		return delivery.Money{Set: true, Minor: rapid.SampledFrom([]int64{0, 1, delivery.MaxMoneyMinor, 10}).Draw(t, label)}
	default:
		return delivery.Money{Set: true, Minor: rapid.Int64Range(0, 100_000).Draw(t, label)}
	}
}

// newOrder draws one; n distinguishes it from all others.
func newOrder(t *rapid.T, n int) archive.Order {
	account := rapid.SampledFrom(sampleAccounts).Draw(t, "account")
	external := fmt.Sprintf("S-%04d", n)
	o := archive.Order{
		Account: account, Version: 1<<32 | 7, ExternalOrderID: external,
		ExternalStoreID: rapid.SampledFrom(storeIDs).Draw(t, "store"),
		StoreName:       rapid.SampledFrom(storeNames).Draw(t, "name"),
		TaxNumber:       "0123456789",
		Fleet:           rapid.SampledFrom(fleets).Draw(t, "fleet"),
		FleetName:       rapid.SampledFrom([]string{"Hızlı Kurye", "Şimşek Kurye"}).Draw(t, "fleet name"),
		Status:          delivery.Status(rapid.IntRange(int(delivery.Searching), int(delivery.Cancelled)).Draw(t, "status")),
		CreatedAt:       around(t, "created"),
		PaymentType:     delivery.PaymentType(rapid.IntRange(0, int(delivery.Prepaid)).Draw(t, "payment")),
		OrderAmount:     drawMoney(t, "amount"),
		Collection:      drawMoney(t, "collection"),
	}

	if rapid.Bool().Draw(t, "collection is the amount") {
		o.Collection = o.OrderAmount
	}

	if rapid.Bool().Draw(t, "delivered after all") {
		o.Status = delivery.Delivered
	}

	o.ID = delivery.MakeOrderID(n%16, delivery.DayOf(o.CreatedAt), delivery.OrderDigest(account, external))
	o.ReadyAt, o.UpdatedAt = o.CreatedAt.Add(time.Minute), o.CreatedAt
	if rapid.Bool().Draw(t, "ordered") {
		o.OrderedAt = o.CreatedAt.Add(-time.Second)
	}

	if o.Status.Terminal() {
		o.EndedAt = o.CreatedAt.Add(lasts(t))
		if rapid.IntRange(0, 3).Draw(t, "ends at a turn") == 0 {
			if turn := around(t, "ended"); turn.After(o.CreatedAt) && turn.Before(o.CreatedAt.AddDate(0, 0, 29)) {
				o.EndedAt = turn
			}
		}
		o.UpdatedAt = o.EndedAt
	}

	switch o.Status {
	case delivery.Delivered:
		o.PickedUpAt, o.DeliveredAt = o.CreatedAt, o.EndedAt
		o.WithoutCourier = rapid.IntRange(0, 3).Draw(t, "courier") == 0
	case delivery.Failed:
		o.Failure = rapid.SampledFrom([]delivery.FailureReason{delivery.TimedOut, delivery.CustomerRefused}).Draw(t, "failure")
	case delivery.Cancelled:
		o.Cancel, o.CourierName = delivery.CustomerRequest, "Mehmet Y."
	}

	return o
}

// samples generates samples of about size orders.
func samples(size int) *rapid.Generator[sample] {
	return rapid.Custom(func(t *rapid.T) sample {
		var s sample
		for n := range size {
			o := newOrder(t, n)
			s.orders = append(s.orders, o)
			if o.Status != delivery.Failed && o.Status != delivery.Cancelled {
				continue
			}

			for k := range rapid.IntRange(0, 2).Draw(t, "late") {
				s.late = append(s.late, archive.LateDelivery{
					Account: o.Account, CreatedAt: o.CreatedAt, Order: o.ID,
					ReportedAt: o.EndedAt.Add(time.Duration(k+1) * time.Minute),
				})
			}
		}

		return s
	})
}
