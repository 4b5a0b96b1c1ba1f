package dashboard

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/layout"
	"vendorapi/reporting/svgmap"
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
	if v.personal() {
		if err := p.NoteView(r, v.Account, v.ID); err != nil {
			return err
		}
	}

	return p.Show(w, r, "order", layout.View{Title: "Order " + layout.Short(v.ID), Data: v})
}

// personal reports whether the page has anything of the recipient: what was given, the vendor's notes, or
// what a receiver answered.
func (v *orderView) personal() bool {
	return v.Record != nil && !v.Shrunk() || slices.ContainsFunc(v.Steps, func(s stepView) bool {
		return s.Note != "" || slices.ContainsFunc(s.Attempts, func(a partitions.AttemptRecord) bool { return a.Answer != "" })
	})
}

func (p *Pages) findOrder(ctx context.Context, id delivery.OrderID, v *orderView) error {
	r := p.reading(ctx)
	read(r, "the order as it is in Redis", &v.Record, func(ctx context.Context) (*delivery.Order, error) {
		o, err := p.Ledger.Orders.Get(ctx, id)
		return o, except(err, delivery.CodeOrderNotFound)
	})

	v.Lost = r.wait()
	v.RedisUnavailable = len(v.Lost) > 0
	v.Order = v.Record
	if v.Order != nil {
		v.steps = slices.Concat([]delivery.Change{{Version: 1, Status: delivery.Searching, At: v.CreatedAt}}, v.Changes)
		return nil
	}

	var past *orderRow
	r = p.reading(ctx)
	r.part("the order as it is in ClickHouse", func(ctx context.Context) error {
		found, err := query(ctx, p.archive, orderArgs(delivery.AccountID{}, id), scanOrder, "columns", "order")
		if err != nil || len(found) == 0 {
			return err
		}

		past = found[0]
		if past.unreadable == nil {
			v.steps, err = p.pastChanges(ctx, past.Order)
		}
		return err
	})

	v.Lost = append(v.Lost, r.wait()...)
	switch {
	case past != nil && past.unreadable != nil: // waiting does not help
		return past.unreadable
	case past != nil:
		v.orderRow = *past
		return nil
	case len(v.Lost) > 0: // it is not in Redis, and ClickHouse does not answer
		return &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: 5 * time.Second,
			Message: "whether there is such an order cannot be found out right now: it is not among those that can be read"}
	}

	return errNoOrder
}

func (p *Pages) readMore(ctx context.Context, v *orderView) {
	var live, past []partitions.AttemptRecord
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

		read(more, "recent webhook attempts (Redis)", &live, func(ctx context.Context) ([]partitions.AttemptRecord, error) {
			return p.Ledger.Webhooks.Attempts(ctx, v.Account, "")
		})
	}

	read(more, "earlier webhook attempts (ClickHouse)", &past, func(ctx context.Context) ([]partitions.AttemptRecord, error) {
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
	v.AccountName = cmp.Or(v.AccountName, "account "+layout.Short(v.Account))
	if v.store != nil {
		v.StoreName = v.store.Name
	}

	if v.Record != nil && !v.Shrunk() {
		v.draw()
	}

	v.Steps, v.Omitted = timeline(v.ID, v.steps, mergeAttempts(v.ID, live, past), v.At)
	v.Live = v.RedisUnavailable || v.Record != nil && (!v.Status.Terminal() || v.At.Sub(v.Ended()) < refreshedAfterEnd && waiting(v.Steps))
	v.Tracking = p.TrackingURL(v.ID)
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

// draw draws the places of the order, with the last position of the courier who has it.
func (v *orderView) draw() {
	v.Position = v.Location
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
	retriedFor      = 24 * time.Hour // how long an event is tried (decisions, "Webhooks")
)

type stepView struct {
	delivery.Change
	After    string // since the creation
	EventID  string // empty: the step sends no event
	Attempts []partitions.AttemptRecord
	Omitted  int       // older ones that are not shown
	State    string    // the last attempt's; without one: new, or none when the event is old
	NextAt   time.Time // zero: nothing is planned, as far as is known
	// Due: the time is past, and the breaker or another event of the queue comes first.
	Due bool
}

// changeTitles are what the timeline calls changes that leave the status as it is.
var changeTitles = map[delivery.ChangeKind]string{
	delivery.CourierNamed:    "Courier named",
	delivery.CourierReplaced: "Another courier",
	delivery.EstimateRevised: "Expected at",
}

// Title is the status that was reached, or what changed otherwise.
func (s *stepView) Title() string {
	if s.Kind == delivery.StatusReached {
		return s.Status.String()
	}
	return changeTitles[s.Kind]
}

// ShowsETA reports whether the estimate is what changed.
func (s *stepView) ShowsETA() bool { return s.Kind == delivery.EstimateRevised }

// IsCreation reports whether it is the order's first step.
func (s *stepView) IsCreation() bool { return delivery.Sequence(s.Version) == 1 }

// mergeAttempts are the attempts of an order's events from Redis and ClickHouse,
// each once, oldest first. Those of Redis have the answers.
func mergeAttempts(id delivery.OrderID, live, past []partitions.AttemptRecord) (all []partitions.AttemptRecord) {
	order, seen := id.String(), map[string]bool{}
	for _, a := range slices.Concat(live, past) {
		key := fmt.Sprintln(a.EventID, a.Attempt, a.At.UnixMilli(), a.Replay, a.Probe)
		if a.OrderID == order && !seen[key] {
			seen[key] = true
			all = append(all, a)
		}
	}

	slices.SortStableFunc(all, func(a, b partitions.AttemptRecord) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Attempt, b.Attempt))
	})

	return all
}

// timeline puts the attempts beside their steps; those of lost steps are omitted.
func timeline(id delivery.OrderID, steps []delivery.Change, attempts []partitions.AttemptRecord, now time.Time) (views []stepView, omitted int) {
	byEvent := map[string][]partitions.AttemptRecord{}
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

		if sendsEvent(&steps[i]) {
			v.EventID = delivery.EventID(id, s.Version)
			v.take(byEvent[v.EventID], now)
			omitted -= len(byEvent[v.EventID])
		}
	}

	cutAnswers(views)

	return views, omitted
}

// sendsEvent reports whether a webhook tells of the change: none does of the creation.
func sendsEvent(c *delivery.Change) bool {
	return delivery.Sequence(c.Version) > 1 && c.Kind.EventType() != ""
}

func (s *stepView) take(attempts []partitions.AttemptRecord, now time.Time) {
	s.Omitted = max(len(attempts)-attemptsOfEvent, 0)
	s.Attempts = attempts[s.Omitted:]
	if len(attempts) == 0 {
		switch {
		case slices.Contains(delivery.MutableEvents, s.Kind.EventType()):
			s.State = "optional"
		case now.Sub(s.At) < refreshedAfterEnd:
			s.State = "new"
		default:
			s.State = "none"
		}
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
		return slices.Contains([]string{"new", "none", "optional", "retrying"}, s.State)
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

//go:embed sql/*.sql
var queries embed.FS

func query[T any](ctx context.Context, a *archive.Archive, args map[string]any, scan func(driver.Rows) (T, error), files ...string) (all []T, err error) {
	sql := ""
	for _, name := range files {
		text, err := queries.ReadFile("sql/" + name + ".sql")
		if err != nil {
			return nil, err
		}
		sql += string(text)
	}

	var named []any
	for name, value := range args {
		named = append(named, clickhouse.Named(name, value))
	}

	err = a.Each(ctx, sql, func(rows driver.Rows) error {
		row, err := scan(rows)
		if err != nil {
			return fmt.Errorf("read a row: %w", err)
		}
		all = append(all, row)
		return nil
	}, named...)

	return all, err
}

// creationDays are the local days of the creation: that of the id, which is in UTC, or the next.
func creationDays(id delivery.OrderID) (from, to time.Time) {
	from = archive.BusinessDay(time.Unix(int64(id.Day())*24*60*60, 0))
	return from, from.AddDate(0, 0, 1)
}

func orderArgs(account delivery.AccountID, id delivery.OrderID) map[string]any {
	from, to := creationDays(id)
	return map[string]any{"account": account.String(), "from": layout.ISODay(from), "to": layout.ISODay(to), "order": id.String()}
}

// scanOrder reads what ClickHouse has of an order, with its last change only.
func scanOrder(rows driver.Rows) (*orderRow, error) {
	order := new(delivery.Order)
	o := &orderRow{Order: order}
	var last delivery.Change
	var account, id, fleet uuid.UUID
	var status, payment string
	var ordered *time.Time
	var amount, collection *int64
	err := rows.Scan(&account, &id, &order.Version, &order.ExternalOrderID, &order.ExternalStoreID, &o.StoreName, &fleet, &order.Fleet.Name,
		&status, (*string)(&last.Failure), (*string)(&last.Cancel), &order.CreatedAt, &ordered, &order.ReadyAt, &last.At, &payment, &amount, &collection)
	if err != nil {
		return nil, err
	}

	if ordered != nil {
		order.OrderedAt = *ordered
	}

	order.OrderAmount, order.Payment.CollectionAmount = lira(amount), lira(collection)
	order.ID, order.Account, order.Fleet.ID = delivery.OrderID(id), delivery.AccountID(account), delivery.FleetID(fleet)
	var faults [3]error
	_, faults[0] = delivery.ParseOrderID(id.String())
	order.Status, faults[1] = delivery.ParseStatus(status)
	if payment != "" {
		order.Payment.Type, faults[2] = delivery.ParsePaymentType(payment)
	}

	if err := errors.Join(faults[:]...); err != nil {
		o.unreadable = fmt.Errorf("order %s cannot be understood: %w", id, err)
	}

	last.Version, last.Status = order.Version, order.Status
	order.Changes = []delivery.Change{last}

	return o, nil
}

func lira(kurus *int64) delivery.Money {
	if kurus == nil {
		return delivery.Money{}
	}
	return delivery.Money{Minor: *kurus, Set: true}
}

type pastPage struct {
	rows   []orderRow
	unread int     // rows that could not
	last   *cursor // the last row, read or not; nil when there are no more
}

// pageOf reads at most limit rows. Those that cannot be understood are counted and logged.
func (p *Pages) pageOf(ctx context.Context, s *search, limit int) (page pastPage, err error) {
	after := cmp.Or(s.after, &cursor{created: s.until})
	orders, err := query(ctx, p.archive, map[string]any{
		"from": layout.ISODay(s.since), "to": layout.ISODay(after.created), "since": s.since.UnixMilli(),
		"account": s.query.Get("account"), "latest": s.now.Add(-delivery.LongestLife).UnixMilli(), "after": after.created.UnixMilli(), "after_order": after.order.String(),
		"text": s.text, "folded": delivery.FoldName(s.text), "prefix": s.prefix(), "status": s.query.Get("status"), "limit": limit,
	}, scanOrder, "columns", "orders")

	var first error
	for _, o := range orders {
		if o.unreadable != nil {
			page.unread++
			first = cmp.Or(first, o.unreadable)
		} else {
			page.rows = append(page.rows, *o)
		}
	}

	if n := len(orders); n == limit {
		page.last = cursorOf(orders[n-1].Order)
	}

	if page.unread > 0 {
		p.Log.Warn("rows of the history cannot be understood", "rows", page.unread, "first", first)
	}

	return page, err
}

func (p *Pages) pastChanges(ctx context.Context, o *delivery.Order) ([]delivery.Change, error) {
	return query(ctx, p.archive, orderArgs(o.Account, o.ID), func(rows driver.Rows) (c delivery.Change, err error) {
		var kind, status string
		var eta *time.Time
		if err := rows.Scan(&c.Version, &kind, &status, &c.At, (*string)(&c.Failure), (*string)(&c.Cancel), &c.Courier.Name, &eta); err != nil {
			return c, err
		}

		if eta != nil {
			c.ETA = *eta
		}

		var unknownKind, unknownStatus error
		c.Kind, unknownKind = delivery.ParseChangeKind(kind)
		c.Status, unknownStatus = delivery.ParseStatus(status)

		return c, errors.Join(unknownKind, unknownStatus)
	}, "events")
}

// attemptDays is how long after its creation events of an order can have been sent.
const attemptDays = 31

func (p *Pages) pastAttempts(ctx context.Context, o *delivery.Order, steps []delivery.Change) ([]partitions.AttemptRecord, error) {
	var events []string
	for _, s := range steps {
		if sendsEvent(&s) {
			events = append(events, delivery.EventID(o.ID, s.Version))
		}
	}

	if len(events) == 0 {
		return nil, nil
	}

	from, _ := creationDays(o.ID)
	args := map[string]any{"account": o.Account.String(), "from": layout.ISODay(from), "to": layout.ISODay(from.AddDate(0, 0, attemptDays)), "events": events}

	return query(ctx, p.archive, args, func(rows driver.Rows) (partitions.AttemptRecord, error) {
		a := partitions.AttemptRecord{OrderID: o.ID.String()}
		var number, millis uint32
		var status uint16
		err := rows.Scan(&a.EventID, &a.At, &a.State, &number, &status, &a.Error, &millis, &a.Replay, &a.Probe)
		a.Attempt, a.HTTPStatus, a.Millis = int(number), int(status), int64(millis)

		return a, err
	}, "attempts")
}
