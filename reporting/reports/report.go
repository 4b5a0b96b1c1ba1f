package reports

import "slices"

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

// Column is a column of a report.
type Column struct {
	Key    string // in files and JSON: camelCase
	Source string // in ClickHouse: snake_case
	Kind   Kind
	Sum    bool // has a total
}

// Numeric reports whether the column is written to the right.
func (c *Column) Numeric() bool { return c.Kind == Count || c.Kind == Money }

// Report is the definition of a report.
type Report struct {
	Name    string // in commands and URLs: order-ledger
	Title   string
	Day     string // what the days of the period are compared with
	Columns []Column

	view string // in ClickHouse
	// order makes the sequence of the rows complete: no two rows are equal in it.
	order string
	// step is the day, or the month, that a row belongs to; order begins with it,
	// if not in so many words. Empty: the report cannot be read in pages.
	step string
	// window is about how many orders are read with one query; 0: all of them. An
	// order that begins with time allows for it.
	window int64
	// threads is how many of its threads ClickHouse may use; 0: all.
	threads int
}

// All lists the reports in the order of design section 8.
func All() []*Report { return slices.Clone(catalogue) }

// Find finds a report by its name.
func Find(name string) (*Report, bool) {
	for _, r := range catalogue {
		if r.Name == name {
			return r, true
		}
	}
	return nil, false
}

// Names are those of all reports, for messages.
func Names() []string {
	names := make([]string, len(catalogue))
	for i, r := range catalogue {
		names[i] = r.Name
	}
	return names
}

// View is the name of the report's parameterised view in ClickHouse.
func (r *Report) View() string { return r.view }

// Cell is a value of a row. Which of the two holds it is up to the column.
type Cell struct {
	Text   string
	Number int64
	Given  bool // false: nothing is known, which is not 0
}

// Summary is what can be said of a report once all its rows have been seen.
type Summary struct {
	Rows int64
	// Totals has a cell for every column; those of columns without a total are
	// not given.
	Totals []Cell
}
