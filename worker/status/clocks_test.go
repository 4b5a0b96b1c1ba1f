package status

import (
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/loadtest/shim"
)

// Of a worker that is an hour ahead Redis is an hour behind.
func TestTimers_WaitForBothClocks(t *testing.T) {
	t.Parallel()
	clocks, err := shim.New(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := clocks.Close(); err != nil {
			t.Error(err)
		}
	})
	b := testenv.NewUnder(t, clocks.Env())
	v := b.Vendor()
	r := newRole(b.Ledger, "w1")
	fresh := v.Order("", time.Now().Add(-time.Minute))
	unfound := v.Order("", time.Now().Add(-16*time.Minute))
	settleFeed(b, r)
	for _, c := range []struct {
		redis time.Duration
		want  delivery.Status
	}{
		{-time.Hour, delivery.Searching},
		{0, delivery.Failed},
		{time.Hour, delivery.Failed},
	} {
		if err := clocks.ShiftClock(c.redis); err != nil {
			t.Fatal(err)
		}
		if err := r.oncePerPartition(t.Context(), r.fireTimers); err != nil {
			t.Fatal(err)
		}
		if o := b.Read(unfound.ID); o.Status != c.want {
			t.Errorf("Redis shifted by %v: an order that waits for 16 minutes is %s, want %s", c.redis, o.Status, c.want)
		}
		if o := b.Read(fresh.ID); o.Status != delivery.Searching {
			t.Errorf("Redis shifted by %v: an order that waits for a minute is %s", c.redis, o.Status)
		}
	}
}
