package main

import (
	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
)

// form is a request body whose rules stand in its handler. Checks of the fields
// gather every fault; err is the refusal. Orders, stores and cancellations are
// checked by package delivery.
type form struct {
	delivery.Faults
	malformed error
}

// form reads the body into a struct (strictjson.Bind). An optional body may be absent.
func (x *requestContext) form(fields any) *form {
	if len(x.body) == 0 && x.route.body == optionalBody {
		return new(form)
	}
	return readForm(x.text(), fields)
}

func readForm(body string, fields any) *form {
	r := strictjson.New(body)
	r.Root(strictjson.Bind(fields))
	f := &form{malformed: r.End()}
	f.WrongType = r.Wrong
	for _, path := range r.Unknown {
		f.Invalid(path, "is unknown")
	}
	return f
}

// err is MALFORMED_REQUEST, a VALIDATION_FAILED that lists every fault, or nil.
func (f *form) err() error {
	if f.malformed != nil {
		return f.malformed
	}
	return f.Err()
}

// decode reads a body into a request of package delivery, which ranks the wrong
// types among its other faults. The error is MALFORMED_REQUEST.
func decode(body string, request *strictjson.Fields, wrongType *[]delivery.FieldError) error {
	r := strictjson.New(body)
	r.Root(request)
	*wrongType = r.Wrong
	return r.End()
}

func set(flag *bool, into *bool) {
	if flag != nil {
		*into = *flag
	}
}
