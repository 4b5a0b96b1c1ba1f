package archive

import (
	"errors"
	"fmt"
	"math"
	"time"

	"vendorapi/internal/delivery"
)

// table is where rows of R go.
type table[R any] struct {
	name    string
	columns []column[R]
	// check refuses what ClickHouse would store as something else.
	check func(*R) error
}

var orders = table[Order]{
	name: "orders",
	columns: []column[Order]{
		id("account_id", func(o *Order) [16]byte { return o.Account }),
		day("business_day", func(o *Order) time.Time { return o.CreatedAt }),
		id("order_id", func(o *Order) [16]byte { return o.ID }),
		number("version", "UInt64", func(o *Order) uint64 { return o.Version }),
		text("external_order_id", func(o *Order) string { return o.ExternalOrderID }),
		text("external_store_id", func(o *Order) string { return o.ExternalStoreID }),
		unstableText("store_name", func(o *Order) string { return o.StoreName }),
		unstableText("tax_number", func(o *Order) string { return o.TaxNumber }),
		id("fleet_id", func(o *Order) [16]byte { return o.Fleet }),
		text("fleet_name", func(o *Order) string { return o.FleetName }),
		text("status", func(o *Order) string { return o.Status.String() }),
		text("failure_reason", func(o *Order) string { return string(o.Failure) }),
		text("cancel_reason", func(o *Order) string { return string(o.Cancel) }),
		moment("created_at", func(o *Order) time.Time { return o.CreatedAt }),
		optionalMoment("ordered_at", func(o *Order) time.Time { return o.OrderedAt }),
		moment("ready_at", func(o *Order) time.Time { return o.ReadyAt }),
		optionalMoment("assigned_at", func(o *Order) time.Time { return o.AssignedAt }),
		optionalMoment("picked_up_at", func(o *Order) time.Time { return o.PickedUpAt }),
		optionalMoment("delivered_at", func(o *Order) time.Time { return o.DeliveredAt }),
		optionalMoment("ended_at", func(o *Order) time.Time { return o.EndedAt }),
		moment("updated_at", func(o *Order) time.Time { return o.UpdatedAt }),
		text("payment_type", func(o *Order) string { return o.PaymentType.String() }),
		amount("order_amount", func(o *Order) delivery.Money { return o.OrderAmount }),
		amount("collection_amount", func(o *Order) delivery.Money { return o.Collection }),
		unstableText("courier_name", func(o *Order) string { return o.CourierName }), // a swap raises no version
		flag("without_courier", func(o *Order) bool { return o.WithoutCourier }),
	},
	check: func(o *Order) error {
		return errors.Join(
			checkTimes(o.CreatedAt, o.ReadyAt, o.UpdatedAt),
			checkOptionalTimes(o.OrderedAt, o.AssignedAt, o.PickedUpAt, o.DeliveredAt, o.EndedAt),
			checkMoney("order_amount", o.OrderAmount),
			checkMoney("collection_amount", o.Collection),
			checkStatus(o.Status),
		)
	},
}

var orderEvents = table[Event]{
	name: "order_events",
	columns: []column[Event]{
		id("account_id", func(e *Event) [16]byte { return e.Account }),
		day("business_day", func(e *Event) time.Time { return e.CreatedAt }),
		id("order_id", func(e *Event) [16]byte { return e.Order }),
		number("sequence", "UInt32", func(e *Event) uint32 { return delivery.Sequence(e.Version) }),
		number("version", "UInt64", func(e *Event) uint64 { return e.Version }),
		text("status", func(e *Event) string { return e.Status.String() }),
		moment("at", func(e *Event) time.Time { return e.At }),
		text("failure_reason", func(e *Event) string { return string(e.Failure) }),
		text("cancel_reason", func(e *Event) string { return string(e.Cancel) }),
	},
	check: func(e *Event) error {
		return errors.Join(checkTimes(e.CreatedAt, e.At), checkStatus(e.Status))
	},
}

var lateDeliveries = table[LateDelivery]{
	name: "late_deliveries",
	columns: []column[LateDelivery]{
		id("account_id", func(l *LateDelivery) [16]byte { return l.Account }),
		day("business_day", func(l *LateDelivery) time.Time { return l.CreatedAt }),
		id("order_id", func(l *LateDelivery) [16]byte { return l.Order }),
		moment("reported_at", func(l *LateDelivery) time.Time { return l.ReportedAt }),
	},
	check: func(l *LateDelivery) error { return checkTimes(l.CreatedAt, l.ReportedAt) },
}

var webhookOutcomes = table[Outcome]{
	name: "webhook_outcomes",
	columns: []column[Outcome]{
		id("account_id", func(o *Outcome) [16]byte { return o.Account }),
		day("day", func(o *Outcome) time.Time { return o.At }),
		text("event_id", func(o *Outcome) string { return o.EventID }),
		text("event", func(o *Outcome) string { return string(o.Event) }),
		optionalID("order_id", func(o *Outcome) [16]byte { return o.Order }),
		moment("at", func(o *Outcome) time.Time { return o.At }),
		text("state", func(o *Outcome) string { return o.State }),
		number("attempt", "UInt32", func(o *Outcome) uint32 { return uint32(o.Attempt) }),
		number("http_status", "UInt16", func(o *Outcome) uint16 { return uint16(o.HTTPStatus) }),
		text("error", func(o *Outcome) string { return o.Error }),
		number("milliseconds", "UInt32", func(o *Outcome) uint32 { return uint32(o.Milliseconds) }),
		flag("replay", func(o *Outcome) bool { return o.Replay }),
		flag("probe", func(o *Outcome) bool { return o.Probe }),
		number("partition", "UInt16", func(o *Outcome) uint16 { return uint16(o.Partition) }),
		text("entry", func(o *Outcome) string { return o.Entry }),
		number("line", "UInt32", func(o *Outcome) uint32 { return uint32(o.Line) }),
	},
	check: func(o *Outcome) error {
		return errors.Join(
			checkTimes(o.At),
			checkRange("attempt", o.Attempt, math.MaxUint32),
			checkRange("http_status", o.HTTPStatus, math.MaxUint16),
			checkRange("milliseconds", o.Milliseconds, math.MaxUint32),
			checkRange("partition", o.Partition, math.MaxUint16),
			checkRange("line", o.Line, math.MaxUint32),
		)
	},
}

// The days that ClickHouse's Date has, with a margin for zones.
var (
	firstDay = time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(2149, 6, 5, 0, 0, 0, 0, time.UTC)
)

func checkTimes(times ...time.Time) error {
	for _, at := range times {
		if at.Before(firstDay) || at.After(lastDay) {
			return fmt.Errorf("the time %s is not within 1970 to 2149", at.Format(time.RFC3339))
		}
	}
	return nil
}

// checkOptionalTimes takes zero times for absent ones.
func checkOptionalTimes(times ...time.Time) error {
	for _, at := range times {
		if err := checkTimes(at); err != nil && !at.IsZero() {
			return err
		}
	}
	return nil
}

func checkMoney(name string, m delivery.Money) error {
	if m.Minor < 0 || m.Minor > delivery.MaxMoneyMinor {
		return fmt.Errorf("%s is %d kuruş: wanted are 0 to %d", name, m.Minor, delivery.MaxMoneyMinor)
	}
	return nil
}

func checkStatus(s delivery.Status) error {
	if s < delivery.Searching || s > delivery.Cancelled {
		return fmt.Errorf("%s is no status of an order", s)
	}
	return nil
}

func checkRange(name string, value, limit int) error {
	if value < 0 || value > limit {
		return fmt.Errorf("%s is %d: wanted are 0 to %d", name, value, limit)
	}
	return nil
}
