package delivery

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Text is a string of a request; JSON null counts as not set.
type Text struct {
	Value string
	Set   bool
}

// Number is a number's literal, so that no amount passes through a float.
type Number struct {
	Literal string
	Set     bool
}

// Faults collects what is wrong with a request: the first of each field, and the first of
// all decides the code (decisions, "Several faults at once"). The zero value is empty.
type Faults struct {
	// WrongType are the fields, objects included, whose JSON type is wrong, with a message
	// such as "must be a string"; each is recorded when it, or a field in it, is checked,
	// and at the end.
	WrongType []FieldError
	// Ignored are members of the request that no field has. One that is spelt almost like a missing
	// field explains why that is missing.
	Ignored []string

	code   Code
	fields []FieldError
}

// maxFaults bounds the listed faults; a batch of positions can have thousands.
const maxFaults = 50

// Invalid records a field that breaks a rule without a code of its own.
func (f *Faults) Invalid(field, message string) { f.refuse(CodeValidationFailed, field, message) }

// refuse records a field, unless it or the object that holds it is recorded.
func (f *Faults) refuse(code Code, field, message string) {
	if len(f.fields) >= maxFaults || f.Faulty(field) {
		return
	}
	if len(f.fields) == 0 {
		f.code = code
	}
	f.fields = append(f.fields, FieldError{Field: field, Message: message})
}

// Invalid is a *Error VALIDATION_FAILED of one field.
func Invalid(field, message string) error {
	var f Faults
	f.Invalid(field, message)
	return f.Err()
}

// Faulty reports whether the field, or an object that holds it, is recorded.
func (f *Faults) Faulty(field string) bool {
	_, faulty := covering(f.fields, field)
	return faulty
}

func covering(faults []FieldError, field string) (FieldError, bool) {
	for _, fault := range faults {
		if rest, ok := strings.CutPrefix(field, fault.Field); ok && (rest == "" || rest[0] == '.') {
			return fault, true
		}
	}
	return FieldError{}, false
}

// Err is a *Error with the code of the first fault and all faults, or nil.
func (f *Faults) Err() error {
	for _, wrong := range f.WrongType {
		f.Invalid(wrong.Field, wrong.Message)
	}

	if len(f.fields) == 0 {
		return nil
	}

	named := 1
	if f.code == CodeCoordinateMismatch {
		named = 2 // latitude and longitude
	}

	first := strings.TrimPrefix(f.fields[0].Field+" "+f.fields[0].Message, " ") // about the whole body

	return &Error{Code: f.code, Message: WithMore(first, len(f.fields)-named), Fields: f.fields}
}

// WithMore appends how many fields of the refusal a message does not name.
func WithMore(message string, more int) string {
	if more <= 0 {
		return message
	}
	return fmt.Sprintf("%s (and %d more in data.fields)", message, more)
}

// Require reports whether a field was given, and records a missing one.
func (f *Faults) Require(field string, set bool) bool { return f.present(field, set, true) }

func (f *Faults) present(field string, set, required bool) bool {
	if wrong, found := covering(f.WrongType, field); found {
		f.Invalid(wrong.Field, wrong.Message)
		return false
	}

	if !set && required {
		f.Invalid(field, "is required"+f.misspelt(field))
	}
	return set
}

// misspelt ends the message about a missing field with the member that was meant to be it, or to be
// the object that holds it.
func (f *Faults) misspelt(field string) string {
	if len(f.fields) >= maxFaults {
		return "" // nothing more is listed
	}

	for _, ignored := range f.Ignored {
		for meant := field; meant != ""; meant, _ = parentOf(meant) {
			if IsMisspelt(ignored, meant) {
				return fmt.Sprintf("; %q is not known; did you mean %q?", Excerpt(ignored, maxShownName), meant)
			}
		}
	}

	return ""
}

// Longest texts in code points after trimming (spec; decisions, "Lengths").
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

// text is Visible text with line breaks and tabs; empty when it is absent or wrong.
// tooShort is the code of a short one, if the spec has one.
func (f *Faults) text(field string, t Text, required bool, least, most int, tooShort ...Code) string {
	return f.readText(field, t, required, least, most, false, tooShort...)
}

// Line is Visible text without line breaks and tabs. White space in a row becomes one blank.
func (f *Faults) Line(field string, t Text, required bool, least, most int) string {
	return joinWords(f.readText(field, t, required, least, most, true))
}

// CourierName is a Line in which an invisible character separates words as a blank does. Visible would
// glue the words, and AbbreviateName would take given name and surname for one given name.
func (f *Faults) CourierName(field string, t Text, least, most int) string {
	if utf8.ValidString(t.Value) { // else Line refuses it
		t.Value = strings.Map(blankIfInvisible, t.Value)
	}
	return f.Line(field, t, true, least, most)
}

func blankIfInvisible(r rune) rune {
	if isInvisible(r) {
		return ' '
	}
	return r
}

// joined is Visible text that becomes one line: line breaks, tabs and other white space in a row become
// one blank, so that a row of a report is one line.
func (f *Faults) joined(field string, t Text, required bool, least, most int, tooShort ...Code) string {
	return joinWords(f.readText(field, t, required, least, most, false, tooShort...))
}

// joinWords puts one blank between the words of a text, and none around them.
func joinWords(s string) string {
	afterSpace := true // also at the beginning
	for _, r := range s {
		isSpace := unicode.IsSpace(r)
		isFurther := isSpace && (afterSpace || r != ' ')
		if isFurther {
			return strings.Join(strings.Fields(s), " ")
		}
		afterSpace = isSpace
	}

	return strings.TrimSuffix(s, " ")
}

func (f *Faults) readText(field string, t Text, required bool, least, most int, isLine bool, tooShort ...Code) string {
	if !f.present(field, t.Set, required) {
		return ""
	}

	value, length, seen := t.Value, len(t.Value), len(t.Value)
	if !isPlain(value) {
		inner := strings.TrimFunc(value, func(r rune) bool { return isBlank(r) || isInvisible(r) })
		if fault := controlFault(value, inner, isLine); fault != "" {
			f.Invalid(field, fault)
			return ""
		}
		value = Visible(value)
		length, seen = utf8.RuneCountInString(value), seenLength(value)
	}

	isShort := seen < least
	switch {
	case isShort && tooShort != nil:
		f.refuse(tooShort[0], field, fmt.Sprintf("must have at least %d characters", least)+seenOnly(t.Value, least))
	case isShort || length > most:
		f.Invalid(field, lengthMessage(least, most)+seenOnly(t.Value, least))
	}

	return value
}

// seenOnly ends the message about a text that is long enough only with what nobody sees.
func seenOnly(text string, least int) string {
	isLongEnough := utf8.RuneCountInString(text) >= least
	if isLongEnough && seenLength(Visible(text)) < least {
		return " that can be seen"
	}
	return ""
}

// ID is an id that programs compare: it is kept as it is, or refused, see idFault.
func (f *Faults) ID(field string, t Text, required bool, most int) string {
	if !f.present(field, t.Set, required) {
		return ""
	}

	length := utf8.RuneCountInString(t.Value)
	if length < 1 || length > most {
		f.Invalid(field, lengthMessage(1, most))
		return t.Value
	}

	if fault := idFault(t.Value); fault != "" {
		f.Invalid(field, fault)
	}

	return t.Value
}

// controlFault says why a text is refused because of a code point within inner, a part of it, or is
// empty. A line must not have line breaks and tabs either.
func controlFault(text, inner string, isLine bool) string {
	offset := strings.Index(text, inner)
	for i, r := range inner {
		isUsual := !isLine && (r == '\n' || r == '\t' || strings.HasPrefix(inner[i:], "\r\n"))
		isRefused := unicode.IsControl(r) || isLine && isSeparator(r)
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(inner[i:], string(utf8.RuneError)):
			return "must be valid UTF-8"
		case isRefused && !isUsual:
			return "must not contain control characters; " + at(text, offset+i)
		}
	}

	return ""
}

func lengthMessage(least, most int) string {
	if least == 0 {
		return fmt.Sprintf("must have at most %d characters", most)
	}
	return fmt.Sprintf("must have %d to %d characters", least, most)
}

// Whole is an optional integer within a range; 0 when it is absent or wrong.
func (f *Faults) Whole(field string, n Number, least, most int) int {
	if !f.present(field, n.Set, false) {
		return 0
	}

	value, err := strconv.Atoi(n.Literal)
	if err != nil || value < least || value > most {
		f.Invalid(field, fmt.Sprintf("must be a whole number from %d to %d", least, most))
		return 0
	}
	return value
}

// Within is an optional number from -most to most; 0 when it is absent.
func (f *Faults) Within(field string, n Number, most float64) float64 {
	if !f.present(field, n.Set, false) {
		return 0
	}

	value, err := strconv.ParseFloat(n.Literal, 64)
	if err != nil || value < -most || value > most {
		f.Invalid(field, fmt.Sprintf("must be from -%[1]v to %[1]v", most))
	}
	return value
}

// Time is an optional time, see ParseTime; zero when it is absent or wrong.
func (f *Faults) Time(field string, t Text) time.Time {
	return Parse(f, field, t, false, "", ParseTime)
}

func (f *Faults) money(field string, n Number) Money {
	return Parse(f, field, Text{Value: n.Literal, Set: n.Set}, false, "", ParseMoney)
}

// phone is a phone number; a wrong one answers INVALID_PHONE.
func (f *Faults) phone(field string, t Text, required bool) string {
	return parse(f, field, t, required, CodeInvalidPhone, "", NormalizePhone)
}

// Parse is a field's value; zero when it is absent or wrong. An empty fault stands for
// read's error, whose text then continues the field's name.
func Parse[T any](f *Faults, field string, t Text, required bool, fault string, read func(string) (T, error)) T {
	return parse(f, field, t, required, CodeValidationFailed, fault, read)
}

func parse[T any](f *Faults, field string, t Text, required bool, code Code, fault string, read func(string) (T, error)) (value T) {
	if !f.present(field, t.Set, required) {
		return value
	}

	value, err := read(t.Value)
	if err != nil {
		f.refuse(code, field, cmp.Or(fault, err.Error()))
	}
	return value
}

// point is in Turkey, else COORDINATE_MISMATCH. ok: both coordinates were given.
func (f *Faults) point(latField string, latitude Number, lonField string, longitude Number, required bool) (p Point, ok bool) {
	hasLatitude := f.present(latField, latitude.Set, required)
	hasLongitude := f.present(lonField, longitude.Set, required)
	if !hasLatitude || !hasLongitude {
		return Point{}, false
	}

	// A coordinate too large for a float is infinite, and so outside Turkey.
	p.Latitude, _ = strconv.ParseFloat(latitude.Literal, 64)
	p.Longitude, _ = strconv.ParseFloat(longitude.Literal, 64)
	if !InTurkey(p) {
		const outside = "%s and %s %s are not in Turkey; check that they are not swapped"
		f.refuse(CodeCoordinateMismatch, latField, fmt.Sprintf(outside, clip(latitude.Literal), lonField, clip(longitude.Literal)))
		f.refuse(CodeCoordinateMismatch, lonField, fmt.Sprintf(outside, clip(longitude.Literal), latField, clip(latitude.Literal)))
	}

	return p, true
}

// clip keeps an absurdly long literal out of a message.
func clip(literal string) string {
	if len(literal) > 24 {
		return literal[:24] + "..."
	}
	return literal
}
