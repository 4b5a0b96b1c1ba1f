package dashboard

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
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
	"vendorapi/reporting/panel/layout"
)

const (
	pageRows     = 50
	mostText     = 128 // characters of what is searched for
	firstDays    = 1   // without a text
	textDays     = 7   // with one
	mostAccounts = 200 // that are offered to choose from
)

var periods = []int{1, 7, 30, 90, 366}

const openStatus = "open"

type search struct {
	text    string             // order id's beginning, external order id, store id, or part of a store's name; empty: all
	account delivery.AccountID // zero: all
	status  delivery.Status    // 0: all
	open    bool               // those that have not ended
	days    int
	since   time.Time
	until   time.Time
	after   *cursor // nil: the first page
}

// parseSearch reads the parameters. Wrong ones are refused by name; the rest stands.
func parseSearch(q url.Values, now time.Time) (*search, error) {
	s := &search{text: clean(q.Get("q")), until: now.Add(24 * time.Hour), days: firstDays}
	if s.text != "" {
		s.days = textDays
	}
	f := layout.Filters{Values: url.Values{}}
	if utf8.RuneCountInString(s.text) > mostText {
		f.Refuse("q", fmt.Sprintf("must have at most %d characters", mostText))
		s.text = ""
	}
	var err error
	if text := clean(q.Get("account")); text != "" {
		if s.account, err = delivery.ParseAccountID(text); err != nil {
			f.Refuse("account", "must be an account's id, a UUID of 36 characters")
		}
	}
	switch text := q.Get("status"); text {
	case "":
	case openStatus:
		s.open = true
	default:
		if s.status, err = delivery.ParseStatus(text); err != nil {
			f.Refuse("status", "is no status of an order")
		}
	}
	if text := q.Get("days"); text != "" {
		if days, err := strconv.Atoi(text); err != nil || days < 1 || days > periods[len(periods)-1] {
			f.Refuse("days", fmt.Sprintf("must be a number of days, 1 to %d", periods[len(periods)-1]))
		} else {
			s.days = days
		}
	}
	if text := q.Get("after"); text != "" {
		if s.after, err = parseCursor(text); err != nil {
			f.Refuse("after", "is no place in this list; begin again without it")
		}
	}
	s.since = now.Add(-time.Duration(s.days) * 24 * time.Hour)
	return s, layout.Invalid("this search cannot be understood", f.Faults...)
}

// clean removes what copying brings along: control characters, and space and invisible
// characters around the text.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return strings.TrimFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) })
}

// named is the order whose id, or an event's, the text is.
func (s *search) named() (delivery.OrderID, bool) {
	if id, err := delivery.ParseOrderID(strings.ToLower(s.text)); err == nil {
		return id, true
	}
	id, _, err := delivery.ParseEventID(s.text)
	return id, err == nil
}

// idPrefix is the beginning of an order's id, as lists show it.
var idPrefix = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F-]{0,27})?…?$`)

func (s *search) prefix() string {
	if !idPrefix.MatchString(s.text) {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(s.text, "…"))
}

// holds reports whether a row belongs to what is looked for, the text and the
// period aside: those of Redis are found by the whole external id, however old.
func (s *search) holds(o *orderRow) bool {
	switch {
	case !s.account.IsZero() && o.Account != s.account,
		s.status != 0 && o.Status != s.status,
		s.open && o.Status.Terminal(),
		s.after != nil && !s.after.before(o):
		return false
	}
	return true
}

func (s *search) address(after *cursor) string {
	q := url.Values{"q": {s.text}, "status": {s.statusValue()}, "days": {strconv.Itoa(s.days)}}
	if !s.account.IsZero() {
		q.Set("account", s.account.String())
	}
	if after != nil {
		q.Set("after", after.String())
	}
	return layout.Address("/orders", q)
}

func (s *search) statusValue() string {
	switch {
	case s.open:
		return openStatus
	case s.status != 0:
		return s.status.String()
	}
	return ""
}

type cursor struct {
	created time.Time
	order   delivery.OrderID
}

// before reports whether a row comes after the cursor's in the list.
func (c *cursor) before(o *orderRow) bool {
	if created := o.Created.UnixMilli() - c.created.UnixMilli(); created != 0 {
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

func rowOf(o *delivery.Order) orderRow {
	row := orderRow{ID: o.ID, External: o.ExternalOrderID, Account: o.Account, Store: o.ExternalStoreID,
		Fleet: o.Fleet.ID, FleetName: o.Fleet.Name, Created: o.CreatedAt,
		Payment: o.Payment.Type, Amount: o.OrderAmount, Collection: o.Payment.CollectionAmount}
	row.update(o)
	return row
}

func (o *orderRow) update(from *delivery.Order) {
	o.Status = from.Status
	if n := len(from.Changes); n > 0 {
		o.Failure, o.Cancel = from.Changes[n-1].Failure, from.Changes[n-1].Cancel
		if from.Status.Terminal() {
			o.Ended = from.Changes[n-1].At
		}
	}
}

// Reason is why the order ended; empty when it was delivered or has not ended.
func (o *orderRow) Reason() string {
	if o.Status == delivery.Cancelled && o.Cancel == "" {
		return "no reason given"
	}
	return string(o.Failure) + string(o.Cancel)
}

func (o *orderRow) StorePath() string { return layout.StorePath(o.Account, o.Store, "") }

// ToCollect is what the courier was told to collect: nothing of a prepaid order;
// not known without a payment type or an amount.
func (o *orderRow) ToCollect() delivery.Money {
	switch o.Payment {
	case delivery.Prepaid:
		return delivery.Money{Set: true}
	case delivery.PaymentUnknown:
		return delivery.Money{}
	default:
		return o.Collection
	}
}

func (o *orderRow) store() ledger.StoreName {
	return ledger.StoreName{Account: o.Account, ExternalID: o.Store}
}

type found struct {
	rows   []orderRow
	next   *cursor // nil: there are no more
	lost   []string
	past   bool // ClickHouse was read
	unread int  // rows of it that cannot be understood
}

func (p *Pages) find(ctx context.Context, s *search) *found {
	var live []*delivery.Order
	var past pastPage
	f := new(found)
	r := p.reading(ctx)
	if s.text != "" {
		read(r, "live orders (Redis)", &live, func(ctx context.Context) ([]*delivery.Order, error) {
			return p.ledger.Orders.Find(ctx, s.text)
		})
	}
	r.part("history (ClickHouse)", func(ctx context.Context) (err error) {
		past, err = p.pageOf(ctx, s, pageRows+1)
		f.past = err == nil
		return err
	})
	f.lost, f.unread = r.wait(), past.unread
	var rows []orderRow
	for _, o := range live {
		rows = append(rows, rowOf(o))
	}
	f.rows, f.next = s.merge(append(rows, past.rows...))
	if f.next == nil && past.unread > 0 && past.last != nil {
		// Fewer rows than a page: the list goes on behind the last that was read.
		f.next = past.last
		f.rows = slices.DeleteFunc(f.rows, func(o orderRow) bool { return f.next.before(&o) })
	}
	return f
}

// merge sorts the rows, keeps the first of each order, and cuts them to a page.
func (s *search) merge(all []orderRow) (rows []orderRow, next *cursor) {
	known := map[delivery.OrderID]bool{}
	for _, o := range all {
		if !known[o.ID] && s.holds(&o) {
			known[o.ID] = true
			rows = append(rows, o)
		}
	}
	slices.SortFunc(rows, func(a, b orderRow) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(b.ID.String(), a.ID.String()))
	})
	if len(rows) > pageRows {
		rows = rows[:pageRows:pageRows]
		last := &rows[pageRows-1]
		next = &cursor{created: last.Created, order: last.ID}
	}
	return rows, next
}

// refresh shows the orders as Redis has them now, and drops those that match no more.
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
			rows[i].update(o)
		}
		if s.holds(&rows[i]) {
			kept = append(kept, rows[i])
		}
	}
	return kept, nil
}

// storeNames reads the names that rows of Redis lack.
func (p *Pages) storeNames(ctx context.Context, rows []orderRow) (map[ledger.StoreName]*delivery.Store, error) {
	var nameless []ledger.StoreName
	for i := range rows {
		if rows[i].StoreName == "" {
			nameless = append(nameless, rows[i].store())
		}
	}
	if len(nameless) == 0 {
		return nil, nil
	}
	stores, _, err := p.ledger.Stores.GetAll(ctx, nameless) // one that cannot be read has no name
	return stores, err
}

type ordersView struct {
	Text, Account               string
	Accounts, Statuses, Periods []layout.Choice // Accounts nil: too many, the id is typed
	Rows                        []orderRow
	Lost                        []string
	Past                        bool   // ClickHouse was read
	Unread                      int    // rows of it that this program cannot understand
	Next, First                 string // addresses; empty: there is none
	Longer                      string // the same search over a longer period
	LongerName                  string
	Period                      string // in which was searched
	Filtered                    bool
}

func (p *Pages) orders(w http.ResponseWriter, r *http.Request) error {
	s, refused := parseSearch(r.URL.Query(), time.Now())
	f := &found{past: true}
	if refused == nil {
		if id, ok := s.named(); ok {
			http.Redirect(w, r, "/orders/"+id.String(), http.StatusFound)
			return nil
		}
		f = p.find(r.Context(), s)
	}
	var names accountNames
	var stores map[ledger.StoreName]*delivery.Store
	shown := slices.Clone(f.rows)
	more := p.reading(r.Context())
	read(more, "names of accounts", &names, p.accountNames)
	if len(f.rows) > 0 {
		read(more, "names of stores (Redis)", &stores, func(ctx context.Context) (map[ledger.StoreName]*delivery.Store, error) {
			return p.storeNames(ctx, shown)
		})
		read(more, "present states (Redis)", &f.rows, func(ctx context.Context) ([]orderRow, error) { return p.refresh(ctx, s, f.rows) })
	}
	f.lost = append(f.lost, more.wait()...)
	for i := range f.rows {
		o := &f.rows[i]
		if o.AccountName = names.of(o.Account); o.StoreName == "" && stores[o.store()] != nil {
			o.StoreName = stores[o.store()].Name
		}
	}
	v := s.view(f, names)
	v.Account = clean(r.URL.Query().Get("account"))
	return p.pages.Show(w, r, "orders", layout.View{Title: "Orders", Refused: refused, Data: v})
}

func (s *search) view(f *found, names accountNames) *ordersView {
	v := &ordersView{Text: s.text, Rows: f.rows, Lost: f.lost, Past: f.past, Unread: f.unread, Period: periodName(s.days),
		Filtered: s.text != "" || !s.account.IsZero() || s.statusValue() != ""}
	s.offer(v, names)
	if f.next != nil {
		v.Next = s.address(f.next)
	}
	if s.after != nil {
		v.First = s.address(nil)
	}
	if i := slices.IndexFunc(periods, func(days int) bool { return days > s.days }); i >= 0 {
		longer := *s
		longer.days = periods[i]
		v.Longer, v.LongerName = longer.address(nil), periodName(periods[i])
	}
	return v
}

func (s *search) offer(v *ordersView, names accountNames) {
	if names != nil && len(names) <= mostAccounts {
		v.Accounts = slices.Insert(layout.Choices(names, s.account), 0, layout.Choice{Name: "all", Chosen: s.account.IsZero()})
	}
	status := s.statusValue()
	v.Statuses = []layout.Choice{{Name: "all", Chosen: status == ""}, {Value: openStatus, Name: "in progress", Chosen: s.open}}
	for one := delivery.Searching; one <= delivery.Cancelled; one++ {
		v.Statuses = append(v.Statuses, layout.Choice{Value: one.String(), Name: one.String(), Chosen: status == one.String()})
	}
	offered := periods
	if !slices.Contains(periods, s.days) {
		offered = append(slices.Clone(periods), s.days)
	}
	for _, days := range offered {
		v.Periods = append(v.Periods, layout.Choice{Value: strconv.Itoa(days), Name: periodName(days), Chosen: days == s.days})
	}
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
