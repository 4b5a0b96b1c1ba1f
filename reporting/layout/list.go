package layout

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
)

// longestFilter bounds a filter, in bytes; only texts may be as long. longestCursor bounds a place
// in a list, which may have the name of an account.
const (
	longestFilter = 200
	longestCursor = 1500
)

// Filters are the query parameters of a list, and what is wrong with them.
type Filters struct {
	url.Values
	Faults []delivery.FieldError
}

// FiltersOf keeps the parameters with these names; after an action a page has no filters.
func FiltersOf(r *http.Request, names ...string) *Filters {
	f := &Filters{Values: url.Values{}}
	if r.Method == http.MethodPost {
		return f
	}

	query := r.URL.Query()
	for _, name := range names {
		if value := query.Get(name); value != "" {
			longest := longestFilter
			if name == "after" {
				longest = longestCursor
			}
			f.Set(name, strings.ToValidUTF8(value[:min(len(value), longest)], ""))
		}
	}

	return f
}

// Refuse notes what is wrong with a parameter, and removes it.
func (f *Filters) Refuse(name, message string) {
	f.Faults = append(f.Faults, delivery.FieldError{Field: name, Message: message})
	f.Del(name)
}

// Parsed is a parameter as parse reads it, zero without one. What parse fails on is refused.
func Parsed[T any](f *Filters, name, message string, parse func(text string) (T, error)) (value T) {
	var err error
	if text := f.Get(name); text != "" {
		value, err = parse(text)
		if err != nil {
			f.Refuse(name, message)
		}
	}
	return value
}

// Number is a whole number from least to most, preset without one.
func (f *Filters) Number(name, message string, least, most, preset int) int {
	if f.Get(name) == "" {
		return preset
	}

	n, err := strconv.Atoi(f.Get(name))
	if err != nil || n < least || n > most {
		f.Refuse(name, message)
		return preset
	}
	return n
}

// Page is the number of the page that is asked for, from 1.
func (f *Filters) Page() int {
	return f.Number("page", "must be the number of a page, from 1", 1, math.MaxInt, 1)
}

// Tabs lead to the views of a list by one of its parameters.
func (f *Filters) Tabs(path, name string, values []Choice) (tabs []Link) {
	for _, v := range values {
		tabs = append(tabs, Link{Name: v.Name, Current: f.Get(name) == v.Value, Address: Address(path, f.Values, "page", "", "after", "", name, v.Value)})
	}
	return tabs
}

// Err is VALIDATION_FAILED with what is wrong, nil when nothing is.
func (f *Filters) Err() error { return Invalid("This search cannot be understood.", f.Faults...) }

// Invalid is VALIDATION_FAILED with a message for each field; nil without fields.
func Invalid(message string, fields ...delivery.FieldError) error {
	if len(fields) == 0 {
		return nil
	}
	return &delivery.Error{Code: delivery.CodeValidationFailed, Message: message, Fields: fields}
}

// Address is a path with those parameters of the query that have a value, after changes of
// some: NAME VALUE ….
func Address(path string, query url.Values, changes ...string) string {
	kept := maps.Clone(query)
	for change := range slices.Chunk(changes, 2) {
		kept.Set(change[0], change[1])
	}

	maps.DeleteFunc(kept, func(name string, _ []string) bool { return kept.Get(name) == "" })
	if len(kept) == 0 {
		return path
	}
	return path + "?" + kept.Encode()
}

// Link leads to one of several views. Show links with {{template "tabs" .Links}}.
type Link struct {
	Name, Address string
	Current       bool
}

// Choice is an option of a field. Show choices with {{template "options" .Choices}}.
type Choice struct {
	Value, Name string
	Chosen      bool
}

// Pager is where a page is in a list. Show it with {{template "pager" .Pager}}.
type Pager struct {
	Page, Pages int
	// First and Last are the rows of the page, counted from 1.
	First, Last, Total int
	// Addresses of other pages; empty when this is the one.
	ToFirst, Prev, Next, ToLast string
}

// NewPager finds the page that is asked for. A number beyond the end is the last page.
func NewPager(total, size, page int, path string, query url.Values) Pager {
	pages := max(1, (total+size-1)/size)
	page = min(max(page, 1), pages)
	g := Pager{Page: page, Pages: pages, First: (page-1)*size + 1, Last: min(page*size, total), Total: total}
	to := func(n int) string {
		number := strconv.Itoa(n)
		if n == 1 {
			number = "" // it needs none
		}
		return Address(path, query, "page", number)
	}

	if page > 1 {
		g.ToFirst, g.Prev = to(1), to(page-1)
	}

	if page < pages {
		g.Next, g.ToLast = to(page+1), to(pages)
	}

	return g
}

// Cut is the part of a list that is asked for, with the way to the others.
func Cut[T any](all []T, size int, path string, f *Filters) ([]T, Pager) {
	g := NewPager(len(all), size, f.Page(), path, f.Values)
	return all[g.First-1 : g.Last], g
}

// NoSegment stands in a path for a store's id that no path can hold, because browsers take
// %2E%2E for a step up and the mux a lone %2F for an end; the query then has it, as id.
const NoSegment = "_"

// NextPages leads through a list whose pages have no numbers. Show it with {{template "next-pages" .}}.
type NextPages struct {
	First, Next string // addresses; empty when the page is the first, or the last
}

// NewNextPages makes the links of a page that was asked for with the parameter after. next is the
// cursor of the following page.
func NewNextPages(path string, f *Filters, next string) (g NextPages) {
	if f.Get("after") != "" {
		g.First = Address(path, f.Values, "after", "")
	}
	if next != "" {
		g.Next = Address(path, f.Values, "after", next)
	}
	return g
}

// Following reads a page after the cursor that is asked for. A cursor that no page had is refused,
// and the first page read instead.
func Following[T any](f *Filters, read func(cursor string) (page []T, next string, err error)) ([]T, string, error) {
	page, next, err := read(f.Get("after"))
	if f.Get("after") != "" && delivery.CodeOf(err) == delivery.CodeValidationFailed {
		f.Refuse("after", "is no place in this list; begin again without it")
		return read("")
	}
	return page, next, err
}

// StorePath is the address of a store's page, or of an action of it, such as "/confirm".
func StorePath(account delivery.AccountID, externalID, act string) string {
	path := "/stores/" + account.String() + "/"
	switch externalID {
	case ".", "..", "/":
		return path + NoSegment + act + "?id=" + url.QueryEscape(externalID)
	}
	return path + url.PathEscape(externalID) + act
}

// Lists are what many pages show.
type Lists struct {
	// Few has the names of all accounts while there are at most MostChoices; nil beyond that. With
	// ledger.ErrIncomplete it lacks some.
	Few    Cache[Names]
	ledger *ledger.Ledger
}

// MostChoices is the largest number of accounts that a field may offer to choose from.
const MostChoices = 200

func (l *Lists) readFew(ctx context.Context) (Names, error) {
	var gaps ledger.Gaps
	counts, err := l.ledger.Accounts.Counts(ctx)
	if err := gaps.Allow(err); err != nil || counts.All > MostChoices {
		return nil, err
	}

	accounts, next, incomplete := l.ledger.Accounts.Page(ctx, accounts.AccountFilter{}, "", MostChoices)
	if err := gaps.Allow(incomplete); err != nil || next != "" {
		return nil, err
	}

	names := Names{}
	for _, a := range accounts {
		names[a.ID.String()] = a.Name
	}

	return names, incomplete
}

// AccountNames reads the names of these accounts, and of no others; they are empty with an error, but
// with ledger.ErrIncomplete they only lack some.
func (l *Lists) AccountNames(ctx context.Context, ids []delivery.AccountID) (Names, error) {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b delivery.AccountID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)

	names := Names{}
	read, err := l.ledger.Webhooks.OwnerNames(ctx, ids)
	if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
		return names, err
	}

	for i, id := range ids {
		if read[i] != "" {
			names[id.String()] = read[i]
		}
	}

	return names, err
}

// FindAccount finds the account that was typed: by its id, or by the name of exactly one, in any
// case. It is nil where there is none, or nothing was typed.
func (l *Lists) FindAccount(ctx context.Context, typed string) (*delivery.Account, error) {
	if typed == "" {
		return nil, nil
	}

	account, err := l.ledger.Accounts.Named(ctx, typed)
	if delivery.CodeOf(err) == delivery.CodeAccountNotFound {
		return nil, nil
	}
	return account, err
}

// Fleets are all fleets, by name; with an error those that were read before.
func (l *Lists) Fleets(ctx context.Context) ([]*delivery.Fleet, error) {
	err := l.ledger.Fleets.Load(ctx)
	known := l.ledger.Fleets.Snapshot()
	if known == nil {
		return nil, err
	}
	return known.All(), err
}

// Names are those of all accounts or of all fleets, by id.
type Names map[string]string

// AccountIDs are the ids of names of accounts, in no particular order.
func (n Names) AccountIDs() ([]delivery.AccountID, error) {
	ids := make([]delivery.AccountID, 0, len(n))
	for text := range n {
		id, err := delivery.ParseAccountID(text)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// FleetNames are those of Fleets.
func (l *Lists) FleetNames(ctx context.Context) (Names, error) {
	fleets, err := l.Fleets(ctx)
	names := Names{}
	for _, f := range fleets {
		names[f.ID.String()] = f.Name
	}
	return names, err
}

// Find is the id of what was typed: an id as it is, or the name of exactly one, in
// any case. What is neither stays as it is, to be refused.
func (n Names) Find(typed string) string {
	if _, known := n[typed]; known || typed == "" {
		return typed
	}

	for _, as := range []func(string) string{strings.Clone, delivery.FoldName} {
		var found []string
		for id, name := range n {
			if as(name) == as(typed) {
				found = append(found, id)
			}
		}

		if len(found) == 1 {
			return found[0]
		}
	}

	return typed
}

// Of is a name, or the beginning of the id where there is none. Finance has one in no list.
func (n Names) Of(id fmt.Stringer, kind string) string {
	if id == fmt.Stringer(delivery.FinanceAccount) {
		return delivery.FinanceName
	}
	return cmp.Or(n[id.String()], kind+Short(id))
}

// Known is the name of an id; it fails for one that nobody has.
func (n Names) Known(id string) (string, error) {
	name, known := n[id]
	if !known {
		return "", errors.New("nobody has this id")
	}
	return name, nil
}

// Choices are the options by name, also of what was chosen and has no name; nil for
// none and for more than most: then an id or a name is typed. Equal names get their ids.
func (n Names) Choices(chosen string, most int) []Choice {
	if len(n) == 0 || len(n) > most {
		return nil
	}

	var all []Choice
	times := map[string]int{}
	for id, name := range n {
		times[name]++
		all = append(all, Choice{Value: id, Name: name, Chosen: id == chosen})
	}

	for i := range all {
		if c := &all[i]; times[c.Name] > 1 {
			c.Name += " · " + Short(c.Value)
		}
	}

	slices.SortFunc(all, func(a, b Choice) int {
		return cmp.Or(strings.Compare(delivery.FoldName(a.Name), delivery.FoldName(b.Name)), strings.Compare(a.Value, b.Value))
	})
	if _, known := n[chosen]; chosen != "" && !known {
		all = append(all, Choice{Value: chosen, Name: chosen, Chosen: true})
	}

	return all
}

// Cache is the last value of something that many people look at, so that all who ask at
// about the same time cost one read. Values are shared: nobody may change them. Once its
// fields are set, it is safe for concurrent use.
type Cache[T any] struct {
	// Read reads the value. Its context ends after Timeout, not with the request that began it.
	Read    func(context.Context) (T, error)
	Timeout time.Duration
	// MaxAge is how old a value may be, from the end of its read, to be returned as it is.
	MaxAge time.Duration
	// MaxStale is up to which age an older value is returned while it is read again; 0: none.
	MaxStale time.Duration

	reads singleflight.Group
	mu    sync.Mutex
	last  T
	at    time.Time // the end of its read; zero: there is none
	epoch int       // how often Forget was called
}

// Get returns the value. It joins a read in progress or begins one, and waits for it as
// long as ctx lasts. Errors are the read's or the context's; none is kept.
func (c *Cache[T]) Get(ctx context.Context) (value T, err error) {
	c.mu.Lock()
	last, at, epoch := c.last, c.at, c.epoch
	c.mu.Unlock()
	if !at.IsZero() && time.Since(at) <= c.MaxAge {
		return last, nil
	}

	read := c.reads.DoChan("", func() (any, error) { return c.read(context.WithoutCancel(ctx), epoch) })
	if !at.IsZero() && time.Since(at) <= c.MaxStale {
		return last, nil
	}

	select {
	case result := <-read:
		value, _ = result.Val.(T) // a nil interface is T's zero value
		return value, result.Err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

// read keeps the value unless Forget was called meanwhile.
func (c *Cache[T]) read(ctx context.Context, epoch int) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	value, err := c.Read(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && epoch == c.epoch {
		c.last, c.at = value, time.Now()
	}
	return value, err
}

// Forget makes the next Get read again, because something was changed. A read in progress
// may not have seen the change; it serves only those who already wait for it.
func (c *Cache[T]) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
	c.epoch++
	c.reads.Forget("")
}
