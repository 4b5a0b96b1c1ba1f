package strictjson

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"vendorapi/internal/delivery"
)

// Raw is a member as it is written; Text is empty for null.
type Raw struct {
	Text string
	Set  bool
}

// Fields reads a body that must be an object into the struct that dst points to. A
// field's tag is the path of its member, `json:"courier.name"`; a struct holds the
// members below its own path, an embedded one those beside it. The other types are delivery.Text, delivery.Number, Raw,
// *bool and []string, nil while absent. Members without a field are skipped; those
// below `json:"limits,closed"` are noted as Unknown.
func (r *Reader) Fields(dst any) {
	if r.root('{', "the body must be a JSON object") {
		r.fields(dst, "")
	}
}

// ObjectFields reads a member that should be an object as Fields does, and reports
// whether it is one.
func (r *Reader) ObjectFields(path string, dst any) bool {
	if !r.expect('{', path, "must be an object") {
		return false
	}
	r.fields(dst, path+".")
	return true
}

func (r *Reader) fields(dst any, prefix string) {
	v := reflect.ValueOf(dst).Elem()
	o, known := plans.Load(v.Type())
	if !known {
		fresh := new(object)
		fresh.add(v.Type(), "", nil, false)
		o, _ = plans.LoadOrStore(v.Type(), fresh)
	}
	r.members(o.(*object), v, prefix)
}

// plans are the objects that the types of dst describe.
var plans sync.Map

// object is what is read of a JSON object.
type object struct {
	members []member
	path    string // with a dot at its end, empty for the whole
	closed  bool
}

type member struct {
	key, path string
	field     []int   // its index, as reflect has it
	below     *object // instead of field
}

// add plans the fields of a struct type that is the field at index, below path.
func (o *object) add(t reflect.Type, path string, index []int, closed bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		at, isClosed := append(index[:len(index):len(index)], i), closed || option == "closed"
		isObject := f.Type.Kind() == reflect.Struct && f.Type.PkgPath() != leafPackage && f.Type != reflect.TypeFor[Raw]()
		switch {
		case isObject && f.Anonymous:
			o.add(f.Type, path, at, closed)
			continue
		case name == "" || name == "-":
			continue
		case isObject:
			o.add(f.Type, path+name+".", at, isClosed)
			continue
		}
		in := o
		keys := strings.Split(path+name, ".")
		for _, key := range keys[:len(keys)-1] {
			in = in.child(key)
			in.closed = isClosed
		}
		in.members = append(in.members, member{key: keys[len(keys)-1], path: path + name, field: at})
	}
}

// leafPackage has the structs that are values, not objects.
var leafPackage = reflect.TypeFor[delivery.Text]().PkgPath()

func (o *object) find(key string) *member {
	for i := range o.members {
		if o.members[i].key == key {
			return &o.members[i]
		}
	}
	return nil
}

// child is the object at a key; it is made when it is first named.
func (o *object) child(key string) *object {
	if m := o.find(key); m != nil {
		return m.below
	}
	path := o.path + key
	below := &object{path: path + "."}
	o.members = append(o.members, member{key: key, path: path, below: below})
	return below
}

func (r *Reader) members(o *object, v reflect.Value, prefix string) {
	r.object(func(key string) {
		switch m := o.find(key); {
		case m == nil:
			if o.closed {
				r.Unknown = append(r.Unknown, prefix+o.path+key)
			}
			r.Skip()
		case m.below != nil:
			if r.expect('{', prefix+m.path, "must be an object") {
				r.members(m.below, v, prefix)
			}
		default:
			r.value(prefix+m.path, v.FieldByIndex(m.field).Addr().Interface())
		}
	})
}

func (r *Reader) value(path string, dst any) {
	switch dst := dst.(type) {
	case *delivery.Text:
		r.readText(path, dst)
	case *delivery.Number:
		r.readNumber(path, dst)
	case **bool:
		*dst = r.readBool(path)
	case *Raw:
		*dst = Raw{Text: r.readRaw(), Set: true}
	case *[]string:
		*dst = r.texts(path)
	default:
		r.Skip()
	}
}

// texts reads a member that should be an array of strings; nil when it is none.
func (r *Reader) texts(path string) []string {
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
