package delivery

// CancelRequest is the optional body of POST /orders/{orderId}/cancel before
// any rule is applied. A decoder fills it in; the zero value is "no body".
type CancelRequest struct {
	Reason, Note Text

	// WrongType is as in OrderRequest.
	WrongType []FieldError
}

// Check accepts one of the five reasons or none, and a note of up to 256 code
// points (design section 9). The error is a *Error VALIDATION_FAILED.
func (r *CancelRequest) Check() (CancelReason, string, error) {
	f := faults{wrongType: r.WrongType}
	reason := f.cancelReason("reason", r.Reason)
	note := f.text("note", r.Note, false, 0, maxCancelNote)
	if err := f.result(); err != nil {
		return "", "", err
	}
	return reason, note, nil
}

func (f *faults) cancelReason(field string, t Text) CancelReason {
	if !f.present(field, t.Set, false) {
		return ""
	}
	switch reason := CancelReason(t.Value); reason {
	case CustomerRequest, CancelStoreRequest, DuplicateOrder, CancelNotReady, OtherCancel:
		return reason
	}
	f.invalid(field, "must be CustomerRequest, StoreRequest, DuplicateOrder, PackageNotReady or Other")
	return ""
}

// CheckIdempotencyKey checks the key that the named header carries: 1 to 255
// visible ASCII characters, 0x21 to 0x7e (design section 9). The error is a
// *Error VALIDATION_FAILED.
func CheckIdempotencyKey(header string, key []byte) error {
	ok := len(key) >= 1 && len(key) <= maxIdempotencyKey
	for _, c := range key {
		ok = ok && c >= 0x21 && c <= 0x7e
	}
	if ok {
		return nil
	}
	f := faults{}
	f.invalid(header, "must have 1 to 255 visible ASCII characters")
	return f.result()
}
