// Package reports defines finance's five reports (design section 8), reads them
// from ClickHouse and writes them as table, CSV, XLSX or JSON.
//
// Views of package archive (schema/0005 and on) say what a report contains.
// Report.Run passes their rows, in a total order and summed exactly, one by one
// to a Sink. Memory does not grow with the length of a report.
package reports

import (
	"slices"
	"strings"
	"unicode"
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

// Column is a column of a report.
type Column struct {
	Key    string // in files and JSON: camelCase
	Source string // an expression of ClickHouse; empty: it is not in the view
	Kind   Kind
	Sum    bool // has a total
}

// headings are the names of all columns for people. A key means the same in
// every report.
var headings = map[Kind]map[string]string{
	Text: {
		"orderId": "Order", "externalOrderId": "Vendor's order", "externalStoreId": "Store id", "storeName": "Store",
		"taxNumber": "Tax number", "accountId": "Account", "fleetId": "Fleet id", "fleetName": "Fleet",
		"status": "Status", "failureReason": "Failure", "cancelReason": "Cancelled because", "courierName": "Courier",
		"kind": "Kind", "reason": "Reason", "paymentType": "Payment", "currency": "Currency",
		"line": "Line", "ties": "Balances", "sha256": "SHA-256",
	},
	Time: {
		"createdAt": "Created", "orderedAt": "Ordered", "pickedUpAt": "Picked up", "deliveredAt": "Delivered",
		"endedAt": "Ended", "reportedAt": "Reported",
	},
	DayOnly: {"day": "Day"},
	Month:   {"month": "Month"},
	Count: {
		"rows": "Rows", "created": "Created", "orders": "Orders", "delivered": "Delivered", "failed": "Failed", "cancelled": "Cancelled",
		"deliveredCount": "Delivered", "cashCount": "Cash orders", "cardCount": "Card orders", "prepaidCount": "Prepaid orders",
		"cashWithoutAmountCount": "Cash without amount", "noPaymentTypeCount": "No payment type",
	},
	Money: {
		"orderAmount": "Order amount", "collectionAmount": "To collect", "expectedCollection": "Expected",
		"cashExpected": "Cash expected", "cardExpected": "Card expected", "prepaidAmount": "Prepaid amount",
		"noPaymentTypeAmount": "Amount without type", "orderAmountDelivered": "Amount delivered",
	},
}

// columns makes those with the given keys. The source is the key in snake_case;
// counts and amounts have totals.
func columns(keys string) []Column {
	var all []Column
	for key := range strings.FieldsSeq(keys) {
		c := Column{Key: key}
		for kind, known := range headings {
			if known[key] != "" {
				c.Kind = kind
			}
		}
		for _, r := range key {
			if unicode.IsUpper(r) {
				c.Source += "_"
			}
			c.Source += string(unicode.ToLower(r))
		}
		c.Sum = c.Numeric()
		all = append(all, c)
	}
	return all
}

// Heading is the column's name for people; in files for programs it is the key.
func (c *Column) Heading() string { return headings[c.Kind][c.Key] }

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

const (
	ledgerName      = "order-ledger"
	collectionsName = "expected-collections"
	statementName   = "fleet-statement"
	exceptionsName  = "exceptions"
	controlName     = "control-totals"

	// halfAMillion orders are sorted within a second and 200 MB of ClickHouse's.
	halfAMillion = 500_000
	// ordersOldestFirst is by the time of creation. As a number an id sorts as its
	// text does; ClickHouse sorts a UUID by its second half.
	ordersOldestFirst = "created_at, toUInt128(order_id)"
	dayOfCreation     = "toDate(created_at)"
)

// The columns are design section 8's. expected-collections and fleet-statement
// have the account and the names besides, since a store's external id is unique
// within its account only. Columns are only ever added at the end: files are
// also read by place.
var (
	ledger = &Report{
		Name: ledgerName, Title: "Order ledger", view: "order_ledger",
		Day:   "the day on which the order was created",
		order: ordersOldestFirst, step: dayOfCreation, window: halfAMillion, threads: 1,
		Columns: columns(`orderId externalOrderId externalStoreId storeName taxNumber fleetId fleetName status failureReason
			createdAt orderedAt pickedUpAt deliveredAt endedAt paymentType orderAmount collectionAmount expectedCollection
			currency cancelReason courierName`),
	}
	collections = &Report{
		Name: collectionsName, Title: "Expected collections", view: "expected_collections",
		Day:   "the day on which the order was delivered",
		order: "day, toUInt128(account_id), toUInt128(fleet_id), external_store_id", step: "day", window: halfAMillion,
		Columns: columns(`day accountId fleetId fleetName externalStoreId storeName deliveredCount cashCount cashExpected
			cardCount cardExpected prepaidCount prepaidAmount cashWithoutAmountCount noPaymentTypeCount noPaymentTypeAmount`),
	}
	statement = &Report{
		Name: statementName, Title: "Fleet statement", view: "fleet_statement",
		Day:   "the day of creation in the column created, the day of the end in all others",
		order: "month, toUInt128(account_id), toUInt128(fleet_id), external_store_id", step: "month",
		Columns: columns(`month accountId fleetId fleetName externalStoreId storeName created delivered failed cancelled
			orderAmountDelivered cashExpected cardExpected prepaidCount prepaidAmount noPaymentTypeCount noPaymentTypeAmount`),
	}
	// exceptions has sums of its rows, of which an order can have several.
	exceptions = &Report{
		Name: exceptionsName, Title: "Exceptions", view: "exceptions",
		Day:   "the day on which the order was created",
		order: ordersOldestFirst + ", kind, reported_at", step: dayOfCreation, window: halfAMillion, threads: 1,
		Columns: columns(`kind reason accountId orderId externalOrderId externalStoreId storeName fleetId fleetName status
			failureReason createdAt endedAt reportedAt paymentType orderAmount collectionAmount cancelReason courierName`),
	}
	control = &Report{
		Name: controlName, Title: "Control totals", view: "control_totals",
		Day:     "for each line what it means in that report",
		order:   "line_number",
		Columns: controlColumns(),
	}
	catalogue = []*Report{ledger, collections, statement, exceptions, control}
)

// controlColumns have no totals. sha256 is not in ClickHouse: see readControl.
func controlColumns() []Column {
	all := columns(`line rows created orders delivered failed cancelled orderAmountDelivered cashExpected cardExpected
		prepaidAmount ties sha256 noPaymentTypeAmount`)
	for i := range all {
		all[i].Sum = false
		switch all[i].Key {
		case "ties":
			all[i].Source = "multiIf(isNull(ties), '', ties, 'yes', 'no')"
		case "sha256":
			all[i].Source = ""
		}
	}
	return all
}

// All lists the reports in the order of design section 8.
func All() []*Report { return slices.Clone(catalogue) }

// Find finds a report by its name.
func Find(name string) (*Report, bool) {
	i := slices.Index(Names(), name)
	if i < 0 {
		return nil, false
	}
	return catalogue[i], true
}

// Names are those of all reports, for messages.
func Names() []string {
	var names []string
	for _, r := range catalogue {
		names = append(names, r.Name)
	}
	return names
}

// View is the name of the report's parameterised view in ClickHouse.
func (r *Report) View() string { return r.view }

// Column is the place of the column with this key; -1: there is none.
func (r *Report) Column(key string) int {
	return slices.IndexFunc(r.Columns, func(c Column) bool { return c.Key == key })
}

// HasKinds reports whether the report can be narrowed to a kind.
func (r *Report) HasKinds() bool { return r == exceptions }

// ExceptionKind is a kind of the report of exceptions, and what finance can do about
// it. What it means is the report's column reason.
type ExceptionKind struct{ Name, Todo string }

var exceptionKinds = []ExceptionKind{
	{"CollectionDiffers", "Ask the vendor which amount is right. Expected is the amount to collect."},
	{"CollectionMissing", "Ask the vendor what was to be collected, and if it was delivered the fleet what was."},
	{"CollectionOnPrepaid", "Ask the vendor whether it was prepaid. If not, the fleet owes the amount to collect."},
	{"CollectionUndelivered", "Nothing is owed, unless the fleet says that the courier collected it all the same."},
	{"CourierMissing", "Ask the fleet who delivered it and has the amount."},
	{"LateDelivery", "Ask the fleet whether the amount was collected. It is in no other report's expected amounts."},
	{"PaymentTypeMissing", "Ask the vendor how it was paid. Orders that were not delivered are listed, too; Payments counts delivered ones only."},
}

// ExceptionKinds are all of them, by name.
func ExceptionKinds() []ExceptionKind { return slices.Clone(exceptionKinds) }

// Todo is what finance can do about a kind; empty for another name.
func Todo(kind string) string {
	for _, k := range exceptionKinds {
		if k.Name == kind {
			return k.Todo
		}
	}
	return ""
}

func kindNames() string {
	var names []string
	for _, k := range exceptionKinds {
		names = append(names, k.Name)
	}
	return strings.Join(names, ", ")
}

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

// Total is that of the column with the given key; 0 when it has none.
func (r *Report) Total(s Summary, key string) int64 {
	if i := r.Column(key); i >= 0 && i < len(s.Totals) {
		return s.Totals[i].Number
	}
	return 0
}
