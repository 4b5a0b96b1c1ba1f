package validate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/loadtest/harness"
)

// Sources is where the facts come from.
type Sources struct {
	Ledger        *ledger.Ledger
	Redis         redis.UniversalClient // of the ledger's server or cluster, with a right to all keys
	ClickHouseURL string                // empty: nothing is exported, and Gather cannot be called without Stored
	Stored        func() Archive        // what stands for ClickHouse; optional
	Inboxes       []*Inbox
	Accounts      []Account
	Calm          bool // see Facts
}

// Settle returns when the system is at rest three times in a row, since one look may miss an entry between two
// queues. When ctx ends first, the error names what is left; progress is called when that has changed.
func (s *Sources) Settle(ctx context.Context, progress func(string)) error {
	last := ""
	atRest := 0 // looks in a row that have found nothing left
	for atRest < 3 {
		unsettled := s.left(ctx)
		if unsettled == "" {
			atRest++
		} else {
			atRest = 0
		}

		if unsettled != "" && unsettled != last {
			last = unsettled
			progress(unsettled)
		}

		if err := harness.Sleep(ctx, 250*time.Millisecond); err != nil {
			return fmt.Errorf("the system has not settled, %s: %w", last, err)
		}
	}

	return nil
}

// left describes why the system has not settled: entries that have yet to be consumed, webhooks of the accounts that wait,
// and orders that have not ended. It returns the text of an error if it cannot find out, and "" if the system has settled.
func (s *Sources) left(ctx context.Context) string {
	var f Facts
	if err := s.readRemains(ctx, &f); err != nil {
		return err.Error()
	}

	var reasons []string
	for _, v := range f.Found {
		if v.Invariant == PendingLeft {
			reasons = append(reasons, v.Text)
		}
	}

	for _, w := range f.Remains {
		isOfAccounts := slices.ContainsFunc(s.Accounts, func(a Account) bool { return a.ID == w.Account })
		if isOfAccounts && len(w.Waiting) > 0 {
			reasons = append(reasons, fmt.Sprintf("%d webhooks of %s", len(w.Waiting), w.Account))
		}
	}

	stats, err := s.Ledger.Monitor.Stats(ctx)
	if err != nil {
		return strings.Join(append(reasons, err.Error()), ", ")
	}

	haveCouriers := slices.ContainsFunc(s.Accounts, func(a Account) bool { return a.Couriers })
	if haveCouriers && stats.InFlight > 0 {
		reasons = append(reasons, fmt.Sprintf("%d orders that have not ended", stats.InFlight))
	}

	return strings.Join(reasons, ", ")
}

// Gather reads the facts from every source. The system must have settled. It returns nil facts with an error.
func (s *Sources) Gather(ctx context.Context) (*Facts, error) {
	f := &Facts{At: time.Now(), Accounts: s.Accounts, Calm: s.Calm}
	readers := []func(context.Context, *Facts) error{
		s.readOrders,
		s.readRefused,
		s.readPublished,
		s.readRemains,
		s.readArchive,
	}
	for _, read := range readers {
		if err := read(ctx, f); err != nil {
			return nil, fmt.Errorf("gathering the facts: %w", err)
		}
	}

	for _, inbox := range s.Inboxes {
		f.Arrivals = append(f.Arrivals, inbox.Arrivals()...)
	}

	return f, nil
}

// found adds a violation that was found while the facts were read. subject is the order, event or account it is about.
func (f *Facts) found(i Invariant, subject, format string, args ...any) {
	f.Found = append(f.Found, Violation{i, []string{subject}, fmt.Sprintf(format, args...)})
}

func (s *Sources) readOrders(ctx context.Context, f *Facts) error {
	var all []*delivery.Order
	seen := make(map[delivery.OrderID]bool)
	err := s.Ledger.Orders.Each(ctx, func(orders []*delivery.Order) error {
		for _, o := range orders {
			if seen[o.ID] { // a scan may return one twice
				continue
			}

			seen[o.ID] = true
			all = append(all, o)

			order := Order{
				ID:       o.ID.String(),
				Account:  o.Account.String(),
				External: o.ExternalOrderID,
				Status:   o.Status.String(),
				Version:  o.Version,
				Created:  o.CreatedAt,
				Content:  Content(&o.OrderDraft),
				Row:      rowOf(o),
			}

			for _, c := range o.Changes {
				order.Couriers = append(order.Couriers, c.Courier.Phone)
				order.Changes = append(order.Changes, Change{
					Between: c.Kind != delivery.StatusReached,
					Silent:  c.Kind.EventType() == "",
					Status:  c.Status.String(),
					Version: c.Version,
					At:      c.At,
					Failure: string(c.Failure),
				})
			}

			f.Orders = append(f.Orders, order)
		}

		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}

	if err != nil {
		f.found(Unreadable, "", "%v", err)
	}

	inconsistent, err := s.reader().inconsistentIndexes(ctx, all)
	f.Found = append(f.Found, inconsistent...)

	return err
}

// readRefused reads the newest refused reports. A round makes a hundred or two.
func (s *Sources) readRefused(ctx context.Context, f *Facts) error {
	const newest = 1000
	refused, err := s.Ledger.Monitor.RefusedUpdates(ctx, newest)
	for _, r := range refused {
		found := Refused{Kind: kindOfUpdate[r.Update.Kind], Order: r.Update.Order.String()}
		if r.Update.Kind == delivery.KindStatus {
			found.Reported = r.Update.Status.String()
		} else {
			found.Courier = r.Update.Courier.Phone
		}
		f.Refused = append(f.Refused, found)
	}

	return err
}

func (s *Sources) readPublished(ctx context.Context, f *Facts) error {
	return s.Ledger.Streams.EachEntry(ctx, ledger.RoleWebhook, time.Time{}, func(entries []partitions.Entry) error {
		for _, e := range entries {
			for _, event := range e.Events {
				if !event.Order.IsZero() && event.Version != 0 {
					f.Published = append(f.Published, Subject(event.Order.String(), delivery.Sequence(event.Version)))
				}
			}
		}
		return nil
	})
}

func (s *Sources) readRemains(ctx context.Context, f *Facts) error {
	reader := s.reader()
	left, err := reader.unsettledGroups(ctx)
	if err != nil {
		return err
	}

	isExported := s.ClickHouseURL != "" || s.Stored != nil
	for _, u := range left {
		if isExported || u.group != ledger.RoleExport {
			f.found(PendingLeft, u.stream, "in partition %d %d entries of group %s are unread and %d pending",
				u.partition, u.unread, u.group, u.pending)
		}
	}

	f.Remains, err = reader.remains(ctx)
	if err != nil {
		return err
	}

	letters, err := s.Ledger.Monitor.DeadLetters(ctx, 100)
	for _, l := range letters {
		f.found(DeadLettered, l.Fields["order"], "%s gave up an entry of %s: %s", l.Role, l.Stream, l.Reason)
	}

	return err
}

// column is what Redis and ClickHouse must agree on: a name for reports and a String in ClickHouse. Times are
// milliseconds since 1970, amounts are kuruş, and NULL is empty.
type column struct{ name, sql string }

var orderColumns = []column{
	{"order", "toString(order_id)"}, {"account", "toString(account_id)"}, {"external id", "external_order_id"},
	{"status", "toString(status)"}, {"version", "toString(version)"}, {"creation", milliseconds("created_at")},
	{"failure reason", "toString(failure_reason)"}, {"cancel reason", "toString(cancel_reason)"},
	{"store", "external_store_id"}, {"fleet", "toString(fleet_id)"}, {"payment", "toString(payment_type)"},
	{"order amount", minor("order_amount")}, {"collection amount", minor("collection_amount")},
	{"orderedAt", milliseconds("ordered_at")}, {"readyAt", milliseconds("ready_at")}, {"updatedAt", milliseconds("updated_at")},
	{"assignment", milliseconds("assigned_at")}, {"pickup", milliseconds("picked_up_at")},
	{"delivery", milliseconds("delivered_at")}, {"end", milliseconds("ended_at")},
}

var stepColumns = []column{
	{"order", "toString(order_id)"}, {"account", "toString(account_id)"}, {"sequence", "toString(sequence)"},
	{"version", "toString(version)"}, {"status", "toString(status)"},
	{"time", milliseconds("at")}, {"failure reason", "toString(failure_reason)"},
}

func milliseconds(name string) string {
	return "ifNull(toString(toUnixTimestamp64Milli(" + name + ")), '')"
}

func minor(name string) string { return "ifNull(toString(toInt64(" + name + " * 100)), '')" }

func rowOf(o *delivery.Order) []string {
	var last delivery.Change
	var ended time.Time
	reached := make(map[delivery.Status]time.Time)
	for _, last = range o.Changes {
		if last.Kind != delivery.StatusReached {
			continue
		}
		reached[last.Status] = last.At
		if last.Status.Terminal() {
			ended = last.At
		}
	}

	return []string{
		o.ID.String(), o.Account.String(), o.ExternalOrderID, o.Status.String(), fmt.Sprint(o.Version), millis(o.CreatedAt),
		string(last.Failure), string(last.Cancel), o.ExternalStoreID, o.Fleet.ID.String(), o.Payment.Type.String(),
		amount(o.OrderAmount), amount(o.Payment.CollectionAmount), millis(o.OrderedAt), millis(o.ReadyAt), millis(o.UpdatedAt()),
		millis(reached[delivery.Assigned]), millis(reached[delivery.PickedUp]), millis(reached[delivery.Delivered]), millis(ended),
	}
}

// stepRows returns the rows of the order's steps, its creation first, with the columns of stepColumns.
func (o *Order) stepRows() [][]string {
	creation := []string{
		o.ID,
		o.Account,
		"1",
		fmt.Sprint(delivery.FirstVersion(o.Created)),
		delivery.Searching.String(),
		millis(o.Created),
		"",
	}
	rows := [][]string{creation}
	for i, c := range o.Changes {
		rows = append(rows, []string{o.ID, o.Account, fmt.Sprint(i + 2), fmt.Sprint(c.Version), c.Status, millis(c.At), c.Failure})
	}
	return rows
}

func amount(m delivery.Money) string {
	if !m.Set {
		return ""
	}
	return fmt.Sprint(m.Minor)
}

func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprint(t.UnixMilli())
}

func (s *Sources) readArchive(ctx context.Context, f *Facts) error {
	if s.Stored != nil {
		f.Archive = s.Stored()
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	texts := func(columns []column, from string) string {
		var expressions []string
		for _, c := range columns {
			expressions = append(expressions, c.sql)
		}
		return "SELECT " + strings.Join(expressions, ", ") + " FROM delivery." + from + " FORMAT JSONCompact"
	}

	return errors.Join(s.query(ctx, texts(orderColumns, "orders FINAL"), &f.Archive.Orders),
		s.query(ctx, texts(stepColumns, "order_events FINAL ORDER BY sequence"), &f.Archive.Steps),
		s.query(ctx, `SELECT account_id AS account, event_id AS eventId, state, attempt, error, at, probe, replay,
			fromUnixTimestamp64Milli(toInt64OrZero(splitByChar('-', entry)[1])) AS recorded
			FROM delivery.webhook_outcomes FINAL FORMAT JSON`, &f.Archive.Attempts))
}

// query reads the rows of a statement into a slice.
func (s *Sources) query(ctx context.Context, statement string, rows any) error {
	// wait_end_of_query: an error must not come after rows.
	text, err := harness.Fetch(ctx, http.MethodPost, s.ClickHouseURL+"/?wait_end_of_query=1&date_time_output_format=iso", statement)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &struct{ Data any }{rows})
}
