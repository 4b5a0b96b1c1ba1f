package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
)

// The reports, calculated from what the play knows, in whole kuruş and local
// time. A row is the text of its columns.

func lira(minor int64) string { return fmt.Sprintf("%d.%02d", minor/100, minor%100) }

func given(m delivery.Money) string {
	if !m.Set {
		return "null"
	}
	return lira(m.Minor)
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "null"
	}
	return t.In(delivery.Istanbul).Format("2006-01-02T15:04:05.000-07:00")
}

func day(t time.Time) string { return t.In(delivery.Istanbul).Format(time.DateOnly) }

func (o *played) expected() int64 {
	if o.status == delivery.Delivered && (o.payment == delivery.Cash || o.payment == delivery.Card) {
		return o.collection.Minor
	}
	return 0
}

func (p *play) fleetName(o *played) string { return p.fleets[o.store.Fleet].Name }

func row(cells ...any) string {
	parts := make([]string, len(cells))
	for i, c := range cells {
		parts[i] = fmt.Sprint(c)
	}
	return strings.Join(parts, "|")
}

func (p *play) ledgerRows() (rows []string) {
	orders := slices.Clone(p.orders)
	slices.SortFunc(orders, func(a, b *played) int {
		return cmp.Or(a.created.Compare(b.created), strings.Compare(a.id.String(), b.id.String()))
	})
	for _, o := range orders {
		rows = append(rows, row(o.id, o.external, o.store.ExternalID, o.store.Name, o.store.TaxNumber, o.store.Fleet, p.fleetName(o),
			o.status, o.failure, moment(o.created), "null", moment(o.pickedUp), moment(o.delivered), moment(o.ended),
			o.payment, given(o.amount), given(o.collection), lira(o.expected()), "TRY"))
	}
	return rows
}

// group is what orders are added up by.
type group struct{ period, account, fleet, fleetName, store, storeName string }

func (p *play) groupOf(period string, o *played) group {
	return group{period, o.store.Account.String(), o.store.Fleet.String(), p.fleetName(o), o.store.ExternalID, o.store.Name}
}

func (g group) cells() []any {
	return []any{g.period, g.account, g.fleet, g.fleetName, g.store, g.storeName}
}

// sorted renders every group with its figures, in the order of the reports.
func sorted[F any](groups map[group]*F, figures func(*F) []any) (rows []string) {
	for g, f := range groups {
		rows = append(rows, row(append(g.cells(), figures(f)...)...))
	}
	slices.SortFunc(rows, func(a, b string) int {
		as, bs := strings.Split(a, "|"), strings.Split(b, "|")
		return cmp.Or(cmp.Compare(as[0], bs[0]), cmp.Compare(as[1], bs[1]), cmp.Compare(as[2], bs[2]), cmp.Compare(as[4], bs[4]))
	})
	return rows
}

func at[F any](groups map[group]*F, g group) *F {
	if groups[g] == nil {
		groups[g] = new(F)
	}
	return groups[g]
}

func (p *play) collectionRows() []string {
	type figures struct{ delivered, cashCount, cash, cardCount, card, prepaidCount, prepaid int64 }
	groups := make(map[group]*figures)
	for _, o := range p.orders {
		if o.status != delivery.Delivered {
			continue
		}
		f := at(groups, p.groupOf(day(o.delivered), o))
		f.delivered++
		switch o.payment {
		case delivery.Cash:
			f.cashCount++
			f.cash += o.expected()
		case delivery.Card:
			f.cardCount++
			f.card += o.expected()
		case delivery.Prepaid:
			f.prepaidCount++
			f.prepaid += o.amount.Minor
		}
	}
	return sorted(groups, func(f *figures) []any {
		return []any{f.delivered, f.cashCount, lira(f.cash), f.cardCount, lira(f.card), f.prepaidCount, lira(f.prepaid)}
	})
}

func (p *play) statementRows() []string {
	type figures struct{ created, delivered, failed, cancelled, amount, cash, card int64 }
	groups := make(map[group]*figures)
	for _, o := range p.orders {
		at(groups, p.groupOf(day(o.created)[:7], o)).created++
		if o.ended.IsZero() {
			continue
		}
		f := at(groups, p.groupOf(day(o.ended)[:7], o))
		switch o.status {
		case delivery.Delivered:
			f.delivered++
			f.amount += o.amount.Minor
			if o.payment == delivery.Cash {
				f.cash += o.expected()
			} else {
				f.card += o.expected()
			}
		case delivery.Failed:
			f.failed++
		case delivery.Cancelled:
			f.cancelled++
		}
	}
	return sorted(groups, func(f *figures) []any {
		return []any{f.created, f.delivered, f.failed, f.cancelled, lira(f.amount), lira(f.cash), lira(f.card)}
	})
}

// exceptionRows are order and kind; what else is in the row is the ledger's.
func (p *play) exceptionRows() (rows []string) {
	for _, o := range p.orders {
		collects := o.payment == delivery.Cash || o.payment == delivery.Card
		for kind, holds := range map[string]bool{
			"CollectionMissing":     collects && !o.collection.Set,
			"CollectionOnPrepaid":   o.payment == delivery.Prepaid && o.collection.Set,
			"CollectionDiffers":     collects && o.collection.Set && o.amount.Set && o.collection != o.amount,
			"CollectionUndelivered": (o.status == delivery.Failed || o.status == delivery.Cancelled) && o.collection.Minor > 0,
			"PaymentTypeMissing":    o.payment == delivery.PaymentUnknown,
			"LateDelivery":          !o.lateReport.IsZero(),
		} {
			if holds {
				rows = append(rows, row(kind, o.id))
			}
		}
	}
	slices.Sort(rows)
	return rows
}
