package finance

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/layout"
	"vendorapi/reporting/reports"
)

const maxTyped = 100 // characters of a value; no right one is longer

type filters struct {
	Typed   reports.Values // as they came, with the period that stands for none
	params  reports.Params
	page    int
	refused bool // the values make no sense, and stand in Typed all the same
}

func parameters(v *reports.Values) map[string]*string {
	return map[string]*string{"from": &v.From, "to": &v.To, "account": &v.Account, "fleet": &v.Fleet, "store": &v.Store, "kind": &v.Kind}
}

// readFilters: VALIDATION_FAILED, where refused is set, or MALFORMED_REQUEST.
func readFilters(r *http.Request, known *directory, now time.Time) (f filters, err error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return filters{}, delivery.Refuse(delivery.CodeMalformedRequest, "the address cannot be read")
	}
	for name, value := range parameters(&f.Typed) {
		*value = layout.Beginning(query.Get(name), maxTyped)
	}
	f.page, _ = strconv.Atoi(query.Get("page")) // what is no number is the first page
	if err := checkNames(query); err != nil {
		return f.refuse(), err
	}
	values := known.named(f.Typed)
	if f.params, err = values.Parse(now); err != nil {
		if wrong := (reports.ParamErrors)(nil); errors.As(err, &wrong) {
			var fields []delivery.FieldError
			for _, w := range wrong {
				fields = append(fields, delivery.FieldError{Field: w.Param, Message: w.Reason})
			}
			err = layout.Invalid(senseless, fields...)
		}
		return f.refuse(), err
	}
	f.Typed = values
	f.Typed.From, f.Typed.To = f.params.From.String(), f.params.To.String()
	return f, nil
}

func (f filters) refuse() filters {
	f.refused = true
	for _, value := range parameters(&f.Typed) {
		*value = strings.ToValidUTF8(*value, "\uFFFD")
	}
	return f
}

// checkNames refuses other parameters: a misspelt filter would show more than was meant.
func checkNames(query url.Values) error {
	names := []string{"from", "to", "account", "fleet", "store", "kind", "page"}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.Contains(names, name):
			return invalid(layout.Beginning(name, maxTyped), "is no filter of a report; there is "+strings.Join(names, ", "))
		case len(query[name]) > 1:
			return invalid(name, "was given more than once")
		}
	}
	return nil
}

const senseless = "Nothing is shown, because the period or a filter cannot be right."

func invalid(field, reason string) error {
	return layout.Invalid(senseless, delivery.FieldError{Field: field, Message: reason})
}

func queryOf(v reports.Values) url.Values {
	query := url.Values{}
	for name, value := range parameters(&v) {
		query.Set(name, *value)
	}
	return query
}

func address(path string, v reports.Values) string { return layout.Address(path, queryOf(v)) }

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
