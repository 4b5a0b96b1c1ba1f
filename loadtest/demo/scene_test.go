package main

import (
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive/archiveenv"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// The panel opens the orders of the earlier days as it does any other.
func TestEarlier_OrdersHaveIDsOfThisService(t *testing.T) {
	t.Parallel()

	e := archiveenv.New(t)
	today := delivery.MakeOrderID(1000, delivery.DayOf(time.Now()), [delivery.OrderDigestSize]byte{0xab, 11: 0xcd})
	e.ClickHouse.Exec(t, "INSERT INTO "+e.Database+".orders (order_id, business_day, created_at, ended_at, version, status) "+
		"SELECT '"+today.String()+"', toDate(now('Etc/GMT-3')), now(), now(), 1, 'Delivered'")
	var statement strings.Builder
	if err := earlier.Execute(&statement, map[string]int{"DaysAgo": 300, "Share": 100}); err != nil {
		t.Fatal(err)
	}

	e.ClickHouse.Exec(t, strings.ReplaceAll(statement.String(), "delivery.", e.Database+"."))
	id, err := delivery.ParseOrderID(strings.TrimSpace(e.Ask("toString(order_id) FROM " + e.Database + ".orders WHERE business_day < today() - 200")))
	if err != nil || id.Partition() != 1000 || id.Day() != today.Day()-300 || id.Digest() == today.Digest() {
		t.Errorf("%s of partition %d and day %d, want 1000 and %d: %v", id, id.Partition(), id.Day(), today.Day()-300, err)
	}
}
