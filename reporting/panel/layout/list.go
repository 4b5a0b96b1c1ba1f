package layout

import (
	"maps"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"vendorapi/internal/delivery"
)

// longestFilter bounds a filter, in bytes; only texts may be as long.
const longestFilter = 200

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
			f.Set(name, strings.ToValidUTF8(value[:min(len(value), longestFilter)], ""))
		}
	}
	return f
}

// Refuse notes what is wrong with a parameter, and removes it.
func (f *Filters) Refuse(name, message string) {
	f.Faults = append(f.Faults, delivery.FieldError{Field: name, Message: message})
	f.Del(name)
}

// Read passes a parameter that was given to read, and refuses it when that fails.
func (f *Filters) Read(name, message string, read func(text string) error) {
	if text := f.Get(name); text != "" && read(text) != nil {
		f.Refuse(name, message)
	}
}

// ReadNumber reads a whole number from least to most, the one in into without any.
func (f *Filters) ReadNumber(name, message string, least, most int, into *int) {
	f.Read(name, message, func(text string) error {
		n, err := strconv.Atoi(text)
		if err == nil && (n < least || n > most) {
			err = strconv.ErrRange
		}
		if err == nil {
			*into = n
		}
		return err
	})
}

// Page is the number of the page that is asked for, from 1.
func (f *Filters) Page() int {
	page := 1
	f.ReadNumber("page", "must be the number of a page, from 1", 1, math.MaxInt, &page)
	return page
}

// Tabs lead to the views of a list by one of its parameters.
func (f *Filters) Tabs(path, name string, values []Choice) (tabs []Link) {
	for _, v := range values {
		tabs = append(tabs, Link{Name: v.Name, Current: f.Get(name) == v.Value,
			Address: Address(path, With(With(f.Values, "page", ""), name, v.Value))})
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

// Address is a path with those parameters of the query that have a value.
func Address(path string, query url.Values) string {
	kept := url.Values{}
	for name := range query {
		if value := query.Get(name); value != "" {
			kept.Set(name, value)
		}
	}
	if len(kept) == 0 {
		return path
	}
	return path + "?" + kept.Encode()
}

// With is a copy of the query with one parameter changed; empty removes it.
func With(query url.Values, name, value string) url.Values {
	changed := url.Values{}
	maps.Copy(changed, query)
	changed.Set(name, value)
	return changed
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
		if n == 1 {
			return Address(path, With(query, "page", ""))
		}
		return Address(path, With(query, "page", strconv.Itoa(n)))
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

// StorePath is the address of a store's page, or of an action of it, such as "/confirm".
func StorePath(account delivery.AccountID, externalID, act string) string {
	path := "/stores/" + account.String() + "/"
	switch externalID {
	case ".", "..", "/":
		return path + NoSegment + act + "?id=" + url.QueryEscape(externalID)
	}
	return path + url.PathEscape(externalID) + act
}
