package dashboard

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/reporting/layout"
)

const (
	pageRows  = 50
	mostText  = 128 // characters of what is searched for
	firstDays = 1   // without a text
	textDays  = 7   // with one, or for overdue orders
	longest   = 366 // days
)

var periods = []struct {
	days int
	name string
}{{1, "last 24 hours"}, {7, "last 7 days"}, {30, "last 30 days"}, {90, "last 90 days"}, {longest, "last year"}}

// Values of the status filter besides the statuses of orders.
const (
	openStatus    = "open"
	overdueStatus = "overdue"
)

type search struct {
	query   url.Values         // as it leads to this search again, without after
	text    string             // order id's beginning, external order id, store id, or part of a store's name; empty: all
	account delivery.AccountID // zero: all
	status  delivery.Status    // 0: all
	open    bool               // those that have not ended
	overdue bool               // those that should have ended by themselves, and have not
	now     time.Time
	days    int
	since   time.Time
	until   time.Time
	after   *cursor // nil: the first page
}

func parseSearch(q url.Values, now time.Time) (*search, error) {
	f := &layout.Filters{Values: url.Values{}}
	for _, name := range []string{"q", "account", "status", "days", "after"} {
		f.Set(name, clean(q.Get(name)))
	}

	s := &search{query: f.Values, now: now, until: now.Add(24 * time.Hour), text: f.Get("q")}
	s.overdue = f.Get("status") == overdueStatus
	s.open = s.overdue || f.Get("status") == openStatus
	days := firstDays
	if s.text != "" || s.overdue {
		days = textDays
	}

	if utf8.RuneCountInString(s.text) > mostText {
		f.Refuse("q", fmt.Sprintf("must have at most %d characters", mostText))
		s.text = ""
	}

	s.account = layout.Parsed(f, "account", "must be the name of exactly one account, or an account's id, a UUID of 36 characters", delivery.ParseAccountID)
	if !s.open {
		s.status = layout.Parsed(f, "status", "is no status of an order", delivery.ParseStatus)
	}

	s.days = f.Number("days", fmt.Sprintf("must be a number of days, 1 to %d", longest), 1, longest, days)
	s.after = layout.Parsed(f, "after", "is no place in this list; begin again without it", parseCursor)
	f.Set("days", strconv.Itoa(s.days))
	f.Del("after")
	s.since = now.Add(-time.Duration(s.days) * 24 * time.Hour)

	return s, f.Err()
}

// clean removes control characters, and space and invisible characters around the text.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return strings.TrimFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) })
}

func (s *search) named() (delivery.OrderID, bool) {
	if id, err := delivery.ParseOrderID(strings.ToLower(s.text)); err == nil {
		return id, true
	}
	id, _, err := delivery.ParseEventID(s.text)
	return id, err == nil
}

var idPrefix = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F-]{0,27})?…?$`)

func (s *search) prefix() string {
	if !idPrefix.MatchString(s.text) {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(s.text, "…"))
}

// holds reports whether an order belongs to what is looked for, the text and the
// period aside: those of Redis are found by the whole external id, however old.
func (s *search) holds(o *delivery.Order) bool {
	return (s.account.IsZero() || o.Account == s.account) && (s.status == 0 || o.Status == s.status) &&
		(!s.open || !o.Status.Terminal()) && (!s.overdue || o.Overdue(s.now)) && (s.after == nil || s.after.before(o))
}

func (s *search) address(after *cursor) string {
	if after == nil {
		return layout.Address("/orders", s.query)
	}
	return layout.Address("/orders", s.query, "after", after.String())
}

type cursor struct {
	created time.Time
	order   delivery.OrderID
}

func cursorOf(o *delivery.Order) *cursor { return &cursor{created: o.CreatedAt, order: o.ID} }

// before reports whether an order comes after the cursor's in the list.
func (c *cursor) before(o *delivery.Order) bool {
	if created := o.CreatedAt.UnixMilli() - c.created.UnixMilli(); created != 0 {
		return created < 0
	}
	return o.ID.String() < c.order.String()
}

func (c *cursor) String() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(c.created.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(b, c.order[:]...))
}

func parseCursor(text string) (*cursor, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != 8+len(delivery.OrderID{}) {
		return nil, fmt.Errorf("%q is no place in a list", text)
	}

	c := &cursor{created: time.UnixMilli(int64(binary.BigEndian.Uint64(b))), order: delivery.OrderID(b[8:])}
	if year := c.created.Year(); year < 1970 || year > 2200 {
		return nil, fmt.Errorf("%q lies in the year %d", text, year)
	}
	return c, nil
}

type orderRow struct {
	*delivery.Order
	AccountName, StoreName string // StoreName is empty while it is not known
	unreadable             error  // why a row of ClickHouse cannot be understood: it may be of a newer release
}

func (o orderRow) last() (c delivery.Change) {
	if n := len(o.Changes); n > 0 {
		c = o.Changes[n-1]
	}
	return c
}

// Reason is why the order ended; empty when it was delivered or has not ended.
func (o orderRow) Reason() string {
	last := o.last()
	if o.Status == delivery.Cancelled && last.Cancel == "" {
		return "no reason given"
	}
	return string(last.Failure) + string(last.Cancel)
}

// ToCollect is what the courier had to collect: nothing of a prepaid order;
// not known without a payment type or an amount.
func (o orderRow) ToCollect() delivery.Money {
	switch o.Payment.Type {
	case delivery.Prepaid:
		return delivery.Money{Set: true}
	case delivery.PaymentUnknown:
		return delivery.Money{}
	default:
		return o.Payment.CollectionAmount
	}
}

func (o orderRow) store() accounts.StoreName {
	return accounts.StoreName{Account: o.Account, ExternalID: o.ExternalStoreID}
}

type ordersView struct {
	Text, Account               string
	Accounts, Statuses, Periods []layout.Choice // Accounts nil: too many, the id is typed
	Rows                        []orderRow
	Lost                        []string
	Past                        bool   // ClickHouse was read
	Unread                      int    // rows of it that this program cannot understand
	UnreadLive                  int    // orders in Redis that this program cannot read
	Next, First                 string // addresses; empty: there is none
	Longer                      string // the same search over a longer period
	LongerName                  string
	Period                      string // in which was searched
	Filtered                    bool
}

func (p *Pages) find(ctx context.Context, s *search, v *ordersView) {
	var live liveOrders
	var past pastPage
	r := p.reading(ctx)
	if s.text != "" {
		read(r, "live orders (Redis)", &live, func(ctx context.Context) (liveOrders, error) {
			return p.findLive(ctx, s)
		})
	}

	r.part("history (ClickHouse)", func(ctx context.Context) (err error) {
		past, err = p.pageOf(ctx, s, pageRows+1)
		v.Past = err == nil
		return err
	})

	v.Lost, v.Unread = r.wait(), past.unread
	v.UnreadLive = live.unread
	var rows []orderRow
	for _, o := range live.found {
		rows = append(rows, orderRow{Order: o})
	}

	var next *cursor
	v.Rows, next = s.merge(append(rows, past.rows...))
	if next == nil && past.unread > 0 && past.last != nil {
		// Fewer rows than a page: the list goes on behind the last that was read.
		next = past.last
		v.Rows = slices.DeleteFunc(v.Rows, func(o orderRow) bool { return next.before(o.Order) })
	}

	if next != nil {
		v.Next = s.address(next)
	}
}

// merge sorts the rows, keeps the first of each order, and cuts them to a page.
func (s *search) merge(all []orderRow) (rows []orderRow, next *cursor) {
	known := map[delivery.OrderID]bool{}
	for _, o := range all {
		if !known[o.ID] && s.holds(o.Order) {
			known[o.ID] = true
			rows = append(rows, o)
		}
	}

	slices.SortFunc(rows, func(a, b orderRow) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(b.ID.String(), a.ID.String()))
	})
	if len(rows) > pageRows {
		rows = rows[:pageRows:pageRows]
		next = cursorOf(rows[pageRows-1].Order)
	}

	return rows, next
}

// refresh shows the orders as Redis has them now, and drops those that match no more.
func (p *Pages) refresh(ctx context.Context, s *search, rows []orderRow) ([]orderRow, error) {
	ids := make([]delivery.OrderID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}

	orders, _, err := p.Ledger.Orders.GetReadable(ctx, ids)
	if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
		return rows, err
	}

	kept := rows[:0]
	for i, o := range orders {
		if o != nil {
			rows[i].Order = o
		}
		if s.holds(rows[i].Order) {
			kept = append(kept, rows[i])
		}
	}

	return kept, err
}

func (p *Pages) storeNames(ctx context.Context, rows []orderRow) (map[accounts.StoreName]*delivery.Store, error) {
	nameless := map[accounts.StoreName]bool{}
	for _, o := range rows {
		if o.StoreName == "" {
			nameless[o.store()] = true
		}
	}

	if len(nameless) == 0 {
		return nil, nil
	}

	stores, _, err := p.Ledger.Stores.GetAll(ctx, slices.Collect(maps.Keys(nameless))) // one that cannot be read has no name

	return stores, err
}

func (p *Pages) orders(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	typed := clean(query.Get("account"))
	account, err := p.Lists.FindAccount(r.Context(), typed)
	if err == nil && account != nil { // without Redis it must be an id
		query.Set("account", account.ID.String())
	}

	s, refused := parseSearch(query, time.Now())
	v := &ordersView{Text: s.text, Account: typed, Past: true}
	if refused == nil {
		if id, ok := s.named(); ok {
			http.Redirect(w, r, "/orders/"+id.String(), http.StatusFound)
			return nil
		}
		p.find(r.Context(), s, v)
	}

	var few, names layout.Names
	var stores map[accounts.StoreName]*delivery.Store
	shown := slices.Clone(v.Rows)
	more := p.reading(r.Context())
	read(more, "accounts to choose from", &few, p.Lists.Few.Get)
	if len(shown) > 0 {
		owners := make([]delivery.AccountID, len(shown))
		for i, o := range shown {
			owners[i] = o.Account
		}

		read(more, accountNamesPart, &names, func(ctx context.Context) (layout.Names, error) { return p.Lists.AccountNames(ctx, owners) })
		read(more, "names of stores (Redis)", &stores, func(ctx context.Context) (map[accounts.StoreName]*delivery.Store, error) {
			return p.storeNames(ctx, shown)
		})
		read(more, "present states (Redis)", &v.Rows, func(ctx context.Context) ([]orderRow, error) { return p.refresh(ctx, s, v.Rows) })
	}

	v.Lost = append(v.Lost, more.wait()...)
	for i := range v.Rows {
		o := &v.Rows[i]
		o.AccountName = names.Of(o.Account, "account ")
		if o.StoreName == "" && stores[o.store()] != nil {
			o.StoreName = stores[o.store()].Name
		}
	}

	s.offer(v, few)

	return p.Show(w, r, "orders", layout.View{Title: "Orders", Refused: refused, Data: v})
}

// liveOrders are orders in Redis.
type liveOrders struct {
	found  []*delivery.Order
	unread int // orders whose records cannot be read
}

// findLive looks in Redis for orders with the external id that is searched for: of the account that
// is named, else of all while there are few. Redis has no other way from an external id to its order.
// An order that cannot be read hides no other.
func (p *Pages) findLive(ctx context.Context, s *search) (liveOrders, error) {
	accounts := []delivery.AccountID{s.account}
	var incomplete error
	if s.account.IsZero() {
		few, err := p.Lists.Few.Get(ctx)
		if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
			return liveOrders{}, err
		}

		incomplete = err
		accounts, err = few.AccountIDs()
		if err != nil {
			return liveOrders{}, err
		}
	}

	orders, unreadable, err := p.Ledger.Orders.FindAmong(ctx, accounts, s.text)
	if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
		return liveOrders{}, err
	}

	for _, problem := range unreadable {
		p.Log.Error("an order in Redis cannot be read", "error", problem)
	}

	slices.SortFunc(orders, func(a, b *delivery.Order) int { return b.CreatedAt.Compare(a.CreatedAt) })

	return liveOrders{found: orders, unread: len(unreadable)}, cmp.Or(incomplete, err)
}

func (s *search) offer(v *ordersView, few layout.Names) {
	status := s.query.Get("status")
	v.Filtered = s.text != "" || !s.account.IsZero() || status != ""
	if s.after != nil {
		v.First = s.address(nil)
	}

	v.Accounts = few.Choices(s.query.Get("account"), layout.MostChoices)
	v.Statuses = []layout.Choice{
		{Value: openStatus, Name: "in progress", Chosen: s.open && !s.overdue},
		{Value: overdueStatus, Name: "in progress, should have ended", Chosen: s.overdue},
	}

	for one := delivery.Searching; one <= delivery.Cancelled; one++ {
		v.Statuses = append(v.Statuses, layout.Choice{Value: one.String(), Name: one.String(), Chosen: status == one.String()})
	}

	v.Period = fmt.Sprintf("last %d days", s.days)
	known := false
	for _, one := range periods {
		days := strconv.Itoa(one.days)
		v.Periods = append(v.Periods, layout.Choice{Value: days, Name: one.name, Chosen: one.days == s.days})
		if one.days == s.days {
			v.Period, known = one.name, true
		}
		if one.days > s.days && v.Longer == "" {
			v.Longer, v.LongerName = layout.Address("/orders", s.query, "days", days), one.name
		}
	}

	if !known {
		v.Periods = append(v.Periods, layout.Choice{Value: strconv.Itoa(s.days), Name: v.Period, Chosen: true})
	}
}
