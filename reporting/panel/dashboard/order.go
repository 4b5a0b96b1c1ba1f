package dashboard

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/panel/svgmap"
)

const (
	positionAge       = 5 * time.Minute // after which a courier's position is old
	refreshedAfterEnd = 25 * time.Hour  // that a page refreshes itself while webhooks are tried
)

type orderView struct {
	orderRow
	At               time.Time
	Lost             []string
	Record           *delivery.Order // what Redis has; nil: all comes from ClickHouse
	RedisUnavailable bool
	Live             bool // the page refreshes itself
	Tracking         string
	Position         delivery.Location
	Map              *svgmap.Map // nil: there is nothing to draw
	Steps            []stepView
	Omitted          int         // attempts that are not shown
	Late             []time.Time // when it is said to have been delivered, reported after its end

	steps []delivery.Change
	store *delivery.Store // nil: not known
}

var errNoOrder = delivery.Refuse(delivery.CodeOrderNotFound, "there is no such order")

// errCannotTell: it is not in Redis, and ClickHouse does not answer.
var errCannotTell = &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: 5 * time.Second,
	Message: "whether there is such an order cannot be found out right now: it is not among those that can be read"}

func (p *Pages) order(w http.ResponseWriter, r *http.Request) error {
	id, err := delivery.ParseOrderID(r.PathValue("id"))
	if err != nil {
		return errNoOrder
	}
	v := &orderView{At: time.Now()}
	if err := p.findOrder(r.Context(), id, v); err != nil {
		return err
	}
	p.readMore(r.Context(), v)
	return p.Show(w, r, "order", layout.View{Title: "Order " + layout.Short(v.ID), Data: v})
}

func (p *Pages) findOrder(ctx context.Context, id delivery.OrderID, v *orderView) error {
	r := p.reading(ctx)
	read(r, "the order as it is in Redis", &v.Record, func(ctx context.Context) (*delivery.Order, error) {
		o, err := p.Ledger.Orders.Get(ctx, id)
		return o, except(err, delivery.CodeOrderNotFound)
	})
	v.Lost = r.wait()
	v.RedisUnavailable = len(v.Lost) > 0
	if v.Order = v.Record; v.Order != nil {
		v.steps = slices.Concat([]delivery.Change{{Version: 1, Status: delivery.Searching, At: v.CreatedAt}}, v.Changes)
		return nil
	}
	var past *pastOrder
	var unreadable error
	r = p.reading(ctx)
	r.part("the order as it is in ClickHouse", func(ctx context.Context) (err error) {
		past, err = p.pastOrder(ctx, id)
		if errors.Is(err, errUnreadable) { // no waiting mends that
			unreadable, err = err, nil
		}
		if err != nil || past == nil {
			return err
		}
		v.steps, err = p.pastChanges(ctx, past.Order)
		return err
	})
	v.Lost = append(v.Lost, r.wait()...)
	switch {
	case unreadable != nil:
		return unreadable
	case past != nil:
		v.orderRow = past.orderRow
		return nil
	case len(v.Lost) > 0:
		return errCannotTell
	}
	return errNoOrder
}

func (p *Pages) readMore(ctx context.Context, v *orderView) {
	var live, past []ledger.AttemptRecord
	more := p.reading(ctx)
	if v.RedisUnavailable { // it is not waited for again
		v.Lost = append(v.Lost, "account and store (Redis)", "recent webhook attempts (Redis)")
	} else {
		more.part("account and store (Redis)", func(ctx context.Context) error {
			a, err := p.Ledger.Accounts.Get(ctx, v.Account)
			if err == nil {
				v.AccountName = a.Name
			}
			store, storeErr := p.Ledger.Stores.Get(ctx, v.Account, v.ExternalStoreID)
			if storeErr == nil {
				v.store = store
			}
			return errors.Join(except(err, delivery.CodeAccountNotFound), except(storeErr, delivery.CodeStoreNotFound))
		})
		read(more, "recent webhook attempts (Redis)", &live, func(ctx context.Context) ([]ledger.AttemptRecord, error) {
			return p.Ledger.Webhooks.Attempts(ctx, v.Account, "")
		})
	}
	read(more, "earlier webhook attempts (ClickHouse)", &past, func(ctx context.Context) ([]ledger.AttemptRecord, error) {
		return p.pastAttempts(ctx, v.Order, v.steps)
	})
	if v.Status.Terminal() && v.Status != delivery.Delivered {
		read(more, "late deliveries (ClickHouse)", &v.Late, func(ctx context.Context) ([]time.Time, error) {
			return query(ctx, p.archive, orderArgs(v.Account, v.ID), func(rows driver.Rows) (at time.Time, err error) {
				return at, rows.Scan(&at)
			}, "late")
		})
	}
	v.Lost = append(v.Lost, more.wait()...)
	if v.AccountName == "" {
		v.AccountName = "account " + layout.Short(v.Account)
	}
	if v.store != nil {
		v.StoreName = v.store.Name
	}
	if v.Record != nil && !v.Shrunk() {
		v.draw()
	}
	v.Steps, v.Omitted = timeline(v.ID, v.steps, mergeAttempts(v.ID, live, past), v.At)
	v.Live = v.RedisUnavailable || v.Record != nil && (!v.Status.Terminal() || v.At.Sub(v.Ended()) < refreshedAfterEnd && waiting(v.Steps))
	if p.TrackingURL != nil {
		v.Tracking = p.TrackingURL(v.ID)
	}
}

func except(err error, code delivery.Code) error {
	if delivery.CodeOf(err) == code {
		return nil
	}
	return err
}

// InProgress reports whether Redis has the order and it has not ended.
func (v *orderView) InProgress() bool { return v.Record != nil && !v.Status.Terminal() }

// Ended is zero before the end.
func (v *orderView) Ended() (at time.Time) {
	if v.Status.Terminal() {
		at = v.UpdatedAt()
	}
	return at
}

// Note is the one on the last change.
func (v *orderView) Note() string { return v.last().Note }

// draw uses the last position: couriers report it by itself and with their updates.
func (v *orderView) draw() {
	v.Position = v.Location
	for _, c := range v.Changes {
		if c.Location.At.After(v.Position.At) {
			v.Position = c.Location
		}
	}
	places := svgmap.Places{Dropoff: &v.Dropoff.Point}
	description := "The drop-off"
	if v.store != nil {
		places.Store, description = &v.store.Point, "The store and the drop-off"
	}
	if !v.Position.IsZero() {
		places.Courier, places.Lost = &v.Position.Point, v.At.Sub(v.Position.At) > positionAge
		description += ", and where the courier was last"
	}
	v.Map = svgmap.Surroundings(places, "Places of the order", description+".")
}

// Bounds of what an order's page shows of its webhooks.
const (
	attemptsOfEvent = 40
	answersOfPage   = 24 << 10       // bytes, the newest first; of those beyond only the beginning is shown
	shortAnswer     = 80             // bytes of such a beginning
	retriedFor      = 24 * time.Hour // how long an event is tried (design section 7)
)

type stepView struct {
	delivery.Change
	After    string // since the creation
	EventID  string // empty: the step sends no event
	Attempts []ledger.AttemptRecord
	Omitted  int       // older ones that are not shown
	State    string    // the last attempt's; without one: new, or none when the event is old
	NextAt   time.Time // zero: nothing is planned, as far as is known
	// Due: the time is past, and the breaker or another event of the queue comes first.
	Due bool
}

// mergeAttempts are the attempts of an order's events from Redis and ClickHouse,
// each once, oldest first. Those of Redis have the answers.
func mergeAttempts(id delivery.OrderID, live, past []ledger.AttemptRecord) (all []ledger.AttemptRecord) {
	type key struct {
		event         string
		attempt       int
		at            int64 // ms
		replay, probe bool
	}
	order, seen := id.String(), map[key]bool{}
	for _, a := range slices.Concat(live, past) {
		k := key{a.EventID, a.Attempt, a.At.UnixMilli(), a.Replay, a.Probe}
		if a.OrderID == order && !seen[k] {
			seen[k] = true
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, func(a, b ledger.AttemptRecord) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Attempt, b.Attempt))
	})
	return all
}

// timeline puts the attempts beside their steps; those of lost steps are omitted.
func timeline(id delivery.OrderID, steps []delivery.Change, attempts []ledger.AttemptRecord, now time.Time) (views []stepView, omitted int) {
	byEvent := map[string][]ledger.AttemptRecord{}
	for _, a := range attempts {
		byEvent[a.EventID] = append(byEvent[a.EventID], a)
	}
	views, omitted = make([]stepView, len(steps)), len(attempts)
	for i, s := range steps {
		v := &views[i]
		v.Change = s
		if i > 0 {
			v.After = layout.Span(max(s.At.Sub(steps[0].At), 0))
		}
		if delivery.Sequence(s.Version) > 1 {
			v.EventID = delivery.EventID(id, s.Version)
			v.take(byEvent[v.EventID], now)
			omitted -= len(byEvent[v.EventID])
		}
	}
	cutAnswers(views)
	return views, omitted
}

func (s *stepView) take(attempts []ledger.AttemptRecord, now time.Time) {
	s.Omitted = max(len(attempts)-attemptsOfEvent, 0)
	s.Attempts = attempts[s.Omitted:]
	switch {
	case len(attempts) > 0:
	case now.Sub(s.At) < refreshedAfterEnd:
		s.State = "new"
		return
	default:
		s.State = "none"
		return
	}
	last := attempts[len(attempts)-1]
	s.State = last.State
	if late := now.Sub(last.NextAt); last.State == "retrying" && !last.NextAt.IsZero() {
		s.Due = late >= 0 && late < retriedFor
		if late < 0 {
			s.NextAt = last.NextAt
		}
	}
}

func waiting(steps []stepView) bool {
	return slices.ContainsFunc(steps, func(s stepView) bool {
		return s.State == "new" || s.State == "none" || s.State == "retrying"
	})
}

func cutAnswers(steps []stepView) {
	left := answersOfPage
	for _, s := range slices.Backward(steps) {
		for j := len(s.Attempts) - 1; j >= 0; j-- {
			a := &s.Attempts[j]
			size := len(template.HTMLEscapeString(a.Answer))
			if size > left && len(a.Answer) > shortAnswer {
				a.Answer = strings.ToValidUTF8(a.Answer[:shortAnswer], "") + "…"
				continue
			}
			left = max(left-size, 0)
		}
	}
}
