package archive

import (
	"fmt"
	"strings"

	"vendorapi/internal/delivery"
)

// Sums is what reports add up of a stored order.
type Sums struct {
	Status      string
	PaymentType string
	OrderAmount delivery.Money
	Collection  delivery.Money
}

// Sums reads them from the stored row; an error when there is none, or when an
// amount is none that an order can have.
func (s *Stored) Sums() (Sums, error) {
	var sums Sums
	var err error
	if s.order == nil {
		return sums, fmt.Errorf("order %s has events and no row", s.Order)
	}
	money := func(text string) (m delivery.Money) {
		if text != "" && err == nil {
			m, err = delivery.ParseMoney(text)
		}
		return m
	}
	for i, c := range orders.columns {
		switch c.name {
		case "status":
			sums.Status = s.order[i]
		case "payment_type":
			sums.PaymentType = s.order[i]
		case "order_amount":
			sums.OrderAmount = money(s.order[i])
		case "collection_amount":
			sums.Collection = money(s.order[i])
		}
	}
	if err != nil {
		return Sums{}, fmt.Errorf("order %s: an amount %w", s.Order, err)
	}
	return sums, nil
}

// Flaws judges an order that has left the ledger, so that there is nothing to
// compare it with, by what must be true of any such order: it has ended, lies
// where its id and its creation say, and has all of its events. It answers in
// words; nothing means sound.
func (s *Stored) Flaws() (flaws []string) {
	if s.order == nil {
		return []string{fmt.Sprintf("there is no row, but %d events", len(s.events))}
	}
	var status, external, created string
	for i, c := range orders.columns {
		switch c.name {
		case "status":
			status = s.order[i]
		case "external_order_id":
			external = s.order[i]
		case "created_at":
			created = s.order[i]
		}
	}
	if reached, err := delivery.ParseStatus(status); err != nil || !reached.Terminal() {
		flaws = append(flaws, fmt.Sprintf("status is %q, and it has ended", status))
	}
	digest := delivery.OrderDigest(s.Account, external)
	if delivery.MakeOrderID(s.Order.Partition(), s.Order.Day(), digest) != s.Order {
		flaws = append(flaws, fmt.Sprintf("its id is not that of external order id %q of this account", external))
	}
	if !strings.HasPrefix(created, dateOf(s.Day)) {
		flaws = append(flaws, fmt.Sprintf("it was created on %q, which is another day", created))
	}
	if steps := int(delivery.Sequence(s.Version)); len(s.events) != steps {
		flaws = append(flaws, fmt.Sprintf("it has %d events, should have %d", len(s.events), steps))
	}
	if _, err := s.Sums(); err != nil {
		flaws = append(flaws, err.Error())
	}
	return flaws
}
