package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
)

// form is a request body whose rules are few enough to stand in its handler:
// the token endpoints, the webhook, the fleet and admin APIs. Name the fields,
// read, then check each; err gathers every fault. Orders and stores have
// decoders of their own and are judged by package delivery.
type form struct {
	reader strictjson.Reader
	fields map[string]func(path string)
	faults []delivery.FieldError
	closed string // an object in which an unknown member is a fault, elsewhere it is ignored
}

func newForm(body string) *form {
	return &form{reader: strictjson.New(body), fields: map[string]func(string){}}
}

// text names a string field; path is its JSON path ("courier.name").
func (f *form) text(path string) *delivery.Text {
	t := new(delivery.Text)
	f.fields[path] = func(path string) { f.reader.Text(path, t) }
	return t
}

func (f *form) number(path string) *delivery.Number {
	n := new(delivery.Number)
	f.fields[path] = func(path string) { f.reader.Number(path, n) }
	return n
}

// flag names a boolean field; the result points to nil while it is absent.
func (f *form) flag(path string) **bool {
	b := new(*bool)
	f.fields[path] = func(path string) { *b = f.reader.Bool(path) }
	return b
}

// raw names a field that is kept as it is written; empty while it is absent.
func (f *form) raw(path string) *string {
	s := new(string)
	f.fields[path] = func(string) { *s = f.reader.Raw() }
	return s
}

// texts names a field that is an array of strings; the result points to nil
// while it is absent.
func (f *form) texts(path string) *[]string {
	list := new([]string)
	f.fields[path] = func(path string) {
		*list = []string{}
		isArray := f.reader.Array(path, func(i int) {
			var t delivery.Text
			f.reader.Text(fmt.Sprintf("%s[%d]", path, i), &t)
			*list = append(*list, t.Value)
		})
		if !isArray {
			*list = nil
		}
	}
	return list
}

// read reads the body. The error is MALFORMED_REQUEST; what is wrong with the
// fields is said by err.
func (f *form) read() error {
	f.reader.Root(f.member(""))
	f.faults = append(f.faults, f.reader.Wrong...)
	return f.reader.End()
}

// member reads one member of the object at prefix ("" or "courier."). A key with
// a dot in it names no field: {"courier.name": …} is not {"courier": {"name": …}}.
func (f *form) member(prefix string) func(key string) {
	return func(key string) {
		path := prefix + key
		if !strings.Contains(key, ".") {
			if read, named := f.fields[path]; named {
				read(path)
				return
			}
			for name := range f.fields {
				if strings.HasPrefix(name, path+".") {
					f.reader.Object(path, f.member(path+"."))
					return
				}
			}
		}
		if f.closed != "" && strings.HasPrefix(prefix, f.closed+".") {
			f.invalid(path, "is unknown")
		}
		f.reader.Skip()
	}
}

// maxFaults bounds how many faults one answer lists; a batch of positions can
// have thousands.
const maxFaults = 50

// invalid records a fault of a field; the first of each field counts.
func (f *form) invalid(path, message string) {
	if len(f.faults) < maxFaults && !f.faulty(path) {
		f.faults = append(f.faults, delivery.FieldError{Field: path, Message: message})
	}
}

// faulty reports whether the field, or an object that should hold it, is wrong
// already.
func (f *form) faulty(path string) bool {
	for _, fault := range f.faults {
		if rest, ok := strings.CutPrefix(path, fault.Field); ok && (rest == "" || rest[0] == '.') {
			return true
		}
	}
	return false
}

// err is the VALIDATION_FAILED that lists every fault, nil without one.
func (f *form) err() error {
	if len(f.faults) == 0 {
		return nil
	}
	fields := f.faults[:min(len(f.faults), maxFaults)]
	return &delivery.Error{Code: delivery.CodeValidationFailed, Fields: fields,
		Message: delivery.WithMore(fields[0].Field+" "+fields[0].Message, len(fields)-1)}
}

// require records a field that was not given.
func (f *form) require(path string, set bool) bool {
	if !set {
		f.invalid(path, "is required")
	}
	return set
}

// plain is a text of least to most code points after trimming, without control
// characters; empty when absent or wrong.
func (f *form) plain(path string, t *delivery.Text, least, most int) string {
	if !t.Set {
		return ""
	}
	value := strings.TrimSpace(t.Value)
	if n := utf8.RuneCountInString(value); n < least || n > most {
		f.invalid(path, fmt.Sprintf("must have %d to %d characters", least, most))
	} else if strings.ContainsFunc(value, unicode.IsControl) {
		f.invalid(path, "must not contain control characters")
	}
	return value
}

// whole is an integer within a range; 0 when absent or wrong.
func (f *form) whole(path string, n *delivery.Number, least, most int) int {
	if !n.Set {
		return 0
	}
	value, err := strconv.Atoi(n.Literal)
	if err != nil || value < least || value > most {
		f.invalid(path, fmt.Sprintf("must be a whole number from %d to %d", least, most))
		return 0
	}
	return value
}

// degrees is a latitude or longitude: at most the given number either way.
func (f *form) degrees(path string, n *delivery.Number, most float64) float64 {
	if !n.Set {
		return 0
	}
	value, err := strconv.ParseFloat(n.Literal, 64)
	if err != nil || value < -most || value > most {
		f.invalid(path, fmt.Sprintf("must be from -%[1]v to %[1]v", most))
	}
	return value
}

// moment is a time; zero when absent or wrong.
func (f *form) moment(path string, t *delivery.Text) time.Time {
	if !t.Set {
		return time.Time{}
	}
	at, err := delivery.ParseTime(t.Value)
	if err != nil {
		f.invalid(path, err.Error())
	}
	return at
}
