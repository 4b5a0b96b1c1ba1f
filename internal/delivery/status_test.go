package delivery

import (
	"errors"
	"fmt"
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
