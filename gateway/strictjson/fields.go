package strictjson

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"vendorapi/internal/delivery"
)

// Raw is a member as it is written; Text is empty for null.
type Raw struct {
	Text string
	Set  bool
}

// Unknown is a member without a field in an object that is closed.
type Unknown struct {
	Path  string
	Known []string // the members that the object may have
}

// Meant is the member that the unknown one is almost, or empty.
func (u Unknown) Meant() string {
	parent := u.Path[:strings.LastIndexByte(u.Path, '.')+1]
	for _, known := range u.Known {
		if delivery.IsMisspelt(u.Path, parent+known) {
			return parent + known
		}
	}
	return ""
}

// Fields is a struct into which objects can be read, one after the other.
type Fields struct {
	members []member
	path    string // with a dot at its end, empty for the whole
	closed  bool   // members without a field are noted as Unknown
}

type member struct {
	key, path string
	dst       any
	below     *Fields // instead of dst
}

// Bind prepares the struct that dst points to. A field's tag is the path of its
// member, `json:"courier.name"`; a struct holds the members below its own path, an
// embedded one those beside it. The other types are delivery.Text, delivery.Number,
// Raw, *bool and []string, nil while absent. Members without a field are skipped.
func Bind(dst any) *Fields {
	f := new(Fields)
	f.bind(reflect.ValueOf(dst).Elem(), "")
	return f
}

// BindClosed is Bind for objects in which a member without a field is a mistake: it is noted as
// Unknown.
func BindClosed(dst any) *Fields {
	f := &Fields{closed: true}
	f.bind(reflect.ValueOf(dst).Elem(), "")
	return f
}

func (f *Fields) bind(v reflect.Value, prefix string) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name := field.Tag.Get("json")
		switch {
		case field.Anonymous && field.Type.Kind() == reflect.Struct:
			f.bind(v.Field(i), prefix)
		case name == "" || name == "-":
		case f.add(prefix+name, v.Field(i).Addr().Interface()):
		default:
			f.bind(v.Field(i), prefix+name+".")
		}
	}
}

// add binds the member at a path to dst; false for what holds members of its own.
func (f *Fields) add(path string, dst any) bool {
	switch dst.(type) {
	case *delivery.Text, *delivery.Number, *Raw, **bool, *[]string:
	default:
		return false
	}

	keys := strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		at := f.find(key, 0)
		if at < 0 {
			at = len(f.members)
			f.members = append(f.members, member{key: key, path: f.path + key, below: &Fields{path: f.path + key + ".", closed: f.closed}})
		}
		f = f.members[at].below
	}

	f.members = append(f.members, member{key: keys[len(keys)-1], path: path, dst: dst})

	return true
}

// keys are the members that there are, in the order of the struct.
func (f *Fields) keys() []string {
	keys := make([]string, len(f.members))
	for i, m := range f.members {
		keys[i] = m.key
	}
	return keys
}

// find is the index of a member, -1 for none. It looks at likely first: most bodies
// have the order of the fields.
func (f *Fields) find(key string, likely int) int {
	if likely < len(f.members) && f.members[likely].key == key {
		return likely
	}
	return slices.IndexFunc(f.members, func(m member) bool { return m.key == key })
}

// Root reads a body that must be an object.
func (r *Reader) Root(into *Fields) {
	if r.root('{', "an object is expected") {
		r.fields(into, "")
	}
}

// Object reads an element that should be an object, and reports whether it is one. The paths of its
// members begin with path, unless that is empty.
func (r *Reader) Object(path string, into *Fields) bool {
	if !r.expect('{', path, "must be an object") {
		return false
	}

	if path != "" {
		path += "."
	}

	r.fields(into, path)
	return true
}

func (r *Reader) fields(into *Fields, prefix string) {
	next := 0
	r.object(func(key string) {
		at := into.find(key, next)
		if at < 0 {
			if into.closed && len(r.Unknown) < maxUnknown {
				r.Unknown = append(r.Unknown, Unknown{Path: prefix + into.path + key, Known: into.keys()})
			}
			if len(r.Ignored) < maxIgnored {
				r.Ignored = append(r.Ignored, prefix+into.path+key)
			}
			r.Skip()
			return
		}

		next = at + 1
		m := &into.members[at]
		path := m.path
		if prefix != "" {
			path = prefix + path
		}

		switch dst := m.dst.(type) {
		case *delivery.Text:
			r.readText(path, dst)
		case *delivery.Number:
			r.readNumber(path, dst)
		case *Raw:
			*dst = Raw{Text: r.readRaw(), Set: true}
		case **bool:
			*dst = r.readBool(path)
		case *[]string:
			*dst = r.readTexts(path)
		default:
			if r.expect('{', path, "must be an object") {
				r.fields(m.below, prefix)
			}
		}
	})
}

// readTexts reads a member that should be an array of strings; nil when it is none.
func (r *Reader) readTexts(path string) []string {
	if !r.expect('[', path, "must be an array") {
		return nil
	}

	list := []string{}
	r.array(func(i int) {
		var t delivery.Text
		r.readText(fmt.Sprintf("%s[%d]", path, i), &t)
		list = append(list, t.Value)
	})

	return list
}
