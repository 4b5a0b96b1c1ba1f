package watch

import (
	"os"
	"strconv"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
)

// benchOrders is how many orders of 30 days the searches are measured with; the
// environment variable WATCH_ORDERS says another number.
const benchOrders = 200_000

// BenchmarkSearch measures what ClickHouse takes for pages of orders, and for one
// order.
func BenchmarkSearch(b *testing.B) {
	orders := benchOrders
	if text := os.Getenv("WATCH_ORDERS"); text != "" {
		var err error
		orders, err = strconv.Atoi(text)
		must(b, err)
	}
	e := testserver.SharedClickHouse(b)
	database := e.NewDatabase(b)
	a, err := archive.Open(archive.Settings{URL: e.URL, Database: database})
	must(b, err)
	defer a.Close()
	_, err = a.Migrate(b.Context())
	must(b, err)
	insertOrders(b, e, database, orders, 30*24*time.Hour/time.Duration(orders))
	p := &Pages{archive: a}
	now := time.Now()
	var some delivery.OrderID
	for name, s := range map[string]search{
		"newest/day":          {days: 1},
		"newest/month":        {days: 30},
		"failed/month":        {days: 30, status: delivery.Failed},
		"external-id/week":    {days: 7, text: "A-77"},
		"external-id/month":   {days: 30, text: "A-77"},
		"store-name/month":    {days: 30, text: "isparta 4"},
		"nothing-found/month": {days: 30, text: "nowhere"},
	} {
		s.since, s.until = now.Add(-time.Duration(s.days)*24*time.Hour), now.Add(24*time.Hour)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				page, err := p.pageOf(b.Context(), &s, pageRows+1)
				must(b, err)
				if len(page) > 0 {
					some = page[0].ID
				}
			}
		})
	}
	b.Run("one-order", func(b *testing.B) {
		for b.Loop() {
			if o, err := p.pastOrder(b.Context(), some); err != nil || o == nil {
				b.Fatal(o, err)
			}
		}
	})
}
