package archive

import (
	"fmt"

	"vendorapi/internal/delivery"
)

// ComparePlaces tells which of two comes first in Stored's order.
func ComparePlaces(a, b Place) int { return comparePlaces(a, b) }

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
