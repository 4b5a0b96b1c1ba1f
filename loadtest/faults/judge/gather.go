package judge

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/loadtest/faults/history"
)

// Sources is where the facts come from.
type Sources struct {
	Ledger *ledger.Ledger // opened by the caller, past any proxy
	// ClickHouseURL is HTTP, credentials included; empty: the round has none.
	ClickHouseURL string
	HTTP          *http.Client      // nil: one with a timeout of a minute
	Inboxes       []*Inbox          // the receivers
	Metrics       map[string]string // URL of /metrics by program
	Accounts      []Account
	Calm          bool // see Facts
}

// mostLetters bounds how many dead letters are told; there should be none.
const mostLetters = 100

// Gather reads the facts. The system must have settled.
func (s *Sources) Gather(ctx context.Context) (*Facts, error) {
	f := &Facts{At: time.Now(), Accounts: s.Accounts, Calm: s.Calm}
	for _, read := range []func(context.Context, *Facts) error{s.readOrders, s.readPublished, s.readRemains, s.readLetters, s.readArchive, s.readMetrics} {
		if err := read(ctx, f); err != nil {
			return nil, fmt.Errorf("gathering the facts: %w", err)
		}
	}
	for _, inbox := range s.Inboxes {
		f.Arrivals = append(f.Arrivals, inbox.Arrivals()...)
	}
	return f, nil
}

func (s *Sources) readOrders(ctx context.Context, f *Facts) error {
	var all []*delivery.Order
	seen := make(map[delivery.OrderID]bool)
	err := s.Ledger.Orders.Each(ctx, func(orders []*delivery.Order) error {
		for _, o := range orders {
			if !seen[o.ID] { // a scan may tell one twice
				seen[o.ID] = true
				all = append(all, o)
				f.Orders = append(f.Orders, orderOf(o))
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		f.Unreadable = append(f.Unreadable, err.Error())
	}
	astray, err := s.Ledger.Audit.Astray(ctx, all)
	for _, a := range astray {
		f.Astray = append(f.Astray, Astray{Index: a.Index, Order: a.Order.String(), Says: a.Says})
	}
	return err
}

func orderOf(o *delivery.Order) Order {
	order := Order{ID: o.ID.String(), Account: o.Account.String(), External: o.ExternalOrderID, Status: o.Status.String(),
		Version: o.Version, Created: o.CreatedAt, Print: printOf(o), Content: contentOf(&o.OrderDraft)}
	for _, c := range o.Changes {
		order.Changes = append(order.Changes, Change{Status: c.Status.String(), Version: c.Version, At: c.At, Failure: string(c.Failure)})
		order.Failure = string(c.Failure)
	}
	return order
}

func contentOf(d *delivery.OrderDraft) string {
	minor := func(m delivery.Money) int64 {
		if !m.Set {
			return -1
		}
		return m.Minor
	}
	return history.Content{Store: d.ExternalStoreID, External: d.ExternalOrderID, Recipient: d.Recipient.Name, Phone: d.Recipient.Phone,
		Dropoff: d.Dropoff.Text, Note: d.PackageNote, PaymentType: d.Payment.Type.String(),
		Amount: minor(d.OrderAmount), Collected: minor(d.Payment.CollectionAmount)}.Digest()
}

func (s *Sources) readPublished(ctx context.Context, f *Facts) error {
	return s.Ledger.Streams.EachEntry(ctx, ledger.RoleWebhook, time.Time{}, func(entries []ledger.Entry) error {
		for _, e := range entries {
			if !e.Event.Order.IsZero() && e.Event.Version != 0 {
				f.Published = append(f.Published, Published{Order: e.Event.Order.String(), Version: e.Event.Version})
			}
		}
		return nil
	})
}

func (s *Sources) readRemains(ctx context.Context, f *Facts) error {
	groups, err := s.Ledger.Audit.GroupsLeft(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		f.Unsettled = append(f.Unsettled, Unsettled{Stream: fmt.Sprintf("%s of partition %d", g.Stream, g.Partition),
			Group: string(g.Role), Unread: g.Unread, Pending: g.Pending})
	}
	webhooks, err := s.Ledger.Audit.WebhooksLeft(ctx)
	if err != nil {
		return err
	}
	for _, w := range webhooks {
		f.Remains = append(f.Remains, Remains{Account: w.Account.String(), Queued: subjects(w.Queued), Waiting: subjects(w.Waiting),
			Leased: subjects(w.Leased), Counts: w.Counts, Scheduled: w.Scheduled})
	}
	return nil
}

func subjects(events []ledger.WaitingEvent) []string {
	var names []string
	for _, e := range events {
		switch {
		case !e.Order.IsZero():
			names = append(names, Subject(e.Order.String(), e.Sequence))
		case e.Notice != "":
			names = append(names, e.Notice)
		default:
			names = append(names, "a ping")
		}
	}
	return names
}

func (s *Sources) readLetters(ctx context.Context, f *Facts) error {
	letters, err := s.Ledger.Monitor.DeadLetters(ctx, mostLetters)
	for _, l := range letters {
		f.DeadLetters = append(f.DeadLetters, DeadLetter{Stream: l.Stream, Role: l.Role, Order: l.Fields["order"], Reason: l.Reason})
	}
	return err
}
