package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/panel/svgmap"
)

const (
	// positionAge is after how long a courier's position is old.
	positionAge = 5 * time.Minute
	// refreshedAfterEnd is how long the page of an order that has ended refreshes
	// itself while its webhooks are in progress: as long as they are tried.
	refreshedAfterEnd = 25 * time.Hour
)

// orderView is what the templates of an order's page show.
type orderView struct {
	orderRow
	At      time.Time
	Lost    []string
	InRedis bool // else all comes from ClickHouse
	// RedisUnavailable says that it may well be in Redis, which cannot be read.
	RedisUnavailable bool
	Live             bool // the page refreshes itself
	Tracking         string

	Ordered, Ready, Updated time.Time
	Pickup, Dropoff         time.Time // estimates; zero: none
	Courier                 delivery.Courier
	Position                delivery.Location
	PackageNote             string
	CancelNote              string
	Reported                delivery.Status // reported and not yet decided; 0: none
	Recipient               *recipient      // nil: not known any more
	Map                     *svgmap.Map     // nil: there is nothing to draw
	Steps                   []stepView
	Omitted                 int         // attempts that are not shown
	Late                    []time.Time // when it is said to have been delivered, reported after its end
}

// recipient is the personal data of an order.
type recipient struct {
	delivery.Recipient
	delivery.Dropoff
}

var errNoOrder = delivery.Refuse(delivery.CodeOrderNotFound, "there is no such order")

// errCannotTell is the answer when the order is not in Redis and ClickHouse does
// not say whether it ever was.
var errCannotTell = &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: 5 * time.Second,
	Message: "whether there is such an order cannot be told right now: it is not among those that can be read"}

func (p *Pages) order(w http.ResponseWriter, r *http.Request) error {
	v, err := p.readOrder(r)
	if err != nil {
		return err
	}
	if layout.IsLive(r) {
		return p.pages.Part(w, r, "order-live", v)
	}
	return p.pages.Show(w, r, "order", layout.View{Title: "Order " + layout.Short(v.ID), Data: v})
}

// orderSources are what Redis and ClickHouse know of an order.
type orderSources struct {
	row      orderRow
	live     *delivery.Order // nil: not in Redis, or
	away     bool            // not to be read
	past     *pastOrder      // read only for what is not in Redis
	steps    []step
	store    *delivery.Store
	account  string
	attempts []ledger.AttemptRecord
	late     []time.Time
	lost     []string
}

// readOrder reads the order first, which tells where the rest is.
func (p *Pages) readOrder(r *http.Request) (*orderView, error) {
	id, err := delivery.ParseOrderID(r.PathValue("id"))
	if err != nil {
		return nil, errNoOrder
	}
	s := new(orderSources)
	if err := p.findOrder(r.Context(), id, s); err != nil {
		return nil, err
	}
	account := s.row.Account
	var live, past []ledger.AttemptRecord
	more := p.reading(r.Context())
	if s.away { // it is not waited for again
		s.lost = append(s.lost, "account and store (Redis)", "recent webhook attempts (Redis)")
	} else {
		more.part("account and store (Redis)", func(ctx context.Context) error { return p.readNames(ctx, s) })
		read(more, "recent webhook attempts (Redis)", &live, func(ctx context.Context) ([]ledger.AttemptRecord, error) {
			return p.ledger.Webhooks.Attempts(ctx, account, "")
		})
	}
	read(more, "earlier webhook attempts (ClickHouse)", &past, func(ctx context.Context) ([]ledger.AttemptRecord, error) {
		return p.pastAttempts(ctx, account, id, eventIDs(id, s.steps))
	})
	if s.row.Status.Terminal() && s.row.Status != delivery.Delivered {
		read(more, "late deliveries (ClickHouse)", &s.late, func(ctx context.Context) ([]time.Time, error) {
			return p.lateDeliveries(ctx, account, id)
		})
	}
	s.lost = append(s.lost, more.wait()...)
	s.attempts = mergeAttempts(id, live, past)
	return p.view(s, time.Now()), nil
}

// findOrder looks into Redis, and into ClickHouse for what is not there.
func (p *Pages) findOrder(ctx context.Context, id delivery.OrderID, s *orderSources) error {
	r := p.reading(ctx)
	read(r, "the order as it is in Redis", &s.live, func(ctx context.Context) (*delivery.Order, error) {
		o, err := p.ledger.Orders.Get(ctx, id)
		return o, except(err, delivery.CodeOrderNotFound)
	})
	s.lost = r.wait()
	s.away = len(s.lost) > 0
	if s.live != nil {
		s.row, s.steps = rowOf(s.live), stepsOf(s.live)
		return nil
	}
	r = p.reading(ctx)
	var unreadable error
	r.part("the order as it is in ClickHouse", func(ctx context.Context) (err error) {
		s.past, err = p.pastOrder(ctx, id)
		if errors.Is(err, errUnreadable) { // no waiting mends that
			unreadable, err = err, nil
		}
		if err != nil || s.past == nil {
			return err
		}
		s.steps, err = p.pastSteps(ctx, s.past.Account, id)
		return err
	})
	s.lost = append(s.lost, r.wait()...)
	switch {
	case unreadable != nil:
		return unreadable
	case s.past != nil:
		s.row = s.past.orderRow
		return nil
	case len(s.lost) > 0:
		return errCannotTell
	}
	return errNoOrder
}

// readNames reads what the order's store and account are called.
func (p *Pages) readNames(ctx context.Context, s *orderSources) error {
	a, err := p.ledger.Accounts.Get(ctx, s.row.Account)
	if err == nil {
		s.account = a.Name
	}
	store, storeErr := p.ledger.Stores.Get(ctx, s.row.Account, s.row.Store)
	if storeErr == nil {
		s.store = store
	}
	return errors.Join(except(err, delivery.CodeAccountNotFound), except(storeErr, delivery.CodeStoreNotFound))
}

// except is err, and nil for one with this code.
func except(err error, code delivery.Code) error {
	if delivery.CodeOf(err) == code {
		return nil
	}
	return err
}

func (p *Pages) view(s *orderSources, now time.Time) *orderView {
	v := &orderView{orderRow: s.row, At: now, Lost: s.lost, RedisUnavailable: s.away, Late: s.late, Map: s.draw(now)}
	if s.live != nil {
		v.takeLive(s.live)
	} else {
		v.Ordered, v.Ready, v.Updated = s.past.Ordered, s.past.Ready, s.past.Updated
	}
	v.AccountName = cmp.Or(s.account, "account "+layout.Short(v.Account))
	if s.store != nil {
		v.StoreName = s.store.Name
	}
	v.Steps, v.Omitted = timeline(v.ID, s.steps, s.attempts, now)
	v.Live = v.RedisUnavailable || v.InRedis && (!v.Status.Terminal() || now.Sub(v.Ended) < refreshedAfterEnd && waiting(v.Steps))
	if p.TrackingURL != nil {
		v.Tracking = p.TrackingURL(v.ID)
	}
	return v
}

func (v *orderView) takeLive(o *delivery.Order) {
	v.InRedis = true
	v.Ordered, v.Ready, v.Updated = o.OrderedAt, o.ReadyAt, o.UpdatedAt()
	v.Courier, v.Position, v.PackageNote = o.Courier, position(o), o.PackageNote
	v.Recipient = &recipient{o.Recipient, o.Dropoff}
	if n := len(o.Changes); n > 0 {
		v.CancelNote = o.Changes[n-1].Note
	}
	if !o.Status.Terminal() {
		v.Pickup, v.Dropoff = o.EstimatedPickup(), o.EstimatedDropoff(o.Version)
		if o.Reported > o.Status {
			v.Reported = o.Reported
		}
	}
}

// position is where the courier was last. Couriers report it by itself and with
// their updates.
func position(o *delivery.Order) delivery.Location {
	last := o.Location
	for _, c := range o.Changes {
		if c.Location.At.After(last.At) {
			last = c.Location
		}
	}
	return last
}

// draw shows where the order's places are; nil when that is not known any more.
func (s *orderSources) draw(now time.Time) *svgmap.Map {
	if s.live == nil {
		return nil
	}
	places := svgmap.Places{Dropoff: &s.live.Dropoff.Point}
	description := "The drop-off"
	if s.store != nil {
		places.Store, description = &s.store.Point, "The store and the drop-off"
	}
	if at := position(s.live); !at.IsZero() {
		places.Courier, places.Lost = &at.Point, now.Sub(at.At) > positionAge
		description += ", and where the courier was last"
	}
	return svgmap.Surroundings(places, "Places of the order", description+".")
}
