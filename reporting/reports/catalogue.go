package reports

// The columns of the reports are design section 8's. expected-collections and
// fleet-statement have the account and the names besides, since a store's
// external id is unique within its account only. What was added later stands at
// the end of a report, where files that were read by place still have the rest.

const (
	ledgerName      = "order-ledger"
	collectionsName = "expected-collections"
	statementName   = "fleet-statement"
	exceptionsName  = "exceptions"
	controlName     = "control-totals"
)

var catalogue = []*Report{ledger, collections, statement, exceptions, control}

// halfAMillion orders are sorted within a second and 200 MB of ClickHouse's.
const halfAMillion = 500_000

// ordersOldestFirst is by the time of creation. As a number an id sorts as its
// text does; ClickHouse sorts a UUID by its second half.
const (
	ordersOldestFirst = "created_at, toUInt128(order_id)"
	dayOfCreation     = "toDate(created_at)"
)

var ledger = &Report{
	Name: ledgerName, Title: "Order ledger", view: "order_ledger",
	Day:   "the day on which the order was created",
	order: ordersOldestFirst, step: dayOfCreation, window: halfAMillion, threads: 1,
	Columns: []Column{
		{Key: "orderId", Source: "order_id", Kind: Text},
		{Key: "externalOrderId", Source: "external_order_id", Kind: Text},
		{Key: "externalStoreId", Source: "external_store_id", Kind: Text},
		{Key: "storeName", Source: "store_name", Kind: Text},
		{Key: "taxNumber", Source: "tax_number", Kind: Text},
		{Key: "fleetId", Source: "fleet_id", Kind: Text},
		{Key: "fleetName", Source: "fleet_name", Kind: Text},
		{Key: "status", Source: "status", Kind: Text},
		{Key: "failureReason", Source: "failure_reason", Kind: Text},
		{Key: "createdAt", Source: "created_at", Kind: Time},
		{Key: "orderedAt", Source: "ordered_at", Kind: Time},
		{Key: "pickedUpAt", Source: "picked_up_at", Kind: Time},
		{Key: "deliveredAt", Source: "delivered_at", Kind: Time},
		{Key: "endedAt", Source: "ended_at", Kind: Time},
		{Key: "paymentType", Source: "payment_type", Kind: Text},
		{Key: "orderAmount", Source: "order_amount", Kind: Money, Sum: true},
		{Key: "collectionAmount", Source: "collection_amount", Kind: Money, Sum: true},
		{Key: "expectedCollection", Source: "expected_collection", Kind: Money, Sum: true},
		{Key: "currency", Source: "currency", Kind: Text},
		{Key: "cancelReason", Source: "cancel_reason", Kind: Text},
		{Key: "courierName", Source: "courier_name", Kind: Text},
	},
}

var collections = &Report{
	Name: collectionsName, Title: "Expected collections", view: "expected_collections",
	Day:   "the day on which the order was delivered",
	order: "day, toUInt128(account_id), toUInt128(fleet_id), external_store_id", step: "day", window: halfAMillion,
	Columns: []Column{
		{Key: "day", Source: "day", Kind: DayOnly},
		{Key: "accountId", Source: "account_id", Kind: Text},
		{Key: "fleetId", Source: "fleet_id", Kind: Text},
		{Key: "fleetName", Source: "fleet_name", Kind: Text},
		{Key: "externalStoreId", Source: "external_store_id", Kind: Text},
		{Key: "storeName", Source: "store_name", Kind: Text},
		{Key: "deliveredCount", Source: "delivered_count", Kind: Count, Sum: true},
		{Key: "cashCount", Source: "cash_count", Kind: Count, Sum: true},
		{Key: "cashExpected", Source: "cash_expected", Kind: Money, Sum: true},
		{Key: "cardCount", Source: "card_count", Kind: Count, Sum: true},
		{Key: "cardExpected", Source: "card_expected", Kind: Money, Sum: true},
		{Key: "prepaidCount", Source: "prepaid_count", Kind: Count, Sum: true},
		{Key: "prepaidAmount", Source: "prepaid_amount", Kind: Money, Sum: true},
		{Key: "cashWithoutAmountCount", Source: "cash_without_amount_count", Kind: Count, Sum: true},
		{Key: "noPaymentTypeCount", Source: "no_payment_type_count", Kind: Count, Sum: true},
		{Key: "noPaymentTypeAmount", Source: "no_payment_type_amount", Kind: Money, Sum: true},
	},
}

var statement = &Report{
	Name: statementName, Title: "Fleet statement", view: "fleet_statement",
	Day:   "the day of creation in the column created, the day of the end in all others",
	order: "month, toUInt128(account_id), toUInt128(fleet_id), external_store_id", step: "month",
	Columns: []Column{
		{Key: "month", Source: "month", Kind: Month},
		{Key: "accountId", Source: "account_id", Kind: Text},
		{Key: "fleetId", Source: "fleet_id", Kind: Text},
		{Key: "fleetName", Source: "fleet_name", Kind: Text},
		{Key: "externalStoreId", Source: "external_store_id", Kind: Text},
		{Key: "storeName", Source: "store_name", Kind: Text},
		{Key: "created", Source: "created", Kind: Count, Sum: true},
		{Key: "delivered", Source: "delivered", Kind: Count, Sum: true},
		{Key: "failed", Source: "failed", Kind: Count, Sum: true},
		{Key: "cancelled", Source: "cancelled", Kind: Count, Sum: true},
		{Key: "orderAmountDelivered", Source: "order_amount_delivered", Kind: Money, Sum: true},
		{Key: "cashExpected", Source: "cash_expected", Kind: Money, Sum: true},
		{Key: "cardExpected", Source: "card_expected", Kind: Money, Sum: true},
		{Key: "prepaidCount", Source: "prepaid_count", Kind: Count, Sum: true},
		{Key: "prepaidAmount", Source: "prepaid_amount", Kind: Money, Sum: true},
		{Key: "noPaymentTypeCount", Source: "no_payment_type_count", Kind: Count, Sum: true},
		{Key: "noPaymentTypeAmount", Source: "no_payment_type_amount", Kind: Money, Sum: true},
	},
}

// exceptions has sums of its rows, of which an order can have several.
var exceptions = &Report{
	Name: exceptionsName, Title: "Exceptions", view: "exceptions",
	Day:   "the day on which the order was created",
	order: ordersOldestFirst + ", kind, reported_at", step: dayOfCreation, window: halfAMillion, threads: 1,
	Columns: []Column{
		{Key: "kind", Source: "kind", Kind: Text},
		{Key: "reason", Source: "reason", Kind: Text},
		{Key: "accountId", Source: "account_id", Kind: Text},
		{Key: "orderId", Source: "order_id", Kind: Text},
		{Key: "externalOrderId", Source: "external_order_id", Kind: Text},
		{Key: "externalStoreId", Source: "external_store_id", Kind: Text},
		{Key: "storeName", Source: "store_name", Kind: Text},
		{Key: "fleetId", Source: "fleet_id", Kind: Text},
		{Key: "fleetName", Source: "fleet_name", Kind: Text},
		{Key: "status", Source: "status", Kind: Text},
		{Key: "failureReason", Source: "failure_reason", Kind: Text},
		{Key: "createdAt", Source: "created_at", Kind: Time},
		{Key: "endedAt", Source: "ended_at", Kind: Time},
		{Key: "reportedAt", Source: "reported_at", Kind: Time},
		{Key: "paymentType", Source: "payment_type", Kind: Text},
		{Key: "orderAmount", Source: "order_amount", Kind: Money, Sum: true},
		{Key: "collectionAmount", Source: "collection_amount", Kind: Money, Sum: true},
		{Key: "cancelReason", Source: "cancel_reason", Kind: Text},
		{Key: "courierName", Source: "courier_name", Kind: Text},
	},
}

// control's column sha256 is not in ClickHouse: see readControl.
var control = &Report{
	Name: controlName, Title: "Control totals", view: "control_totals",
	Day:   "for each line what it means in that report",
	order: "line_number",
	Columns: []Column{
		{Key: "line", Source: "line", Kind: Text},
		{Key: "rows", Source: "rows", Kind: Count},
		{Key: "created", Source: "created", Kind: Count},
		{Key: "orders", Source: "orders", Kind: Count},
		{Key: "delivered", Source: "delivered", Kind: Count},
		{Key: "failed", Source: "failed", Kind: Count},
		{Key: "cancelled", Source: "cancelled", Kind: Count},
		{Key: "orderAmountDelivered", Source: "order_amount_delivered", Kind: Money},
		{Key: "cashExpected", Source: "cash_expected", Kind: Money},
		{Key: "cardExpected", Source: "card_expected", Kind: Money},
		{Key: "prepaidAmount", Source: "prepaid_amount", Kind: Money},
		{Key: "ties", Source: "multiIf(isNull(ties), '', ties, 'yes', 'no')", Kind: Text},
		{Key: "sha256", Kind: Text},
		{Key: "noPaymentTypeAmount", Source: "no_payment_type_amount", Kind: Money},
	},
}
