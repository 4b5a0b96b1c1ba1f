package delivery

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func TestStates_AreFoundByTheirNames(t *testing.T) {
	for s := Searching; s <= Cancelled; s++ {
		if got, err := ParseStatus(s.String()); err != nil || got != s {
			t.Errorf("%v becomes %v, %v", s, got, err)
		}
	}

	for s := AwaitingFleet; s <= Deactivated; s++ {
		if got, err := ParseStoreState(s.String()); err != nil || got != s {
			t.Errorf("%v becomes %v, %v", s, got, err)
		}
	}

	for p := Cash; p <= Prepaid; p++ {
		if got, err := ParsePaymentType(p.String()); err != nil || got != p {
			t.Errorf("%v becomes %v, %v", p, got, err)
		}
	}

	for _, name := range []string{"", "searching", "Status(0)", "Unknown"} {
		if _, err := ParseStatus(name); err == nil {
			t.Errorf("status %q was accepted", name)
		}
		if _, err := ParseStoreState(name); err == nil {
			t.Errorf("store state %q was accepted", name)
		}
		if _, err := ParsePaymentType(name); err == nil {
			t.Errorf("payment type %q was accepted", name)
		}
	}

	if got := fmt.Sprint(Status(0), Status(9), StoreState(0), StoreState(5), PaymentType(4), PaymentUnknown); got != "Status(0) Status(9) StoreState(0) StoreState(5) PaymentType(4) " {
		t.Errorf("numbers that are none: %s", got)
	}
}

func TestCodes_HaveAnHTTPStatus(t *testing.T) {
	for _, code := range Codes() {
		s := code.HTTPStatus()
		check(t, s >= 400 && s <= 599, "%s answers %d", code, s)
	}
	got := Code("NEW").HTTPStatus()
	check(t, got == 500, "an unknown code answers %d", got)
}

func TestCodeOf_FindsWrappedRefusals(t *testing.T) {
	wrapped := fmt.Errorf("creating: %w", Refuse(CodeInvalidPhone, "field %s", "x"))
	check(t, CodeOf(wrapped) == CodeInvalidPhone && CodeOf(errors.New("x")) == CodeInternal, "got %s and %s", CodeOf(wrapped), CodeOf(errors.New("x")))
	check(t, wrapped.Error() == "creating: INVALID_PHONE: field x", "%v", wrapped)
}

// The words of the interface, written out a second time: a constant that is
// renamed with everything that uses it would pass any other test.
//
//rule:order-creation-request/payment.type store-states/states-awaitingfleet-awaitingfleetapproval-active order-states/searching order-states/assigned
//rule:order-states/PickingUp order-states/PickedUp order-states/delivering order-states/delivered order-states/failed order-states/cancelled
//rule:event-types/delivery.status_changed event-types/store.activated event-types/store.migrating event-types/store.deactivated
//rule:event-types/fleet.payment_overdue event-types/the-reason-value-migratedtohizliyo-is decisions/cancel decisions/failureReason
func TestVocabulary_IsTheSpecs(t *testing.T) {
	var statuses, terminal, cancellable, stores, payments []string
	for s := Searching; s <= Cancelled; s++ {
		statuses = append(statuses, s.String())
		if s.Terminal() {
			terminal = append(terminal, s.String())
		}
		if s.Cancellable() {
			cancellable = append(cancellable, s.String())
		}
	}

	for s := AwaitingFleet; s <= Deactivated; s++ {
		stores = append(stores, s.String())
	}

	for p := Cash; p <= Prepaid; p++ {
		payments = append(payments, p.String())
	}

	reasons := []string{}
	for _, r := range allReasons {
		reasons = append(reasons, string(r))
	}

	for name, c := range map[string]struct{ got, want []string }{
		"order states":       {statuses, []string{"Searching", "Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered", "Failed", "Cancelled"}},
		"terminal ones":      {terminal, []string{"Delivered", "Failed", "Cancelled"}},
		"cancellable ones":   {cancellable, []string{"Searching", "Assigned", "PickingUp"}},
		"store states":       {stores, []string{"AwaitingFleet", "AwaitingFleetApproval", "Active", "Deactivated"}},
		"payment types":      {payments, []string{"Cash", "Card", "Prepaid"}},
		"failures":           {reasons, []string{"NoCourierFound", "TimedOut", "CourierIncident", "StoreClosed", "PackageNotReady", "PackageDamaged", "AddressNotFound", "CustomerUnreachable", "CustomerRefused", "PaymentRefused", "Other"}},
		"cancellations":      {[]string{string(CustomerRequest), string(CancelStoreRequest), string(DuplicateOrder), string(CancelNotReady), string(OtherCancel)}, []string{"CustomerRequest", "StoreRequest", "DuplicateOrder", "PackageNotReady", "Other"}},
		"deactivations":      {[]string{string(MigratedToHizliyo), string(FleetSuspended), string(VendorRequest)}, []string{"MigratedToHizliyo", "FleetSuspended", "VendorRequest"}},
		"events":             {[]string{string(StatusChanged), string(StoreActivated), string(StoreMigrating), string(StoreDeactivated), string(StoreRejected), string(PaymentOverdue)}, []string{"delivery.status_changed", "store.activated", "store.migrating", "store.deactivated", "store.rejected", "fleet.payment_overdue"}},
		"the event of tests": {[]string{string(WebhookTest)}, []string{"webhook.test"}},
	} {
		check(t, slices.Equal(c.got, c.want), "%s: %q, want %q", name, c.got, c.want)
	}
}
