package delivery

import (
	"strings"
	"testing"
)

//rule:decisions/sandbox
func TestParseTrigger(t *testing.T) {
	for note, want := range map[string]Trigger{
		"":                                {},
		"SIMIT":                           {},
		"SIM":                             {},
		"please SIM:FOO":                  {},
		"SIM:NO_COURIER":                  {Kind: TriggerNoCourier},
		"SIM:FLEET_UNAVAILABLE now":       {Kind: TriggerFleetUnavailable},
		"SIM:FLEET_SUSPENDED\nnow":        {Kind: TriggerFleetSuspended},
		"SIM:DUPLICATE her olay iki kez":  {Kind: TriggerDuplicate},
		"SIM:REORDER":                     {Kind: TriggerReorder},
		"SIM:HOLD=Delivering":             {Kind: TriggerHold, Hold: Delivering},
		"SIM:FAIL=Other":                  {Kind: TriggerFail, Fail: OtherFailure},
		"SIM:FAIL=CustomerRefused please": {Kind: TriggerFail, Fail: CustomerRefused},
	} {
		if got, err := ParseTrigger(note); err != nil || got != want {
			t.Errorf("%q: %+v, %v", note, got, err)
		}
	}

	for _, note := range []string{
		"SIM:FAIL=Nonsense", "sim:fail=Other", "SIM:FOO", "SIM:HOLD=assigned", "SIM:", "Sim: yarım", "SIM:FAIL=", "SIM:FAIL", "SIM:HOLD=",
		"SIM:HOLD=Delivered", "SIM:HOLD=Failed", "SIM:NO_COURIERS", "SIM:NO_COURIER,SIM:DUPLICATE", "SIM:REORDER.", "SIM:FAIL= Other",
	} {
		if got, err := ParseTrigger(note); err == nil || got != (Trigger{}) {
			t.Errorf("%q: %+v", note, got)
		}
	}

	for status, reasons := range failures {
		if !strings.Contains(errTrigger.Error(), status.String()) {
			t.Errorf("the message does not list %s", status)
		}
		for _, reason := range append(reasons, OtherFailure) {
			if !strings.Contains(errTrigger.Error(), string(reason)) {
				t.Errorf("the message does not list %s", reason)
			}
		}
	}
}
