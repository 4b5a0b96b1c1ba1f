//go:build long

package archive

import (
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

// A reader that is cut off says so: half a day must not look like a whole one.
func TestStored_ClickHouseKilledWhileReading(t *testing.T) {
	t.Parallel()

	e := testserver.DedicatedClickHouse(t)
	a := newArchiveIn(t, e)
	b := &Batch{}
	const all = 2 * rowsAtOnce
	random := make([]byte, 1000) // what cannot be compressed does not fit into the sockets
	for i := range all {
		row := OrderOf(newOrder(account(i%5), i, noon), kebap)
		_, _ = crand.Read(random)
		row.ExternalOrderID = hex.EncodeToString(random)
		b.Orders = append(b.Orders, row)
	}

	noError(t, a.Insert(t.Context(), b))
	n := 0
	err := a.Stored(t.Context(), Selection{From: noon, To: noon}, func(*Stored) error {
		n++
		if n == 10 {
			e.Kill(t)
		}
		return nil
	})
	if !errors.Is(err, delivery.ErrUnavailable) || n >= all {
		t.Errorf("%d of %d orders, then %v", n, all, err)
	}
}
