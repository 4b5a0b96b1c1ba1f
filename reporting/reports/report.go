// Package reports defines finance's five reports (decisions, "Finance"), reads them from
// ClickHouse and writes them as table, CSV, XLSX or JSON.
//
// Views of package archive (views/*.sql) say what a report contains. Run passes
// their rows, in a total order, one by one to a Sink. Memory does not grow with them.
package reports

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Kind says what a column holds and so how it is written.
type Kind uint8

// The kinds of columns.
const (
	Text    Kind = 1 + iota
	Count        // a whole number
	Money        // kuruş
	DayOnly      // days since 1970-01-01
	Month        // its first day, as days since 1970-01-01
	Time         // milliseconds since 1970-01-01 00:00 UTC; written in local time
)

var kindsByName = map[string]Kind{"text": Text, "count": Count, "money": Money, "dayOnly": DayOnly, "month": Month, "time": Time}

// Column is a column of a report.
type Column struct {
	Key     string // in files and JSON: camelCase
	Heading string // for people
	Source  string // an expression of ClickHouse; empty: it is not in the view
	Kind    Kind
	Sum     bool // has a total
}

// booked reports whether the column says something of what was booked only.
func (c *Column) booked() bool {
	return c.Key == "correctionOf" || c.Key == "bookedOn" || c.Key == "booking"
}

// Numeric reports whether the column is written to the right.
func (c *Column) Numeric() bool { return c.Kind == Count || c.Kind == Money }

// Report is the definition of a report in reports.yaml.
type Report struct {
	Name    string // in commands and URLs: order-ledger
	Title   string
	Day     string   // what the days of the period are compared with
	Columns []Column `yaml:"-"`

	Keys    string            `yaml:"columns"`
	Sources map[string]string // of columns whose source is not their key
	Order   string            // of the rows
	Step    string            // the day, or the month, of a row; empty: the report cannot be read in pages
	// BookedOrder and BookedStep are the same in the views of what was booked; empty: no other.
	BookedOrder string `yaml:"bookedOrder"`
	BookedStep  string `yaml:"bookedStep"`
	// Window is about how many orders are read with one query, when Order begins with time;
	// 0: all of them.
	Window int64
	// Threads is how many of its threads ClickHouse may use; 0: all.
	Threads int
}

//go:embed reports.yaml
var definitions []byte

// catalogue is reports.yaml.
var catalogue = func() (all struct {
	Headings   map[string]map[string]string // by kind
	Exceptions map[string]string
	Reports    []*Report
}) {
	if err := yaml.UnmarshalWithOptions(definitions, &all, yaml.Strict()); err != nil {
		panic(fmt.Sprintf("reports.yaml: %v", err)) // at every start
	}

	for _, r := range all.Reports {
		for key := range strings.FieldsSeq(r.Keys) {
			c := Column{Key: key}
			for kind, headings := range all.Headings {
				if headings[key] != "" {
					c.Kind, c.Heading = kindsByName[kind], headings[key]
				}
			}

			c.Sum = c.Numeric() && r.Step != ""
			source, given := r.Sources[key]
			c.Source = source
			if !given {
				c.Source = strings.ToLower(capital.ReplaceAllString(key, "_$0"))
			}

			r.Columns = append(r.Columns, c)
		}
	}

	return all
}()

var capital = regexp.MustCompile(`[A-Z]`)

// The reports that the code knows by name.
var (
	ledger      = catalogue.Reports[0]
	collections = catalogue.Reports[1]
	statement   = catalogue.Reports[2]
	exceptions  = catalogue.Reports[3]
	control     = catalogue.Reports[4]
)

// All lists the reports in the order of the decisions ("Finance").
func All() []*Report { return slices.Clone(catalogue.Reports) }

// Find finds a report by its name.
func Find(name string) (*Report, bool) {
	i := slices.Index(Names(), name)
	if i < 0 {
		return nil, false
	}
	return catalogue.Reports[i], true
}

// Names are those of all reports, for messages.
func Names() (names []string) {
	for _, r := range catalogue.Reports {
		names = append(names, r.Name)
	}
	return names
}

// FinanceViews are the views of the finance database (archive.FinanceDatabase) in which people who write
// SQL find what the report has, the booked one first. The control totals have none.
func (r *Report) FinanceViews() []string {
	switch r {
	case ledger:
		return []string{"booked_orders", "live_orders"}
	case collections, statement:
		return []string{"booked_days"}
	case exceptions:
		return []string{"booked_exceptions", "live_exceptions"}
	}
	return nil
}

// View is the name of the report's parameterised view in ClickHouse.
func (r *Report) View() string { return strings.ReplaceAll(r.Name, "-", "_") }

// Column is the place of the column with this key; -1: there is none.
func (r *Report) Column(key string) int {
	return slices.IndexFunc(r.Columns, func(c Column) bool { return c.Key == key })
}

// HasKinds reports whether the report can be narrowed to a kind.
func (r *Report) HasKinds() bool { return r.Name == exceptions.Name }

// ExceptionKinds are the kinds of the report of exceptions, and what finance can do about
// each. Nobody may change them.
func ExceptionKinds() map[string]string { return catalogue.Exceptions }

// Cell is a value of a row. Which of the two holds it is up to the column.
type Cell struct {
	Text   string
	Number int64
	Given  bool // false: nothing is known, which is not 0
}

// Summary is what can be said of a report once all its rows have been seen.
type Summary struct {
	Rows int64
	// Totals has a cell for every column, not given where the column has no total.
	Totals []Cell
}

// Total is that of the column with the given key; 0 when it has none.
func (r *Report) Total(s Summary, key string) int64 {
	if i := r.Column(key); i >= 0 && i < len(s.Totals) {
		return s.Totals[i].Number
	}
	return 0
}
