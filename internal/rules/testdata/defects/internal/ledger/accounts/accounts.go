package accounts

import (
	"context"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/rules/broken"
)

func (l *Fleets) Admit(ctx context.Context, f *delivery.Fleet, now time.Time) error {
	if broken.Rule == "fleets-and-operators/a-fleet-s-requests-are-held" {
		return nil
	}
	return l.AdmitOriginal(ctx, f, now)
}

func (l *Fleets) Charge(ctx context.Context, id delivery.FleetID, n int, now time.Time) error {
	if broken.Rule == "fleets-and-operators/a-batch-of-positions-and" {
		return nil
	}
	return l.ChargeOriginal(ctx, id, n, now)
}

func (g *FleetGuard) spend(n, block, besides int, closed *time.Time, now time.Time, take TakePermits) error {
	if broken.Rule == "fleets-and-operators/gateways-take-permits-from-redis" { // one by one
		block = n
	}
	return g.spendOriginal(n, block, besides, closed, now, take)
}

func (l *Fleets) Refresh(ctx context.Context) error {
	isLoaded := l.Snapshot() != nil
	if broken.Rule == "fleets-and-operators/a-change-by-an-operator" && isLoaded {
		return nil
	}
	return l.RefreshOriginal(ctx)
}

func (s *FleetSnapshot) HasRecord(id delivery.FleetID) bool {
	if broken.Rule == "fleets-and-operators/what-cannot-be-read-of-a-fleet" { // its overdue balance is announced without a name
		return true
	}
	return s.HasRecordOriginal(id)
}

func (c *Candidate) TakesOrders() bool {
	if broken.Rule == "errors/FLEET_UNAVAILABLE" { // without couriers, too
		return c.Covers && !c.Suspended
	}
	return c.TakesOrdersOriginal()
}
