package delivery

import "time"

// The moves of a store (spec, "Store states"; design section 6) besides a vendor's PUT. The caller
// writes s with the move's notice, and decides again after a conflict.

// ConfirmStore accepts the store for its fleet: it becomes Active.
// STORE_NOT_PENDING unless it awaits the fleet's approval.
func ConfirmStore(s *Store, now time.Time) error {
	if err := pending(s); err != nil {
		return err
	}
	s.State, s.UpdatedAt = Active, now
	return nil
}

// RejectStore returns a store to AwaitingFleet. STORE_NOT_PENDING as ConfirmStore.
func RejectStore(s *Store, now time.Time) error {
	if err := pending(s); err != nil {
		return err
	}
	s.State, s.Fleet, s.FleetName, s.UpdatedAt = AwaitingFleet, FleetID{}, "", now
	return nil
}

// MigrateStore sets or moves the local day after which the store closes (ClosingOver).
// STORE_NOT_CONFIGURED unless Active, VALIDATION_FAILED for a day before today.
func MigrateStore(s *Store, closing, now time.Time) error {
	if s.State != Active {
		return NotActive(s.ExternalID, s.State)
	}
	day := localDay(closing)
	if day.Before(localDay(now)) {
		return &Error{Code: CodeValidationFailed, Message: "closingDate is in the past",
			Fields: []FieldError{{Field: "closingDate", Message: "must not be in the past"}}}
	}
	s.ClosingDate, s.UpdatedAt = day, now
	return nil
}

// DeactivateStore closes the store, which loses its fleet and closing date; a later
// PUT registers it again. STORE_NOT_CONFIGURED when it is closed already.
func DeactivateStore(s *Store, now time.Time) error {
	if s.State == Deactivated {
		return NotActive(s.ExternalID, s.State)
	}
	s.State, s.Fleet, s.FleetName, s.ClosingDate, s.UpdatedAt = Deactivated, FleetID{}, "", time.Time{}, now
	return nil
}

// ClosingOver reports whether the closing day of a migrating store has ended.
func (s *Store) ClosingOver(now time.Time) bool {
	return s.State == Active && !s.ClosingDate.IsZero() && !now.Before(localDay(s.ClosingDate).AddDate(0, 0, 1))
}

// NotActive is STORE_NOT_CONFIGURED; state is 0 when no store is registered.
func NotActive(externalID string, state StoreState) *Error {
	refusal := &Error{Code: CodeStoreNotConfigured, Store: state}
	switch state {
	case 0:
		refusal.Message = "no store is registered as " + externalID + "; register it with PUT /stores/{externalStoreId}"
	case AwaitingFleet:
		refusal.Message = "store " + externalID + " has no fleet; choose one with PUT /stores/{externalStoreId} and fleetId"
	default:
		refusal.Message = "store " + externalID + " is " + state.String() + ", not Active"
		if state == AwaitingFleetApproval {
			refusal.Message += "; wait for store.activated"
		}
	}
	return refusal
}

func pending(s *Store) error {
	if s.State != AwaitingFleetApproval {
		refusal := Refuse(CodeStoreNotPending, "store %s is %s, not AwaitingFleetApproval", s.ExternalID, s.State)
		refusal.Store = s.State
		return refusal
	}
	return nil
}

// localDay is 00:00 +03:00 of the day that t falls on.
func localDay(t time.Time) time.Time {
	local := t.In(Istanbul)
	return time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, Istanbul)
}
