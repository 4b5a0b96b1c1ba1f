package main

import (
	"fmt"
	"strings"

	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
)

// form is a request body whose rules are few enough to stand in its handler:
// the token endpoints, the webhook, the fleet and admin APIs. Name the fields,
// read, then check each; err gathers every fault. Orders and stores have
// decoders of their own and are checked by package delivery.
type form struct {
	delivery.Faults
	reader strictjson.Reader
	fields map[string]func(path string)
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

// read reads the body. What is wrong with it is said by err.
func (f *form) read() {
	f.reader.Root(f.member(""))
	f.WrongType = f.reader.Wrong
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
			f.Invalid(path, "is unknown")
		}
		f.reader.Skip()
	}
}

// err is MALFORMED_REQUEST for what could not be read, the VALIDATION_FAILED that
// lists every fault, or nil.
func (f *form) err() error {
	if err := f.reader.End(); err != nil {
		return err
	}
	return f.Err()
}

// set takes over a flag that was given.
func set(flag **bool, into *bool) {
	if *flag != nil {
		*into = **flag
	}
}
