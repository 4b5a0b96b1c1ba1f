package delivery

import (
	"strings"
	"testing"
)

//rule:decisions/cancel
func TestCancelRequest_TakesEveryReasonAndNone(t *testing.T) {
	for _, reason := range []CancelReason{CustomerRequest, CancelStoreRequest, DuplicateOrder, CancelNotReady, OtherCancel} {
		r := CancelRequest{Reason: text(string(reason)), Note: text(" " + chars(256) + " ")}
		if got, note, err := r.Check(); err != nil || got != reason || note != chars(256) {
			t.Errorf("%s: got %s, %q, %v", reason, got, note, err)
		}
	}
	none := CancelRequest{}
	if reason, note, err := none.Check(); err != nil || reason != "" || note != "" {
		t.Errorf("no body: %q, %q, %v", reason, note, err)
	}
}

//rule:decisions/cancel
func TestCancelRequest_RefusesByField(t *testing.T) {
	for name, c := range map[string]struct {
		r      CancelRequest
		fields string
	}{
		"unknown reason": {CancelRequest{Reason: text("customerRequest")}, "reason"},
		"empty reason":   {CancelRequest{Reason: text("")}, "reason"},
		"long note":      {CancelRequest{Note: text(chars(257))}, "note"},
		"note with NUL":  {CancelRequest{Note: text("\x00")}, "note"},
		"both":           {CancelRequest{Reason: text("x"), Note: text(chars(257))}, "reason,note"},
		"wrong type":     {CancelRequest{WrongType: []FieldError{{"note", "must be a string"}}}, "note"},
	} {
		_, _, err := c.r.Check()
		checkRefusal(t, name, err, CodeValidationFailed, c.fields)
	}
}

//rule:decisions/idempotency-header-absent
func TestCheckIdempotencyKey_TakesVisibleASCIIOfUpTo255(t *testing.T) {
	for _, good := range []string{"a", "!~", strings.Repeat("k", 255), "order-1:2/3"} {
		err := CheckIdempotencyKey([]byte(good))
		check(t, err == nil, "%q: %v", good, err)
	}
	for _, bad := range []string{"", " ", "a b", "a\x7f", "ş", "\x1f", strings.Repeat("k", 256)} {
		checkRefusal(t, bad, CheckIdempotencyKey([]byte(bad)), CodeValidationFailed, "X-Idempotency-Key")
	}
}
