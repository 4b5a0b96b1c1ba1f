package reports

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"vendorapi/internal/delivery"
)

// Day is a local calendar day (+03:00), as days since 1970-01-01.
type Day int32

// The days that a report may ask for; the same years as everywhere in the API.
var (
	firstDay = dayOf(2000, time.January, 1)
	lastDay  = dayOf(2100, time.December, 31)
)

func dayOf(year int, month time.Month, day int) Day {
	return Day(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / 86400)
}

// DayOf is the local day of a moment.
func DayOf(t time.Time) Day {
	year, month, day := t.In(delivery.Istanbul).Date()
	return dayOf(year, month, day)
}

// ParseDay reads 2006-01-02, from 2000 to 2100.
func ParseDay(s string) (Day, error) {
	t, err := time.Parse(time.DateOnly, s)
	day := Day(t.Unix() / 86400)
	wrong := (*time.ParseError)(nil)
	switch {
	case errors.As(err, &wrong) && wrong.Message == ": day out of range":
		return 0, fmt.Errorf("there is no day %s", s)
	case err != nil:
		return 0, fmt.Errorf("%q is not a day such as 2026-11-21", s)
	case day < firstDay || day > lastDay:
		return 0, fmt.Errorf("%s is not between %s and %s", day.Text(), firstDay.Text(), lastDay.Text())
	}

	return day, nil
}

// asOfMargin is longer than a seal takes from its time to its place in ClickHouse, with the clocks' differences.
const asOfMargin = 5 * time.Minute

func (d Day) end() time.Time { return time.Unix(int64(d+1)*86400, 0).Add(-3 * time.Hour) }

// Midnight is the day's beginning as if it were UTC, for formatting.
func (d Day) Midnight() time.Time { return time.Unix(int64(d)*86400, 0).UTC() }

// String is 2006-01-02.
func (d Day) String() string { return d.Midnight().Format(time.DateOnly) }

// Text is the day as pages have it: 2 Jan 2006.
func (d Day) Text() string { return d.Midnight().Format("2 Jan 2006") }

// FirstOfMonth is the first day of the same month.
func (d Day) FirstOfMonth() Day { return d + 1 - Day(d.Midnight().Day()) }

// Params say which orders a report is about.
type Params struct {
	From, To Day                // local days, both included
	Account  delivery.AccountID // zero: all
	Fleet    delivery.FleetID   // zero: all
	Store    string             // the vendor's id of a store, in any account; empty: all
	Kind     string             // of exceptions; empty: all
	// Basis is what counts of closed months: what was booked, or what is known now.
	Basis Basis
	AsOf  Day // closed months as of the end of that day; 0: now
	// AccountName and FleetName stand in titles instead of the ids; empty: not known.
	AccountName, FleetName string
	Asked                  time.Time // when it was asked for
}

// Basis says what a report of closed months is made of.
type Basis string

// Booked takes closed months as they were closed, and corrections on the day on which they were
// booked. Known calculates from the orders, as they are or, with AsOf, as they were known.
const (
	Booked Basis = "booked"
	Known  Basis = "known"
)

// Values are parameters as people write them; an empty one is not given.
type Values struct {
	From, To, Account, Fleet, Store, Kind, Basis, AsOf string
}

func (v *Values) byName() map[string]*string {
	return map[string]*string{"from": &v.From, "to": &v.To, "account": &v.Account, "fleet": &v.Fleet, "store": &v.Store, "kind": &v.Kind,
		"basis": &v.Basis, "as_of": &v.AsOf}
}

// longestName is how many characters of an unknown parameter's name are repeated.
const longestName = 100

// ReadValues reads the values of an address. A parameter, called what, that is none of them or
// of others is wrong: a misspelt filter would show more than was meant.
func ReadValues(query url.Values, what string, others ...string) (v Values, wrong ParamErrors) {
	for name, value := range v.byName() {
		*value = query.Get(name)
	}

	names := append([]string{"from", "to", "account", "fleet", "store", "kind", "basis", "as_of"}, others...)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.Contains(names, name):
			wrong = append(wrong, delivery.FieldError{Field: fmt.Sprintf("%.*s", longestName, name),
				Message: "is no " + what + " of a report; there is " + strings.Join(names, ", ")})
		case len(query[name]) > 1:
			wrong = append(wrong, delivery.FieldError{Field: name, Message: "was given more than once"})
		}
	}

	return v, wrong
}

// Map changes every value.
func (v Values) Map(change func(string) string) Values {
	for _, value := range v.byName() {
		*value = change(*value)
	}
	return v
}

// Query is the inverse of ReadValues.
func (v Values) Query() url.Values {
	query := url.Values{}
	for name, value := range v.byName() {
		query.Set(name, *value)
	}
	return query
}

// ParamErrors are all that is wrong with some values, for the person who gave them.
type ParamErrors []delivery.FieldError

func (e ParamErrors) Error() string {
	texts := make([]string, len(e))
	for i := range e {
		texts[i] = e[i].Field + ": " + e[i].Message
	}
	return strings.Join(texts, "; ")
}

const maxStoreLength = 64

// Parse checks the values. By default from is the first day of to's month, and to is
// today, the day of now. An error is a ParamErrors.
func (v Values) Parse(now time.Time) (Params, error) {
	p := Params{
		Store: v.Store,
		Kind:  v.Kind,
		Asked: now,
		Basis: cmp.Or(Basis(v.Basis), Booked),
	}

	var wrong ParamErrors
	note := func(param, reason string) {
		wrong = append(wrong, delivery.FieldError{Field: param, Message: reason})
	}
	readDay := func(param, value string, preset Day) Day {
		if value == "" {
			return preset
		}

		day, err := ParseDay(value)
		if err != nil {
			note(param, err.Error())
		}
		return day
	}

	p.To = readDay("to", v.To, DayOf(now))
	p.From = readDay("from", v.From, p.To.FirstOfMonth())
	p.AsOf = readDay("as_of", v.AsOf, 0)

	if p.Basis != Booked && p.Basis != Known {
		note("basis", "is booked or known")
	}

	lastOver := DayOf(now.Add(-asOfMargin)) - 1
	if p.AsOf != 0 && !now.After(p.AsOf.end().Add(asOfMargin)) {
		note("as_of", "must be a day that is over: the last one is "+lastOver.Text())
	}

	// A day that cannot be read is zero, so the order of the days says something only without errors.
	endsTooEarly := len(wrong) == 0 && p.To < p.From
	switch {
	case endsTooEarly && v.To == "":
		note("from", p.From.Text()+" lies in the future: give the last day, too")
	case endsTooEarly:
		note("to", p.To.Text()+" is before the first day, "+p.From.Text())
	}

	if v.Account != "" {
		account, err := delivery.ParseAccountID(v.Account)
		if err != nil || account.IsZero() {
			note("account", noSuchID("an account", v.Account))
		}
		p.Account = account
	}

	if v.Fleet != "" {
		fleet, err := delivery.ParseFleetID(v.Fleet)
		if err != nil || fleet.IsZero() {
			note("fleet", noSuchID("a fleet", v.Fleet))
		}
		p.Fleet = fleet
	}

	if !utf8.ValidString(v.Store) || utf8.RuneCountInString(v.Store) > maxStoreLength {
		note("store", fmt.Sprintf("must be the vendor's id of a store, at most %d characters", maxStoreLength))
	}

	kinds := ExceptionKinds()
	if v.Kind != "" && kinds[v.Kind] == "" {
		note("kind", "is no kind of exceptions; there is "+strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}

	if len(wrong) > 0 {
		return Params{}, wrong
	}

	return p, nil
}

// noSuchID says that a value is no id. Names are taken on pages and in downloads.
func noSuchID(what, value string) string {
	return fmt.Sprintf("%.100q is neither the id of %s nor the name of exactly one", value, what)
}

// idText is an id as the views take it: empty means all.
func idText(id interface {
	fmt.Stringer
	IsZero() bool
}) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// String is for titles and logs: "2026-11-01 to 2026-11-30, store moda".
func (p *Params) String() string {
	text := p.From.String() + " to " + p.To.String()
	for _, f := range p.Filters() {
		text += ", " + f.Name + " " + f.Value
	}
	return text
}

// Filter is a parameter besides the period, for people.
type Filter struct{ Name, Value string }

// Filters are those that were given.
func (p *Params) Filters() []Filter {
	return slices.DeleteFunc([]Filter{
		{"account", cmp.Or(p.AccountName, idText(p.Account))}, {"fleet", cmp.Or(p.FleetName, idText(p.Fleet))}, {"store", p.Store}, {"kind", p.Kind},
		{"basis", strings.TrimPrefix(string(p.Basis), string(Booked))}, {"as of", p.asOfText()},
	}, func(f Filter) bool { return f.Value == "" })
}

func (p *Params) asOfText() string {
	if p.AsOf == 0 {
		return ""
	}
	return p.AsOf.String()
}
