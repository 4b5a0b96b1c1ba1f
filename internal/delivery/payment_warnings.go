package delivery

// PaymentWarning is something in an order's payment that finance has to look at
// before the sums are settled. The order is accepted all the same.
type PaymentWarning struct {
	Kind    string // as the report exceptions names it
	Field   string
	Message string
}

// paymentWarnings are the report's kinds that are known when the order is made.
var paymentWarnings = [...]PaymentWarning{
	{"CollectionMissing", "payment.collectionAmount", "is missing: paid at the door, but nothing is expected to be collected"},
	{"CollectionOnPrepaid", "payment.collectionAmount", "is not expected: the order is prepaid"},
	{"CollectionDiffers", "payment.collectionAmount", "is not the orderAmount"},
	{"PaymentTypeMissing", "payment.type", "is missing: nothing is expected to be collected"},
}

// PaymentWarnings calls yield for each warning that applies to the order. The
// report decides the same in SQL (reporting/archive/schema/0008_exceptions.sql);
// the model that its test compares it with asks here.
func (o *OrderDraft) PaymentWarnings(yield func(*PaymentWarning) bool) {
	collection := o.Payment.CollectionAmount
	atDoor := o.Payment.Type == Cash || o.Payment.Type == Card
	for i, applies := range [len(paymentWarnings)]bool{
		atDoor && !collection.Set,
		o.Payment.Type == Prepaid && collection.Set,
		atDoor && collection.Set && o.OrderAmount.Set && collection != o.OrderAmount,
		o.Payment.Type == PaymentUnknown,
	} {
		if applies && !yield(&paymentWarnings[i]) {
			return
		}
	}
}

func (o *OrderDraft) needsWarning() bool {
	for range o.PaymentWarnings {
		return true
	}
	return false
}

// appendWarnings appends the member warnings.
func (o *OrderDraft) appendWarnings(dst []byte) []byte {
	dst = append(appendKey(dst, "warnings"), '[')
	separator := ""
	for w := range o.PaymentWarnings {
		dst = append(append(dst, separator...), `{"kind":`...)
		dst = appendString(dst, w.Kind)
		dst = appendText(dst, "field", w.Field)
		dst = appendText(dst, "message", w.Message)
		dst, separator = append(dst, '}'), ","
	}
	return append(dst, ']')
}
