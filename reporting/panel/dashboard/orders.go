package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
)

// orderRow is an order in a list.
type orderRow struct {
	ID                 delivery.OrderID
	External           string
	Account            delivery.AccountID
	AccountName        string
	Store, StoreName   string // StoreName is empty while it is not known
	Fleet              delivery.FleetID
	FleetName          string
	Status             delivery.Status
	Failure            delivery.FailureReason
	Cancel             delivery.CancelReason // empty: the vendor gave none
	Created, Ended     time.Time             // Ended is zero before the end
	Payment            delivery.PaymentType
	Amount, Collection delivery.Money
}

// rowOf is the row of an order that is in Redis.
func rowOf(o *delivery.Order) orderRow {
	row := orderRow{ID: o.ID, External: o.ExternalOrderID, Account: o.Account, Store: o.ExternalStoreID,
		Fleet: o.Fleet.ID, FleetName: o.Fleet.Name, Created: o.CreatedAt,
		Payment: o.Payment.Type, Amount: o.OrderAmount, Collection: o.Payment.CollectionAmount}
	row.move(o)
	return row
}

// move takes over what changes of an order.
func (o *orderRow) move(to *delivery.Order) {
	o.Status = to.Status
	if n := len(to.Changes); n > 0 {
		o.Failure, o.Cancel = to.Changes[n-1].Failure, to.Changes[n-1].Cancel
		if to.Status.Terminal() {
			o.Ended = to.Changes[n-1].At
		}
	}
}

// Reason is why the order ended as it did; empty for one that was delivered or
// has not ended.
func (o *orderRow) Reason() string {
	if o.Status == delivery.Cancelled && o.Cancel == "" {
		return "no reason given"
	}
	return string(o.Failure) + string(o.Cancel)
}

// Tone is the colour of the status.
func (o *orderRow) Tone() string { return statusTone(o.Status) }

// StorePath leads to the page of the store.
func (o *orderRow) StorePath() string { return layout.StorePath(o.Account, o.Store, "") }

// found is what a search found.
type found struct {
	rows []orderRow
	next *cursor // nil: that was all
	lost []string
	// past says that ClickHouse was read, and unread how many of its rows this
	// program could not understand.
	past   bool
	unread int
}

// find looks in both places at once.
func (p *Pages) find(ctx context.Context, s *search) *found {
	var live []orderRow
	var past pastPage
	f := new(found)
	r := p.reading(ctx)
	if s.text != "" {
		r.part("live orders (Redis)", func(ctx context.Context) error {
			orders, err := p.ledger.Orders.Find(ctx, s.text)
			for _, o := range orders {
				live = append(live, rowOf(o))
			}
			return err
		})
	}
	r.part("history (ClickHouse)", func(ctx context.Context) (err error) {
		past, err = p.pageOf(ctx, s, pageRows+1)
		f.past = err == nil
		return err
	})
	f.lost = r.wait()
	f.rows, f.next = s.merge(live, past.rows)
	f.unread = past.unread
	if f.next == nil && past.unread > 0 && past.last != nil {
		// Fewer rows than a page: the list goes on behind the last that was read.
		f.next = past.last
		f.rows = slices.DeleteFunc(f.rows, func(o orderRow) bool { return f.next.before(&o) })
	}
	return f
}

// merge puts the rows of both places in order, each order once, and cuts them to
// a page.
func (s *search) merge(live, past []orderRow) (rows []orderRow, next *cursor) {
	known := map[delivery.OrderID]bool{}
	for _, list := range [][]orderRow{live, past} {
		for i := range list {
			if o := &list[i]; !known[o.ID] && s.holds(o) {
				known[o.ID] = true
				rows = append(rows, *o)
			}
		}
	}
	slices.SortFunc(rows, func(a, b orderRow) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(b.ID.String(), a.ID.String())
	})
	if len(rows) > pageRows {
		rows = rows[:pageRows:pageRows]
		last := &rows[pageRows-1]
		next = &cursor{created: last.Created, order: last.ID}
	}
	return rows, next
}

// refresh shows the rows' orders as they are now, where Redis has them: the
// exporter may be behind. Those that have left what was looked for in between
// are dropped.
func (p *Pages) refresh(ctx context.Context, s *search, rows []orderRow) ([]orderRow, error) {
	ids := make([]delivery.OrderID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	orders, _, err := p.ledger.Orders.GetReadable(ctx, ids)
	if err != nil {
		return rows, err
	}
	kept := rows[:0]
	for i, o := range orders {
		if o != nil {
			rows[i].move(o)
		}
		if s.holds(&rows[i]) {
			kept = append(kept, rows[i])
		}
	}
	return kept, nil
}

func (o *orderRow) store() ledger.StoreName {
	return ledger.StoreName{Account: o.Account, ExternalID: o.Store}
}

// namelessStores are the stores of the rows that came without a name: those of Redis.
func namelessStores(rows []orderRow) (nameless []ledger.StoreName) {
	for i := range rows {
		if rows[i].StoreName == "" {
			nameless = append(nameless, rows[i].store())
		}
	}
	return nameless
}

// choice is an entry of a list to choose from.
type choice struct {
	Value, Name string
	Chosen      bool
}

// ordersView is what the template "orders" shows.
type ordersView struct {
	Text, Account     string
	Accounts          []choice // nil: too many to choose from, the id is typed
	Statuses, Periods []choice
	Rows              []orderRow
	Lost              []string
	Past              bool   // ClickHouse was read
	Unread            int    // rows of it that this program cannot understand
	Next, First       string // addresses; empty: there is none
	Longer            string // the same search over a longer period
	LongerName        string
	Period            string // in which was searched
	Filtered          bool
}

func (p *Pages) orders(w http.ResponseWriter, r *http.Request) error {
	s, refused := parseSearch(r.URL.Query(), time.Now())
	if refused == nil && s.redirected(w, r) {
		return nil
	}
	f := &found{past: true}
	if refused == nil {
		f = p.find(r.Context(), s)
	}
	var names accountNames
	more := p.reading(r.Context())
	more.part("names of accounts", func(ctx context.Context) (err error) {
		names, err = p.accountNames(ctx)
		return err
	})
	var stores map[ledger.StoreName]*delivery.Store
	if nameless := namelessStores(f.rows); len(nameless) > 0 {
		more.part("names of stores (Redis)", func(ctx context.Context) (err error) {
			stores, _, err = p.ledger.Stores.GetAll(ctx, nameless) // one that cannot be read has no name
			return err
		})
	}
	if len(f.rows) > 0 {
		more.part("present states (Redis)", func(ctx context.Context) (err error) {
			f.rows, err = p.refresh(ctx, s, f.rows)
			return err
		})
	}
	f.lost = append(f.lost, more.wait()...)
	for i := range f.rows {
		if o := &f.rows[i]; o.StoreName == "" && stores[o.store()] != nil {
			o.StoreName = stores[o.store()].Name
		}
	}
	v := s.view(f, names)
	v.Account = clean(r.URL.Query().Get("account"))
	return p.pages.Show(w, r, "orders", layout.View{Title: "Orders", Refused: refused, Data: v})
}

func (s *search) view(f *found, names accountNames) *ordersView {
	v := &ordersView{Text: s.text, Rows: f.rows, Lost: f.lost, Past: f.past, Unread: f.unread, Period: periodName(s.days), Accounts: s.accountChoices(names),
		Statuses: s.statusChoices(), Periods: s.periodChoices(), Filtered: s.text != "" || !s.account.IsZero() || s.statusValue() != ""}
	for i := range v.Rows {
		v.Rows[i].AccountName = names.of(v.Rows[i].Account)
	}
	if f.next != nil {
		v.Next = s.address(f.next)
	}
	if s.after != nil {
		v.First = s.address(nil)
	}
	for _, days := range periods {
		if days > s.days {
			longer := *s
			longer.days = days
			v.Longer, v.LongerName = longer.address(nil), periodName(days)
			break
		}
	}
	return v
}

// mostAccounts is how many accounts are offered to choose from.
const mostAccounts = 200

func (s *search) accountChoices(names accountNames) []choice {
	if len(names) > mostAccounts || names == nil {
		return nil
	}
	choices := make([]choice, 0, len(names)+1)
	for id, name := range names {
		choices = append(choices, choice{id.String(), name, id == s.account})
	}
	slices.SortFunc(choices, func(a, b choice) int { return strings.Compare(delivery.FoldName(a.Name), delivery.FoldName(b.Name)) })
	return slices.Insert(choices, 0, choice{"", "all", s.account.IsZero()})
}

func (s *search) statusChoices() []choice {
	value := s.statusValue()
	choices := []choice{{"", "all", value == ""}, {openStatus, "in progress", value == openStatus}}
	for status := delivery.Searching; status <= delivery.Cancelled; status++ {
		choices = append(choices, choice{status.String(), status.String(), value == status.String()})
	}
	return choices
}

func (s *search) periodChoices() (choices []choice) {
	for _, days := range periods {
		choices = append(choices, choice{strconv.Itoa(days), periodName(days), days == s.days})
	}
	if !slices.Contains(periods, s.days) {
		choices = append(choices, choice{strconv.Itoa(s.days), periodName(s.days), true})
	}
	return choices
}

func periodName(days int) string {
	switch days {
	case 1:
		return "last 24 hours"
	case 366:
		return "last year"
	}
	return fmt.Sprintf("last %d days", days)
}
