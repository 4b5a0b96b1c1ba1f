package reports

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"vendorapi/reporting/archive"
)

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
	names := make([]string, len(exceptionKinds))
	for i := range exceptionKinds {
		names[i] = exceptionKinds[i].Name
	}
	return strings.Join(names, ", ")
}

// HasKinds reports whether the report can be narrowed to a kind.
func (r *Report) HasKinds() bool { return r == exceptions }

// from is the report's rows, in a query.
func (r *Report) from() string {
	if r.HasKinds() {
		return " FROM " + r.view + call + " WHERE {kind:String} = '' OR kind = {kind:String}"
	}
	return " FROM " + r.view + call
}

// CountOrders is of how many orders the exceptions are: one can have several rows.
func CountOrders(ctx context.Context, a *archive.Archive, p Params) (n int64, err error) {
	rows, err := a.Select(ctx, "SELECT toInt64(uniqExact(order_id))"+exceptions.from()+settings+uncompiled, p.named()...)
	if err != nil {
		return 0, exceptions.explain(err)
	}
	defer func() { _ = rows.Close() }() // Err tells what went wrong
	for rows.Next() {
		if err := rows.Scan(&n); err != nil {
			return 0, fmt.Errorf("count the orders of %s: %w", exceptionsName, err)
		}
	}
	return n, rows.Err()
}
