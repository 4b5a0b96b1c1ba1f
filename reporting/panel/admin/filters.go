package admin

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"vendorapi/internal/delivery"
)

// longestFilter bounds what is looked at of a filter, in bytes. No right value
// but a text is longer.
const longestFilter = 200

// filters are the parameters of a list as they were given, and what is wrong with
// them. A value that makes no sense is told and taken out.
type filters struct {
	url.Values
	faults []delivery.FieldError
}

// filtersOf keeps the parameters that a page knows. An action has none: its
// answer shows the page as it is without them.
func filtersOf(r *http.Request, names ...string) *filters {
	f := &filters{Values: url.Values{}}
	if r.Method == http.MethodPost {
		return f
	}
	query := r.URL.Query()
	for _, name := range names {
		if value := query.Get(name); value != "" {
			f.Set(name, shorten(value))
		}
	}
	return f
}

func (f *filters) refuse(name, message string) {
	f.faults = append(f.faults, delivery.FieldError{Field: name, Message: message})
	f.Del(name)
}

// page is the number of the part that is asked for, from 1.
func (f *filters) page() int {
	given := f.Get("page")
	if given == "" {
		return 1
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 {
		f.refuse("page", "must be the number of a page, from 1")
		return 1
	}
	return n
}

// err tells what is wrong, field by field; nil: nothing.
func (f *filters) err() error {
	if len(f.faults) == 0 {
		return nil
	}
	return &delivery.Error{Code: delivery.CodeValidationFailed, Message: "This search cannot be understood.", Fields: f.faults}
}

// search is a text as it is compared: trimmed and folded, because who searches
// for istanbul means İstanbul and ISTANBUL as well.
func search(text string) string { return delivery.FoldName(strings.TrimSpace(shorten(text))) }

// shorten keeps the beginning of what is searched for.
func shorten(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), longestFilter)], "")
}

// matches tells whether one of the texts holds what is searched for.
func matches(wanted string, texts ...string) bool {
	for _, text := range texts {
		if strings.Contains(delivery.FoldName(text), wanted) {
			return true
		}
	}
	return wanted == ""
}
