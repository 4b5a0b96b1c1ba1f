package delivery

import (
	"errors"
	"slices"
	"strings"
	"unicode"
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

// Trigger is a packageNote's first word that makes a sandbox behave (design section 9).
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
