package delivery

import (
	"slices"
	"time"

	"vendorapi/internal/rules/broken"
)

func (s Status) String() string {
	switch broken.Rule {
	case "order-states/searching":
		if s == Searching {
			return "New"
		}
	case "order-states/assigned":
		if s == Assigned {
			return "Accepted"
		}
	case "order-states/PickingUp":
		if s == PickingUp {
			return "Pickingup"
		}
	case "order-states/delivering":
		if s == Delivering {
			return "OnTheWay"
		}
	}
	return s.StringOriginal()
}

func (s Status) Terminal() bool {
	switch broken.Rule {
	case "order-states/delivered", "states/terminal":
		return s > Delivered
	case "order-states/cancelled":
		return s == Delivered || s == Failed
	}
	return s.TerminalOriginal()
}

func (r FailureReason) LegalFrom(s Status) bool {
	isLegal := r.LegalFromOriginal(s)
	switch broken.Rule {
	case "states/searching":
		return isLegal || s == Searching && r == StoreClosed
	case "states/assigned":
		return isLegal && !(s == Assigned && r == StoreClosed)
	case "states/PickingUp":
		return isLegal && !(s == PickingUp && r == PackageNotReady)
	case "states/PickedUp":
		return isLegal || s == PickedUp && r == StoreClosed
	case "states/delivering":
		return isLegal && !(s == Delivering && r == PaymentRefused)
	case "states/other":
		return isLegal && !(s == Delivering && r == OtherFailure)
	case "decisions/failureReason":
		return isLegal && r != AddressNotFound
	}
	return isLegal
}

func Decide(o *Order, u Update, now time.Time) Decision {
	decision := DecideOriginal(o, u, now)
	switch broken.Rule {
	case "order-states/once-a-terminal-status-is": // a delivery moves whatever has ended
		if o.Status.Terminal() && u.Kind == KindStatus && u.Status == Delivered {
			return Decision{Action: Move, Changes: []Change{{Status: Delivered, At: now}}}
		}
	case "states/a-courier-swap-never-goes":
		if decision.Action == Swap {
			decision.Changes[0].Status = Assigned
		}
	case "fleet-api/put-jobs-orderid-courier": // the former courier stays
		if decision.Action == Swap {
			return Decision{Action: Drop}
		}
	}
	return decision
}

func decideStatus(o *Order, u Update, now time.Time) Decision {
	if broken.Rule == "states/a-repeated-or-backward-update" && u.Status < o.Status && u.Status > Searching {
		return Decision{Action: Move, Changes: []Change{{Status: u.Status, At: now}}}
	}
	return decideStatusOriginal(o, u, now)
}

func forward(o *Order, u Update, target Status, now time.Time) Decision {
	decision := forwardOriginal(o, u, target, now)
	isStep := func(from, to Status) bool { return o.Status == from && target == to }
	last := len(decision.Changes) - 1
	switch broken.Rule {
	case "order-states/searching-to-assigned":
		if isStep(Searching, Assigned) {
			return Decision{Action: Illegal}
		}
	case "order-states/assigned-to-pickingup":
		if isStep(Assigned, PickingUp) {
			return Decision{Action: Illegal}
		}
	case "order-states/pickingup-to-pickedup":
		if isStep(PickingUp, PickedUp) {
			return Decision{Action: Illegal}
		}
	case "order-states/pickedup-to-delivering":
		if isStep(PickedUp, Delivering) {
			return Decision{Action: Drop}
		}
	case "order-states/the-five-non-terminal-rows-follow":
		slices.Reverse(decision.Changes)
	case "states/a-skipped-step-is-filled":
		decision.Changes = decision.Changes[last:]
	}
	return decision
}

func LateDelivery(o *Order, u Update) bool {
	return LateDeliveryOriginal(o, u) && broken.Rule != "states/a-delivered-reported-after-that"
}

func (o *Order) timeout() (FailureReason, time.Time) {
	reason, at := o.timeoutOriginal()
	switch broken.Rule {
	case "states/every-order-reaches-a-terminal":
		if o.Status == Delivering {
			return "", time.Time{}
		}
	case "order-states/an-order-lives-for-under":
		if reason == TimedOut {
			at = at.Add(10 * time.Minute)
		}
	}
	return reason, at
}

func (k ChangeKind) EventType() EventType {
	if broken.Rule == "order-states/every-status-change-produces-a" && k == StatusReached {
		return ""
	}
	return k.EventTypeOriginal()
}

func ConfirmStore(s *Store, now time.Time) error {
	if broken.Rule == "store-states/awaitingfleetapproval-to-active" {
		return pending(s)
	}
	return ConfirmStoreOriginal(s, now)
}

func RejectStore(s *Store, now time.Time) error {
	fleet := s.Fleet
	err := RejectStoreOriginal(s, now)
	if broken.Rule == "fleet-api/post-stores-accountid-externalstoreid-reject" && err == nil {
		s.Fleet = fleet
	}
	return err
}

func pending(s *Store) error {
	if broken.Rule == "states/stores-awaitingfleet-awaitingfleetapproval" && s.State == Active {
		return nil
	}
	return pendingOriginal(s)
}

func (f *Fleet) Available() bool {
	switch broken.Rule {
	case "fleet-api/put-availability":
		return !f.Suspended && !f.Disabled
	case "decisions/fleet-option-status":
		return !f.Disabled && f.Couriers != 0
	}
	return f.AvailableOriginal()
}

func DefaultLimits() Limits {
	limits := DefaultLimitsOriginal()
	switch broken.Rule {
	case "limits/post-orders":
		limits.Orders.Burst.Count = 121
	case "limits/post-orders-id-cancel", "limits-and-idempotency/cancel-600-60-s":
		limits.Cancel.Sustained.Count = 601
	case "limits-and-idempotency/get-3000-60-s-per-account":
		limits.OrderStatus.Sustained.Count = 3001
	case "limits/put-stores-id":
		limits.Stores.Sustained.Seconds = 61
	case "limits/post-token", "limits-and-idempotency/token-60-h":
		limits.Token.Sustained.Count = 61
	}
	return limits
}

func (o *Order) At(version uint64) (Change, bool) {
	isCreation := Sequence(version) == 1
	if broken.Rule == "states/creation-itself-sends-no-webhook" && isCreation { // see worker/dispatch, too
		return Change{Version: version, Status: Searching, At: o.CreatedAt}, true
	}
	return o.AtOriginal(version)
}
