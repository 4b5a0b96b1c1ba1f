package delivery

import (
	"slices"
	"testing"
)

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
		"events":             {[]string{string(StatusChanged), string(StoreActivated), string(StoreMigrating), string(StoreDeactivated), string(PaymentOverdue)}, []string{"delivery.status_changed", "store.activated", "store.migrating", "store.deactivated", "fleet.payment_overdue"}},
		"the event of tests": {[]string{string(WebhookTest)}, []string{"webhook.test"}},
	} {
		check(t, slices.Equal(c.got, c.want), "%s: %q, want %q", name, c.got, c.want)
	}
}
