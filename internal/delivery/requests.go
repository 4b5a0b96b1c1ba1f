package delivery

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is a string of a request as the decoder found it. JSON null counts as
// not set.
type Text struct {
	Value string
	Set   bool
}

// Number is a number of a request: the literal as it stood in the JSON, not
// parsed, so that no amount ever passes through a float.
type Number struct {
	Literal string
	Set     bool
}

// Longest texts in Unicode code points after trimming white space. The ids and
// packageNote are the spec's, the others design section 9's silence filled in.
const (
	maxExternalID     = 64
	minRecipientName  = 2
	maxRecipientName  = 200
	minDropoffText    = 10
	maxDropoffText    = 1000
	maxDropoffPart    = 32
	maxNote           = 500
	maxCancelNote     = 256
	maxStoreName      = 200
	maxStoreAddress   = 1000
	maxIdempotencyKey = 255
)

const messageRequired = "is required"

// faults gathers what is wrong with a request in the order of the checks. The
// first fault decides the code (design section 9).
type faults struct {
	first     *Error
	fields    []FieldError
	wrongType []FieldError // what the decoder found
}

// invalid records a field that breaks a rule without a code of its own.
func (f *faults) invalid(field, message string) { f.refuse(CodeValidationFailed, field, message) }

// refuse records a field that breaks a rule; the first fault of each field counts.
func (f *faults) refuse(code Code, field, message string) {
	for i := range f.fields {
		if f.fields[i].Field == field {
			return
		}
	}
	if f.first == nil {
		f.first = &Error{Code: code, Message: field + " " + message}
	}
	f.fields = append(f.fields, FieldError{Field: field, Message: message})
}

// mistyped reports whether the decoder could not read the field, or the object
// that holds it, and records that.
func (f *faults) mistyped(field string) bool {
	for _, wrong := range f.wrongType {
		if rest, ok := strings.CutPrefix(field, wrong.Field); ok && (rest == "" || rest[0] == '.') {
			f.invalid(wrong.Field, wrong.Message)
			return true
		}
	}
	return false
}

// result is the refusal, nil when nothing is wrong.
func (f *faults) result() error {
	for _, wrong := range f.wrongType {
		f.invalid(wrong.Field, wrong.Message)
	}
	if f.first == nil {
		return nil
	}
	f.first.Fields = f.fields
	named := 1
	if f.first.Code == CodeCoordinateMismatch {
		named = 2 // latitude and longitude
	}
	f.first.Message = WithMore(f.first.Message, len(f.fields)-named)
	return f.first
}

// WithMore ends a message with how many fields of the refusal it does not name.
func WithMore(message string, more int) string {
	if more <= 0 {
		return message
	}
	return fmt.Sprintf("%s (and %d more in data.fields)", message, more)
}

// present reports whether a value of the right type was given; a required one
// that is missing is recorded.
func (f *faults) present(field string, set, required bool) bool {
	if f.mistyped(field) {
		return false
	}
	if !set && required {
		f.invalid(field, messageRequired)
	}
	return set
}

// text is an optional or required text of at least least and at most most code
// points, trimmed; empty when it is absent or wrong.
func (f *faults) text(field string, t Text, required bool, least, most int) string {
	if !f.present(field, t.Set, required) {
		return ""
	}
	value, length, ok := f.clean(field, t.Value)
	if ok && (length < least || length > most) {
		f.invalid(field, lengthMessage(least, most))
	}
	return value
}

// textWithCode is a required text for whose shortness the spec has a code.
func (f *faults) textWithCode(field string, t Text, code Code, least, most int) string {
	if !f.present(field, t.Set, true) {
		return ""
	}
	value, length, ok := f.clean(field, t.Value)
	switch {
	case !ok:
	case length < least:
		f.refuse(code, field, fmt.Sprintf("must have at least %d characters", least))
	case length > most:
		f.invalid(field, lengthMessage(least, most))
	}
	return value
}

// clean trims a text and counts its code points.
func (f *faults) clean(field, s string) (value string, length int, ok bool) {
	value = strings.TrimSpace(s)
	if fault := textFault(value); fault != "" {
		f.invalid(field, fault)
		return "", 0, false
	}
	return value, utf8.RuneCountInString(value), true
}

// phone is a phone number; a wrong one answers INVALID_PHONE.
func (f *faults) phone(field string, t Text, required bool) string {
	if !f.present(field, t.Set, required) {
		return ""
	}
	digits, err := NormalizePhone(t.Value)
	if err != nil {
		f.refuse(CodeInvalidPhone, field, err.Error())
	}
	return digits
}

// point is a position inside Turkey; one elsewhere, or nowhere on Earth,
// answers COORDINATE_MISMATCH. ok tells whether both coordinates could be read.
func (f *faults) point(latField string, latitude Number, lonField string, longitude Number, required bool) (p Point, ok bool) {
	hasLatitude := f.present(latField, latitude.Set, required)
	hasLongitude := f.present(lonField, longitude.Set, required)
	if !hasLatitude || !hasLongitude {
		return Point{}, false
	}
	lat, latOK := f.degrees(latField, latitude)
	lon, lonOK := f.degrees(lonField, longitude)
	if !latOK || !lonOK {
		return Point{}, false
	}
	p = Point{Latitude: lat, Longitude: lon}
	if !InTurkey(p) {
		const outside = "%s and %s %s are not in Turkey; check that they are not swapped"
		f.refuse(CodeCoordinateMismatch, latField, fmt.Sprintf(outside, clip(latitude.Literal), lonField, clip(longitude.Literal)))
		f.refuse(CodeCoordinateMismatch, lonField, fmt.Sprintf(outside, clip(longitude.Literal), latField, clip(latitude.Literal)))
	}
	return p, true
}

// degrees reads a coordinate. One too large for a float is infinite, and so
// outside Turkey like any other that is out of range.
func (f *faults) degrees(field string, n Number) (float64, bool) {
	if _, ok := splitNumber(n.Literal); !ok {
		f.invalid(field, "must be a number")
		return 0, false
	}
	value, _ := strconv.ParseFloat(n.Literal, 64)
	return value, true
}

func (f *faults) money(field string, n Number) Money {
	if !f.present(field, n.Set, false) {
		return Money{}
	}
	amount, err := ParseMoney(n.Literal)
	if err != nil {
		f.invalid(field, err.Error())
	}
	return amount
}

// textFault says why a text cannot be kept whatever its length; empty when it
// can. Line breaks and tabs are welcome in what a courier reads.
func textFault(s string) string {
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			return "must be valid UTF-8"
		case r == '\n' || r == '\t' || r == '\r' && strings.HasPrefix(s[i:], "\r\n"):
		case unicode.IsControl(r):
			return "must not contain control characters"
		}
	}
	return ""
}

// idFault is textFault for an identifier, which has no line breaks either.
func idFault(s string) string {
	if strings.ContainsAny(s, "\n\r\t") {
		return "must not contain control characters"
	}
	return textFault(s)
}

func lengthMessage(least, most int) string {
	if least == 0 {
		return fmt.Sprintf("must have at most %d characters", most)
	}
	return fmt.Sprintf("must have %d to %d characters", least, most)
}

// clip keeps an absurdly long literal out of a message.
func clip(literal string) string {
	const most = 24
	if len(literal) <= most {
		return literal
	}
	return literal[:most] + "..."
}
