package delivery

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode"
)

// Status is the state of an order, in the order of progress. The numbers are stored.
type Status uint8

// The eight states. Delivered, Failed and Cancelled are terminal.
const (
	Searching Status = 1 + iota
	Assigned
	PickingUp
	PickedUp
	Delivering
	Delivered
	Failed
	Cancelled
)

var statusNames = []string{"", "Searching", "Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered", "Failed", "Cancelled"}

// String is the spec's name, or "Status(n)" for a number that is none.
func (s Status) String() string { return nameOf(s, statusNames, "Status") }

// ParseStatus reads the spec's name, case-sensitively.
func ParseStatus(name string) (Status, error) {
	return parseName[Status](name, statusNames, "an order status")
}

// LogValue is the status's name.
func (s Status) LogValue() slog.Value { return slog.StringValue(s.String()) }

// nameOf is the name at the value's index; index 0 is no value.
func nameOf[E ~uint8](value E, names []string, kind string) string {
	if value == 0 || int(value) >= len(names) {
		return fmt.Sprintf("%s(%d)", kind, uint8(value))
	}
	return names[value]
}

func parseName[E ~uint8](name string, names []string, what string) (E, error) {
	if i := slices.Index(names, name); i > 0 {
		return E(i), nil
	}
	return 0, fmt.Errorf("%q is not %s", name, what)
}

// Terminal reports whether the order has ended.
func (s Status) Terminal() bool { return s >= Delivered }

// Cancellable reports whether a vendor may still cancel: before pickup.
func (s Status) Cancellable() bool { return s >= Searching && s <= PickingUp }

// StoreState is the state of a store (spec, "Store states").
type StoreState uint8

// The states of a store. The numbers are stored; never renumber them.
const (
	AwaitingFleet StoreState = 1 + iota
	AwaitingFleetApproval
	Active
	Deactivated
)

var storeStateNames = []string{"", "AwaitingFleet", "AwaitingFleetApproval", "Active", "Deactivated"}

// String is the spec's name, or "StoreState(n)" for a number that is none.
func (s StoreState) String() string { return nameOf(s, storeStateNames, "StoreState") }

// ParseStoreState reads the spec's name, case-sensitively.
func ParseStoreState(name string) (StoreState, error) {
	return parseName[StoreState](name, storeStateNames, "a store state")
}

// FailureReason says why an order Failed (decisions, "States").
type FailureReason string

// The reasons. The service itself gives NoCourierFound and TimedOut, too.
const (
	NoCourierFound      FailureReason = "NoCourierFound"
	TimedOut            FailureReason = "TimedOut"
	CourierIncident     FailureReason = "CourierIncident"
	StoreClosed         FailureReason = "StoreClosed"
	PackageNotReady     FailureReason = "PackageNotReady"
	PackageDamaged      FailureReason = "PackageDamaged"
	AddressNotFound     FailureReason = "AddressNotFound"
	CustomerUnreachable FailureReason = "CustomerUnreachable"
	CustomerRefused     FailureReason = "CustomerRefused"
	PaymentRefused      FailureReason = "PaymentRefused"
	OtherFailure        FailureReason = "Other"
)

// PaymentType is how the customer pays (spec, payment.type).
type PaymentType uint8

// The types. The numbers are stored; never renumber them. Zero: not given.
const (
	PaymentUnknown PaymentType = iota
	Cash
	Card
	Prepaid
)

var paymentNames = []string{"", "Cash", "Card", "Prepaid"}

// String is the spec's name, empty when the vendor gave none.
func (p PaymentType) String() string {
	if p == PaymentUnknown {
		return ""
	}
	return nameOf(p, paymentNames, "PaymentType")
}

// ParsePaymentType reads the spec's name, case-sensitively.
func ParsePaymentType(name string) (PaymentType, error) {
	return parseName[PaymentType](name, paymentNames, "a payment type")
}

// CancelReason is the vendor's optional reason for a cancellation.
type CancelReason string

// The reasons a vendor may give.
const (
	CustomerRequest    CancelReason = "CustomerRequest"
	CancelStoreRequest CancelReason = "StoreRequest"
	DuplicateOrder     CancelReason = "DuplicateOrder"
	CancelNotReady     CancelReason = "PackageNotReady"
	OtherCancel        CancelReason = "Other"
)

// DeactivationReason is why a store was closed (spec, store.deactivated).
type DeactivationReason string

// The reasons, given exactly as the interface defines them.
const (
	MigratedToHizliyo DeactivationReason = "MigratedToHizliyo"
	FleetSuspended    DeactivationReason = "FleetSuspended"
	VendorRequest     DeactivationReason = "VendorRequest"
)

// Environments (spec, "Sandbox").
const (
	Production = "production"
	Sandbox    = "sandbox"
)

// TriggerKind is what a packageNote asks of a sandbox.
type TriggerKind string

// The kinds; a note without a trigger has none.
const (
	TriggerFleetUnavailable TriggerKind = "SIM:FLEET_UNAVAILABLE" // the gateway refuses the order
	TriggerFleetSuspended   TriggerKind = "SIM:FLEET_SUSPENDED"   // likewise
	TriggerNoCourier        TriggerKind = "SIM:NO_COURIER"        // the sandbox courier does not accept
	TriggerFail             TriggerKind = "SIM:FAIL="             // it fails, for Trigger.Fail
	TriggerHold             TriggerKind = "SIM:HOLD="             // it stays in Trigger.Hold
	TriggerDuplicate        TriggerKind = "SIM:DUPLICATE"         // every event is sent twice
	TriggerReorder          TriggerKind = "SIM:REORDER"           // every second event is overtaken
)

// Trigger is a packageNote's first word that makes a sandbox behave (decisions, "Sandbox").
type Trigger struct {
	Kind TriggerKind
	Fail FailureReason // of TriggerFail
	Hold Status        // of TriggerHold, never terminal
}

// errTrigger continues the name of the field.
var errTrigger = errors.New("begins with SIM:, which a sandbox reads as one of SIM:FLEET_UNAVAILABLE, SIM:FLEET_SUSPENDED, " +
	"SIM:NO_COURIER, SIM:DUPLICATE, SIM:REORDER, SIM:HOLD= with Searching, Assigned, PickingUp, PickedUp or Delivering, and " +
	"SIM:FAIL= with " + failureNames + ", exactly so and up to a space")

// ParseTrigger reads the first word of a note. One that begins with SIM:, in whatever
// case, and is no trigger as it is written here is an error that lists them.
func ParseTrigger(note string) (Trigger, error) {
	word := note
	if end := strings.IndexFunc(note, unicode.IsSpace); end >= 0 {
		word = note[:end]
	}

	const prefix = "SIM:"
	if len(word) < len(prefix) || !strings.EqualFold(word[:len(prefix)], prefix) {
		return Trigger{}, nil
	}

	alone := []TriggerKind{TriggerFleetUnavailable, TriggerFleetSuspended, TriggerNoCourier, TriggerDuplicate, TriggerReorder}
	if kind := TriggerKind(word); slices.Contains(alone, kind) {
		return Trigger{Kind: kind}, nil
	}

	if name, ok := strings.CutPrefix(word, string(TriggerFail)); ok {
		if reason, err := ParseFailureReason(name); err == nil {
			return Trigger{Kind: TriggerFail, Fail: reason}, nil
		}
	}

	if name, ok := strings.CutPrefix(word, string(TriggerHold)); ok {
		if status, err := ParseStatus(name); err == nil && !status.Terminal() {
			return Trigger{Kind: TriggerHold, Hold: status}, nil
		}
	}

	return Trigger{}, errTrigger
}
