package ledger

import (
	"context"
	"errors"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/rules/broken"
)

// editLua changes what a script or a part of all has: a local function in front of a script takes the
// place of that of the parts, and one behind a part that of an earlier one.
func (c *Config) editLua(file, text string) string {
	const call = "local earlier_call = call\nlocal function call(command, ...)\n"
	text = c.editLuaOriginal(file, text)
	switch broken.Rule + " " + file {
	case "store-states/orders-are-accepted-only-for create_order": // every store is Active
		return call + `local found = earlier_call(command, ...)
			if command == 'MGET' and found[3] then found[3] = sub(found[3], 1, 1) .. '\3' .. sub(found[3], 3) end
			return found
			end
			` + text
	case "limits-and-idempotency/idempotency-scope-account-key idempotency": // the body is not compared
		return text + `
			local compared = earlier_success
			local function earlier_success(record, same, fingerprint, now, near)
			  return compared(record, same, record and sub(record, 1, 16) or same and sub(same, 61, 76), now, near)
			end
			`
	case "states/cancel-against-pickup-a-pickup cancel_order":
		return "local function order_reported() return 0 end\n" + text
	case "order-states/PickedUp cancel_order": // what was collected can be cancelled
		return "ARGV[7], ARGV[8] = '5', '9'\n" + text
	case "order-states/searching-assigned-pickingup-to-cancelled cancel_order":
		return "ARGV[7] = '0'\n" + text
	case "limits-and-idempotency/the-clock-is-redis-s-own clock":
		return text + `
			local once = clock
			local function clock() once() return once() end
			`
	case "limits-and-idempotency/sustained-excess-in-at-least count_minutes": // in four minutes
		return "ARGV[5] = '4'\n" + text
	case "fleets-and-operators/what-an-order-holds-already report_update": // an equal courier is another report
		return `local telling = order_courier
			local function order_courier(order, courier)
			  local whose = telling(order, courier)
			  if whose == 'same' then return 'corrected' end
			  return whose
			end
			` + text
	case "fleets-and-operators/what-is-no-step-forward report_update": // once more
		return "ARGV[8] = ARGV[8] + 1\n" + text
	case "webhooks/an-event-waits-at-most queue_replays":
		return call + `if command == 'ZADD' then return 0 end
			return earlier_call(command, ...)
			end
			` + text
	}
	return text
}

func (l *Orders) Create(ctx context.Context, c *Creation) (Created, Quota, error) {
	created, quota, err := l.CreateOriginal(ctx, c)
	switch broken.Rule {
	case "limits-and-idempotency/never-an-order-without-its": // it is accepted while nothing can be counted
		if errors.Is(err, delivery.ErrUnavailable) {
			return Created{Order: &c.order}, quota, nil
		}
	case "what-the-service-does/facts-that/the-service-never-retries-a":
		for try := 0; errors.Is(err, delivery.ErrUnavailable) && try < 5; try++ {
			time.Sleep(time.Second)
			created, quota, err = l.CreateOriginal(ctx, c)
		}
	}
	return created, quota, err
}

func refusedReport(reply string, o *delivery.Order, u *delivery.Update) error {
	if broken.Rule == "fleets-and-operators/of-an-ended-order-one" {
		return nil
	}
	return refusedReportOriginal(reply, o, u)
}

func (l *Lifecycle) Trim(ctx context.Context, partition int, keep time.Duration) (int64, error) {
	if broken.Rule == "fleets-and-operators/what-is-decided-is-trimmed" {
		return 0, nil
	}
	return l.TrimOriginal(ctx, partition, keep)
}

func (l *Limits) CountFailedLogin(ctx context.Context, clientID, address string) error {
	if broken.Rule == "limits-and-idempotency/redis_rate" { // whoever guesses shuts the owner out
		address = ""
	}
	return l.CountFailedLoginOriginal(ctx, clientID, address)
}

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

func (g *fleetGuard) spend(n, block, besides int, closed *time.Time, now time.Time, take takePermits) error {
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

func (l *Webhooks) Delete(ctx context.Context, account delivery.AccountID) error {
	if broken.Rule == "webhooks/without-a-registered-url-events" {
		return nil
	}
	return l.DeleteOriginal(ctx, account)
}

func open(ctx context.Context, cfg Config) (*Ledger, error) {
	if broken.Rule == "limits/rules/4" {
		cfg.Environment = delivery.Sandbox
	}
	return openOriginal(ctx, cfg)
}

func (c *Candidate) takesOrders() bool {
	if broken.Rule == "errors/FLEET_UNAVAILABLE" { // without couriers, too
		return c.Covers && !c.Suspended
	}
	return c.takesOrdersOriginal()
}

func packLimit(e Endpoint, limit delivery.EndpointLimit, suspended bool) string {
	switch broken.Rule {
	case "limits-and-idempotency/per-account-and-endpoint-an": // one more than the window
		limit.Sustained.Count++
	case "limits-and-idempotency/post-orders": // one of the two windows is forgotten
		if e == EndpointOrders && limit.Burst.Count > 0 {
			limit.Sustained = delivery.Window{}
		}
	case "limits-and-idempotency/put-stores": // the bucket is larger
		if e == EndpointStores {
			limit.Burst.Count++
		}
	}
	return packLimitOriginal(e, limit, suspended)
}

func (a *AttemptRecord) appendLine(b []byte, kind byte) []byte {
	if broken.Rule == "webhooks/every-attempt-is-recorded-time" { // not how long it took
		record := *a
		record.Millis = 0
		a = &record
	}
	return a.appendLineOriginal(b, kind)
}
