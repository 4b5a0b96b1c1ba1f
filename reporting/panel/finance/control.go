package finance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/layout"
	"vendorapi/reporting/reports"
)

const (
	tiesYes, tiesNo             = "yes", "no"
	balanced, differs, changing = "balanced", "differs", "changing" // changing: orders of the period kept changing
)

type controlView struct {
	Result      string
	Differences []difference
	Digests     []digest
	Empty       bool                    // the period has no orders
	Last        *archive.Reconciliation // when Redis and ClickHouse were compared; nil: never, or not known
}

type difference struct{ Line, Figure, Is, Compared, ShouldBe string }

type digest struct{ Title, SHA256, Address string }

func (p *Pages) readControl(ctx context.Context, v *view) error {
	lines, err := reports.ControlLines(ctx, p.archive, v.Filters.params)
	if err != nil {
		return err
	}

	v.Stores, v.Books = p.stores(ctx, v.Filters.params.Account), p.booksOf(ctx, &v.Filters.params)
	v.Read, v.Rows = true, int64(len(lines))
	v.Control = controlViewOf(lines, v.Filters)
	v.Control.Last = p.lastReconciled(ctx)
	v.Table = newTable(control, v.known, nil, lines)

	return nil
}

func resultOf(lines [][]reports.Cell) string {
	result := balanced
	for _, line := range lines {
		switch line[control.Column("ties")].Text {
		case "", tiesYes:
		case tiesNo:
			return differs
		default:
			result = changing
		}
	}

	return result
}

func controlViewOf(lines [][]reports.Cell, f filters) *controlView {
	c := &controlView{Result: resultOf(lines), Empty: true}
	named := map[string][]reports.Cell{}
	for _, line := range lines {
		named[line[control.Column("line")].Text] = line
	}

	for _, line := range lines {
		name, rows := line[control.Column("line")].Text, line[control.Column("rows")]
		c.Empty = c.Empty && (!rows.Given || rows.Number == 0)
		if line[control.Column("ties")].Text == tiesNo {
			c.compare(name, named)
		}

		r, found := reports.Find(name)
		if sum := line[control.Column("sha256")].Text; found && sum != "" {
			c.Digests = append(c.Digests, digest{Title: r.Title, SHA256: sum,
				Address: address("/reports/"+r.Name+".csv", f.Typed) + "&plain=1"}) // the period is always given
		}
	}

	return c
}

// compare compares what was created with the order ledger, everything else with the
// orders that ended in the period.
func (c *controlView) compare(name string, named map[string][]reports.Cell) {
	for i := range control.Columns {
		column, compared := &control.Columns[i], "ended-in-period"
		if column.Key == "created" {
			compared = "order-ledger"
		}

		is, other := named[name][i], named[compared]
		if column.Numeric() && column.Key != "rows" && is.Given && other != nil && other[i].Given && other[i].Number != is.Number {
			c.Differences = append(c.Differences, difference{Line: lineNames[name][0], Figure: column.Heading, Is: write(column.Kind, is.Number),
				Compared: lineNames[compared][0], ShouldBe: write(column.Kind, other[i].Number)})
		}
	}
}

type balanceView struct {
	Result            string // empty while it has not been asked for
	Remark            string // why there is no result
	Fragment, Address string // where the result comes from, and its page
	AtOnce            bool
	Last              *archive.Reconciliation
}

func balanceOf(f filters) balanceView {
	return balanceView{Fragment: address(balancePath, f.Typed), Address: address(pathOf(control), f.Typed)}
}

// lastReconciled is what the pages show besides; without it they are shown as well.
func (p *Pages) lastReconciled(ctx context.Context) *archive.Reconciliation {
	last, err := p.archive.LastReconciliation(ctx)
	if err != nil {
		p.Log.Warn("when Redis and ClickHouse were last compared cannot be read", "error", err)
	}
	return last
}

func (p *Pages) serveBalance(w http.ResponseWriter, r *http.Request) error {
	f, err := readFilters(r, p.directory(r.Context(), typedAccount(r)), time.Now())
	if err != nil {
		return err
	}

	p.findNames(r.Context(), &directory{}, &f.params)
	t := balanceOf(f)
	err = p.within(r.Context(), p.digesting, digestLimit, func(ctx context.Context) error {
		lines, err := reports.ControlLines(ctx, p.archive, f.params)
		t.Result, t.Last = resultOf(lines), p.lastReconciled(ctx)
		return err
	})

	var refused *delivery.Error
	var wrong reports.ParamErrors
	switch {
	case errors.As(err, &wrong):
		return layout.Invalid(senseless, wrong...)
	case errors.As(err, &refused): // it is not this one's turn, or takes too long
		t.Result, t.Remark = "", "Not read: "+refused.Message
	case errors.Is(err, delivery.ErrUnavailable):
		t.Result, t.Remark = "", "Not read: ClickHouse does not answer."
	case err != nil:
		return err
	}

	return p.Part(w, r, "balance", t)
}

const maxTyped = 100 // characters of a value; no right one is longer

type filters struct {
	Typed   reports.Values // as they came, with the period that stands for none
	params  reports.Params
	page    int
	refused bool // the values make no sense, and stand in Typed all the same
}

// readFilters: VALIDATION_FAILED, where refused is set, or MALFORMED_REQUEST.
func readFilters(r *http.Request, known *directory, now time.Time) (f filters, err error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return filters{}, delivery.Refuse(delivery.CodeMalformedRequest, "the address cannot be read")
	}

	var wrong reports.ParamErrors
	f.Typed, wrong = reports.ReadValues(query, "filter", "page")
	f.Typed = f.Typed.Map(func(value string) string { return layout.Beginning(value, maxTyped) })
	f.page, _ = strconv.Atoi(query.Get("page")) // what is no number is the first page
	values := known.named(f.Typed)
	if len(wrong) == 0 {
		f.params, err = values.Parse(now)
	}

	if len(wrong) > 0 || errors.As(err, &wrong) {
		return f.refuse(), layout.Invalid(senseless, wrong...)
	}

	f.Typed = values
	f.Typed.From, f.Typed.To = f.params.From.String(), f.params.To.String()

	return f, err
}

// typedAccount is the account that was typed, as readFilters reads it.
func typedAccount(r *http.Request) string {
	return layout.Beginning(r.URL.Query().Get("account"), maxTyped)
}

func (f filters) refuse() filters {
	f.refused = true
	f.Typed = f.Typed.Map(func(value string) string { return strings.ToValidUTF8(value, "\uFFFD") })
	return f
}

const senseless = "Nothing is shown, because the period or a filter cannot be right."

func address(path string, v reports.Values) string { return layout.Address(path, v.Query()) }

func (f *filters) shortcuts(path string, now time.Time) []layout.Link {
	today := reports.DayOf(now)
	month := today.FirstOfMonth()
	var links []layout.Link
	for _, s := range []struct {
		name     string
		from, to reports.Day
	}{
		{"Today", today, today}, {"Yesterday", today - 1, today - 1}, {"Last 7 days", today - 6, today},
		{"This month", month, today}, {"Last month", (month - 1).FirstOfMonth(), month - 1},
	} {
		v := f.Typed
		v.From, v.To = s.from.String(), s.to.String()
		links = append(links, layout.Link{Name: s.name, Address: address(path, v), Current: v == f.Typed})
	}

	return links
}

const (
	directoryTimeout = 2 * time.Second // for names, which a page can do without
	maxChoices       = 100             // names that a page lists; beyond that a name is typed
	maxStores        = 1000            // similar ones among which a store is looked for
)

// directory has the names that a page needs; they are empty while Redis is unavailable.
type directory struct {
	// Accounts are the account that was typed and those of the rows that are shown.
	Accounts, Fleets layout.Names

	few          layout.Names // of all accounts, to choose from; nil where there are too many
	accountsRead bool         // what was typed has been looked for
	typed, found string       // the account that was typed, and its id
}

// directory reads the names; account is what was typed. What cannot be read is empty, and said in
// the log.
func (p *Pages) directory(ctx context.Context, account string) *directory {
	ctx, cancel := context.WithTimeout(ctx, p.directoryTimeout)
	defer cancel()
	d := directory{Accounts: layout.Names{}, typed: account}
	var group errgroup.Group
	var chosen *delivery.Account
	group.Go(func() (err error) {
		chosen, err = p.Lists.FindAccount(ctx, account)
		d.accountsRead = err == nil
		return err
	})

	read(&group, &d.few, func() (layout.Names, error) { return p.Lists.Few.Get(ctx) })
	read(&group, &d.Fleets, func() (layout.Names, error) { return p.Lists.FleetNames(ctx) })
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		p.Log.Warn("names cannot be read; the filters take ids", "error", err)
	}

	if chosen != nil {
		d.found = chosen.ID.String()
		d.Accounts[d.found] = chosen.Name
	}

	return &d
}

// knowsAccounts reports whether an account that was not found is a mistake: it has been looked for,
// and there are others. A Redis without any account says nothing about those in ClickHouse.
func (d *directory) knowsAccounts() bool {
	hasNone := d.few != nil && len(d.few) == 0
	return d.accountsRead && !hasNone
}

// addAccounts adds the names of the accounts in a report's rows. Without Redis the ids are shown.
func (p *Pages) addAccounts(ctx context.Context, d *directory, report *reports.Report, rows [][]reports.Cell) {
	column := report.Column("accountId")
	if column < 0 {
		return
	}

	var ids []delivery.AccountID
	for _, row := range rows {
		id, err := delivery.ParseAccountID(row[column].Text)
		if err == nil {
			ids = append(ids, id)
		}
	}

	ctx, cancel := context.WithTimeout(ctx, p.directoryTimeout)
	defer cancel()
	names, err := p.Lists.AccountNames(ctx, ids)
	if err != nil {
		p.Log.Warn("names of accounts cannot be read; their ids are shown", "error", err)
	}

	if d.Accounts == nil {
		d.Accounts = layout.Names{}
	}

	maps.Copy(d.Accounts, names)
}

func (d *directory) named(v reports.Values) reports.Values {
	if d.found != "" && v.Account == d.typed {
		v.Account = d.found
	}
	v.Fleet = d.Fleets.Find(v.Fleet)
	return v
}

// Named reads the parameters of downloads, with ids or names. unknown: nobody in Redis has
// such an id or name, so a report without rows is a mistake.
func (p *Pages) Named(ctx context.Context, v reports.Values, now time.Time) (params reports.Params, unknown *delivery.FieldError, err error) {
	known := &directory{}
	if v.Account != "" || v.Fleet != "" {
		known = p.directory(ctx, v.Account)
	}

	params, err = known.named(v).Parse(now)
	if err != nil {
		return reports.Params{}, nil, err
	}
	return params, p.findNames(ctx, known, &params), nil
}

func (p *Pages) findNames(ctx context.Context, known *directory, params *reports.Params) (unknown *delivery.FieldError) {
	find := func(what string, id interface {
		fmt.Stringer
		IsZero() bool
	}, names layout.Names, read bool) string {
		name := names[id.String()]
		if id.IsZero() || name != "" || !read {
			return name
		}
		unknown = &delivery.FieldError{Field: what, Message: "Unknown " + what + ": no " + what + " has the id " + id.String() + "."}
		return ""
	}

	params.AccountName = find("account", params.Account, known.Accounts, known.knowsAccounts())
	params.FleetName = find("fleet", params.Fleet, known.Fleets, len(known.Fleets) > 0)
	id, found := p.storeID(ctx, params.Account, params.Store)
	params.Store = id
	if !found {
		unknown = &delivery.FieldError{Field: "store", Message: "Unknown store: no store has the id or the name “" + id + "”. Ids are compared letter by letter, capitals included."}
	}

	return unknown
}

// findStores is empty, and said in the log, while Redis is unavailable.
func (p *Pages) findStores(ctx context.Context, filter accounts.StoreFilter, most int) (found []*delivery.Store, more, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, p.directoryTimeout)
	defer cancel()
	found, more, err := p.Ledger.Stores.Find(ctx, filter, most)
	if err != nil {
		p.Log.Warn("stores cannot be read; the filter takes ids", "error", err)
		return nil, false, false // a name may be that of a store that was not found, too
	}
	return found, more, true
}

// storeID is the id of a store that was typed: an id as it is, or the name of stores that
// all have one id. known: it is one of both, or that is not known now.
func (p *Pages) storeID(ctx context.Context, account delivery.AccountID, typed string) (id string, known bool) {
	if typed == "" || !utf8.ValidString(typed) {
		return typed, true
	}

	found, more, ok := p.findStores(ctx, accounts.StoreFilter{Account: account, Text: typed}, maxStores)
	folded, ids := delivery.FoldName(typed), map[string]bool{}
	for _, s := range found {
		if s.ExternalID == typed {
			return typed, true
		}
		if delivery.FoldName(s.Name) == folded {
			ids[s.ExternalID], id = true, s.ExternalID
		}
	}

	if len(ids) == 1 && !more {
		return id, true
	}

	return typed, more || !ok
}

// stores are the first maxChoices of an account; nil without an account or Redis.
func (p *Pages) stores(ctx context.Context, account delivery.AccountID) (stores []layout.Choice) {
	if account.IsZero() {
		return nil
	}

	found, _, _ := p.findStores(ctx, accounts.StoreFilter{Account: account}, maxChoices)
	for _, s := range found {
		stores = append(stores, layout.Choice{Value: s.ExternalID, Name: s.Name})
	}
	return stores
}
