package dashboard

import (
	"context"
	"errors"
	"net/http"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/panel/svgmap"
)

// silence is after how long a courier's position is old.
const silence = 5 * time.Minute

// afterlife is how long a page of an order that has ended refreshes itself while
// its webhooks are still on their way: as long as they are tried.
const afterlife = 25 * time.Hour

// orderView is what the templates of an order's page show.
type orderView struct {
	orderRow
	At      time.Time
	Lost    []string
	InRedis bool // else all comes from ClickHouse
	// RedisAway says that it may well be in Redis, which cannot be read.
	RedisAway bool
	Live      bool // the page refreshes itself
	Tracking  string

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

// PaymentName is how it is paid, in words.
func (o *orderRow) PaymentName() string {
	if o.Payment == delivery.PaymentUnknown {
		return "not given"
	}
	return o.Payment.String()
}

// ToCollect is what the courier was told to collect: nothing of a prepaid order;
// not known without a payment type or an amount.
func (o *orderRow) ToCollect() delivery.Money {
	if o.Payment == delivery.Prepaid {
		return delivery.Money{Set: true}
	}
	if o.Payment == delivery.PaymentUnknown {
		return delivery.Money{}
	}
	return o.Collection
}

// CourierName is shown as vendors see it.
func (v *orderView) CourierName() string { return delivery.AbbreviateName(v.Courier.Name) }

// NoCourier is what stands in the place of a courier. A fleet may report steps
// without ever naming one.
func (v *orderView) NoCourier() string {
	if v.Status == delivery.Searching {
		return "nobody yet"
	}
	return "no courier reported"
}

// errCannotTell is the answer when the order is not in Redis and ClickHouse does
// not say whether it ever was.
var errCannotTell = &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: 5 * time.Second,
	Message: "whether there is such an order cannot be told right now: it is not among those that can be read"}

func (p *Pages) order(w http.ResponseWriter, r *http.Request) error {
	v, err := p.readOrder(r)
	if err != nil {
		return err
	}
	return p.pages.Show(w, r, "order", layout.View{Title: "Order " + layout.Short(v.ID), Data: v})
}

func (p *Pages) orderLive(w http.ResponseWriter, r *http.Request) error {
	v, err := p.readOrder(r)
	if err != nil {
		return err
	}
	return p.pages.Part(w, r, "order-live", v)
}

// orderSources are what both places know of an order.
type orderSources struct {
	id       delivery.OrderID
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
		return nil, delivery.Refuse(delivery.CodeOrderNotFound, "there is no such order")
	}
	s := &orderSources{id: id}
	if err := p.findOrder(r.Context(), s); err != nil {
		return nil, err
	}
	account, events := s.events()
	more := p.reading(r.Context())
	var live, past []ledger.AttemptRecord
	redis := more.part
	if s.away { // it is not waited for again
		redis = func(what string, _ func(context.Context) error) { s.lost = append(s.lost, what) }
	}
	redis("account and store (Redis)", func(ctx context.Context) error { return p.readNames(ctx, account, s) })
	redis("recent webhook attempts (Redis)", func(ctx context.Context) (err error) {
		live, err = p.ledger.Webhooks.Attempts(ctx, account, "")
		return err
	})
	more.part("earlier webhook attempts (ClickHouse)", func(ctx context.Context) (err error) {
		past, err = p.pastAttempts(ctx, account, id, events)
		return err
	})
	if s.undelivered() {
		more.part("late deliveries (ClickHouse)", func(ctx context.Context) (err error) {
			s.late, err = p.lateDeliveries(ctx, account, id)
			return err
		})
	}
	s.lost = append(s.lost, more.wait()...)
	s.attempts = mergeAttempts(id, live, past)
	return p.view(s, time.Now()), nil
}

// findOrder looks into Redis, and into ClickHouse for what is not there.
func (p *Pages) findOrder(ctx context.Context, s *orderSources) error {
	r := p.reading(ctx)
	r.part("the order as it is in Redis", func(ctx context.Context) (err error) {
		s.live, err = p.ledger.Orders.Get(ctx, s.id)
		if delivery.CodeOf(err) == delivery.CodeOrderNotFound {
			err = nil
		}
		return err
	})
	s.lost = r.wait()
	s.away = len(s.lost) > 0
	if s.live != nil {
		return nil
	}
	r = p.reading(ctx)
	var unreadable error
	r.part("the order as it is in ClickHouse", func(ctx context.Context) (err error) {
		s.past, err = p.pastOrder(ctx, s.id)
		if errors.Is(err, errUnreadable) { // no waiting mends that
			unreadable, err = err, nil
		}
		if err != nil || s.past == nil {
			return err
		}
		s.steps, err = p.pastSteps(ctx, s.past.Account, s.id)
		return err
	})
	s.lost = append(s.lost, r.wait()...)
	switch {
	case unreadable != nil:
		return unreadable
	case s.past != nil:
		return nil
	case len(s.lost) > 0:
		return errCannotTell
	}
	return delivery.Refuse(delivery.CodeOrderNotFound, "there is no such order")
}

// events are the ids of the order's webhook events. Its creation has none.
func (s *orderSources) events() (account delivery.AccountID, events []string) {
	if s.live != nil {
		s.steps, account = stepsOf(s.live), s.live.Account
	} else {
		account = s.past.Account
	}
	for _, step := range s.steps {
		if step.event() {
			events = append(events, delivery.EventID(s.id, step.Version))
		}
	}
	return account, events
}

// undelivered reports whether the order has ended otherwise than Delivered.
func (s *orderSources) undelivered() bool {
	var status delivery.Status
	if s.live != nil {
		status = s.live.Status
	} else {
		status = s.past.Status
	}
	return status.Terminal() && status != delivery.Delivered
}

// readNames reads what the order's store and account are called.
func (p *Pages) readNames(ctx context.Context, account delivery.AccountID, s *orderSources) error {
	a, err := p.ledger.Accounts.Get(ctx, account)
	if err == nil {
		s.account = a.Name
	}
	var external string
	if s.live != nil {
		external = s.live.ExternalStoreID
	} else {
		external = s.past.Store
	}
	store, storeErr := p.ledger.Stores.Get(ctx, account, external)
	if storeErr == nil {
		s.store = store
	}
	return errors.Join(known(err, delivery.CodeAccountNotFound), known(storeErr, delivery.CodeStoreNotFound))
}

// known takes a refusal for an answer.
func known(err error, code delivery.Code) error {
	if delivery.CodeOf(err) == code {
		return nil
	}
	return err
}

func (p *Pages) view(s *orderSources, now time.Time) *orderView {
	v := &orderView{At: now, Lost: s.lost, RedisAway: s.away}
	if s.live != nil {
		v.takeLive(s.live)
	} else {
		v.takePast(s.past)
	}
	v.AccountName = s.account
	if v.AccountName == "" {
		v.AccountName = "account " + layout.Short(v.Account)
	}
	if s.store != nil {
		v.StoreName = s.store.Name
	}
	v.Map = s.draw(now)
	v.Steps, v.Omitted = tell(s.id, s.steps, s.attempts, now)
	v.Late = s.late
	v.Live = v.RedisAway || v.InRedis && (!v.Status.Terminal() || now.Sub(v.Ended) < afterlife && waiting(v.Steps))
	if p.TrackingURL != nil {
		v.Tracking = p.TrackingURL(s.id)
	}
	return v
}

func (v *orderView) takeLive(o *delivery.Order) {
	v.orderRow, v.InRedis = rowOf(o), true
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

// position is where the courier was last: couriers tell it by itself and with
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

func (v *orderView) takePast(o *pastOrder) {
	v.orderRow = o.orderRow
	v.Ordered, v.Ready, v.Updated = o.Ordered, o.Ready, o.Updated
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
		places.Courier, places.Lost = &at.Point, now.Sub(at.At) > silence
		description += ", and where the courier was last"
	}
	return svgmap.Surroundings(places, "Places of the order", description+".")
}
