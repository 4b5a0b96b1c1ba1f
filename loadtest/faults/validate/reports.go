package validate

import (
	"slices"

	"vendorapi/internal/delivery"
)

// checkReports: what a fleet was acknowledged is in the order's history, or among the refused reports
// that operators are shown.
func (c *check) checkReports() {
	for _, op := range c.fleetOps {
		if !op.OK() {
			continue
		}

		o := c.orders[op.Order]
		if o == nil {
			c.about(op.Order, LostOrder, "a fleet's %s was answered %d and the order is not in Redis", op.Kind, op.Status)
			continue
		}

		if !o.holds(op) && !c.isRefused(o, op) {
			c.about(o.ID, ReportLost, "a fleet's %s %s%s was answered %d; the order went %v and the report was not refused",
				op.Kind, op.Reported, op.Courier, op.Status, o.path())
		}
	}
}

// holds reports whether the order's history has what a fleet reported. A status that was skipped is in
// it, too, because skipped steps are filled in.
func (o *Order) holds(op *Operation) bool {
	if op.Kind == Progress {
		return slices.Contains(o.path(), op.Reported)
	}
	return slices.Contains(o.Couriers, op.Courier)
}

// isRefused reports whether the refused reports of the order explain why it has not what a fleet reported.
func (c *check) isRefused(o *Order, op *Operation) bool {
	isExplained := func(op *Operation) bool {
		return slices.ContainsFunc(c.facts.Refused, func(r Refused) bool { return r.Order == op.Order && r.explains(op) })
	}
	if op.Kind != Accept || isExplained(op) {
		return isExplained(op)
	}

	// An acceptance says that the order is assigned, and to whom. While a swap to its courier waits to be decided, it
	// says nothing that is not known if the order was assigned before, or a status waits, too.
	swap, assignment := *op, *op
	swap.Kind = Swap
	assignment.Kind, assignment.Reported = Progress, delivery.Assigned.String()
	wasAssigned := o.holds(&assignment) || isExplained(&assignment)

	return wasAssigned && isExplained(&swap)
}

// explains reports whether the refusal is why what op reported is not in the order's history. Either this
// report was refused itself, or an earlier one that implies it: while an acceptance or a later status waits
// to be decided, a swap to the same courier, or an earlier status, is acknowledged as known and not stored.
func (r *Refused) explains(op *Operation) bool {
	if op.Kind != Progress {
		isImplied := op.Kind == Swap && r.Kind == Accept
		return (r.Kind == op.Kind || isImplied) && r.Courier == op.Courier
	}

	if r.Kind == Accept {
		return op.Reported == delivery.Assigned.String()
	}

	refused, err := delivery.ParseStatus(r.Reported)
	if err != nil {
		return false
	}
	reported, err := delivery.ParseStatus(op.Reported)
	if err != nil {
		return false
	}

	if refused == reported {
		return true
	}

	// A failure is no step on the way to a delivery, so none is acknowledged because of another status.
	isLaterStep := refused > reported && refused <= delivery.Delivered

	return reported != delivery.Failed && isLaterStep
}

// checkTaken: of the couriers who accept an order one is answered that it is theirs. An order that may
// have been given to another courier since is left out: that one may accept it, too.
func (c *check) checkTaken() {
	swapped := make(map[string]bool)
	for _, op := range c.fleetOps {
		if op.Kind == Swap && (op.OK() || op.Unknown()) {
			swapped[op.Order] = true
		}
	}

	courierOf := make(map[string]string) // by order
	for _, op := range c.fleetOps {
		if op.Kind != Accept || !op.OK() || swapped[op.Order] {
			continue
		}
		courier, isTaken := courierOf[op.Order]
		if isTaken && courier != op.Courier {
			c.about(op.Order, JobTakenTwice, "the couriers %s and %s were both answered that it is theirs", courier, op.Courier)
		}
		courierOf[op.Order] = op.Courier
	}
}

var kindOfUpdate = map[delivery.UpdateKind]Kind{
	delivery.KindAccept: Accept,
	delivery.KindStatus: Progress,
	delivery.KindSwap:   Swap,
}
