package reports

import "slices"

// headings are the columns' names for people, who read them above a column. A
// key means the same in every report.
var headings = map[string]string{
	"orderId": "Order", "externalOrderId": "Vendor's order", "externalStoreId": "Store id", "storeName": "Store",
	"taxNumber": "Tax number", "accountId": "Account", "fleetId": "Fleet id", "fleetName": "Fleet",
	"status": "Status", "failureReason": "Failure", "cancelReason": "Cancelled because", "courierName": "Courier", "kind": "Kind", "reason": "Reason",
	"createdAt": "Created", "orderedAt": "Ordered", "pickedUpAt": "Picked up", "deliveredAt": "Delivered", "endedAt": "Ended", "reportedAt": "Reported",
	"paymentType": "Payment", "orderAmount": "Order amount", "collectionAmount": "To collect", "expectedCollection": "Expected", "currency": "Currency",
	"day": "Day", "month": "Month", "deliveredCount": "Delivered", "cashCount": "Cash orders", "cashExpected": "Cash expected",
	"cardCount": "Card orders", "cardExpected": "Card expected", "prepaidCount": "Prepaid orders", "prepaidAmount": "Prepaid amount",
	"cashWithoutAmountCount": "Cash without amount", "noPaymentTypeCount": "No payment type", "noPaymentTypeAmount": "Amount without type",
	"created": "Created", "orders": "Orders", "delivered": "Delivered", "failed": "Failed", "cancelled": "Cancelled",
	"orderAmountDelivered": "Amount delivered", "line": "Line", "rows": "Rows", "ties": "Balances", "sha256": "SHA-256",
}

// Heading is the column's name for people; in files for programs it is the key.
func (c *Column) Heading() string { return headings[c.Key] }

// Column is the place of the column with this key; -1: there is none.
func (r *Report) Column(key string) int {
	return slices.IndexFunc(r.Columns, func(c Column) bool { return c.Key == key })
}
