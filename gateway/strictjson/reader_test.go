package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
)

// collect reads any object the way a caller does and returns what encoding/json
// would: strings, json.Number, bool, nil, []any and map[string]any.
func collect(body string) (map[string]any, error) {
	r := New(body)
	out := map[string]any{}
	if r.root('{', "an object is expected") {
		r.object(func(key string) { out[key] = value(&r) })
	}
	return out, r.End()
}

func value(r *Reader) any {
	r.space()
	switch r.peek() {
	case '{':
		out := map[string]any{}
		r.object(func(key string) { out[key] = value(r) })
		return out
	case '[':
		out := []any{}
		r.array(func(int) { out = append(out, value(r)) })
		return out
	case '"':
		var t delivery.Text
		r.readText("", &t)
		return t.Value
	case 't', 'f':
		if b := r.readBool(""); b != nil {
			return *b
		}
	case 'n':
		r.Skip()
	default:
		var n delivery.Number
		r.readNumber("", &n)
		return json.Number(n.Literal)
	}

	return nil
}

func TestReader_RefusesAsMalformed(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	manyKeys := &strings.Builder{}
	for i := range 100 {
		fmt.Fprintf(manyKeys, `"k%d":1,`, i)
	}

	for _, body := range []string{
		"", " \n", "[]", `"a"`, "1", "null", "{", `{"a"`, `{"a":`, `{"a":"b`, `{"a":"b\`, `{"a":1,}`, `{,"a":1}`, `{"a":1,,"b":2}`, `{"a":1 "b":2}`, `{"a" 1}`, `{"a":}`,
		`{a:1}`, `{'a':1}`, `{} {}`, "{}\x00", "\ufeff{}", `{/*x*/}`, "{\"a\":\"b\nc\"}", "{\"a\":\"b\x00c\"}", "{\"a\":\"\\n\tc\"}", "{\"a\n\":1}", "{\"a\":\"\xff\"}",
		"{\"a\":\"\xc0\xaf\"}", "{\"a\":\"\xed\xa0\x80\"}", "{\"\xff\":1}", "{\x00}\x00", `{"a":01}`, `{"a":+1}`, `{"a":-}`, `{"a":.5}`, `{"a":5.}`, `{"a":5e}`, `{"a":0x1}`,
		`{"a":NaN}`, `{"a":-Infinity}`, `{"a":tru}`, `{"a":True}`, `{"a":"\x41"}`, `{"a":"\u12"}`, `{"a":"\u12g4"}`, `{"a":1,"a":1}`, `{"a":1,"\u0061":1}`,
		`{"a":null,"a":1}`, `{"a":{"b":[{"c":1,"c":2}]}}`, `{` + manyKeys.String() + `"k7":1}`, `{"a":{"b":1},"a":1}`, `{"a":` + deep + `}`, `{"a":[1}`,
	} {
		_, err := collect(body)
		var refusal *delivery.Error
		if !errors.As(err, &refusal) || refusal.Code != delivery.CodeMalformedRequest {
			t.Errorf("%.100q: %v", body, err)
		}
	}
}

// The faults that beginners make are called by their names.
func TestReader_SaysWhatToDo(t *testing.T) {
	for body, want := range map[string]string{
		"": "the body is empty", " \n": "the body is empty", "\ufeff{}": "begins with a byte order mark; remove it",
		`{"a":249,90}`: "numbers have a decimal point, not a comma, at byte 9", `{"a":1, b:2}`: "a key in double quotes is expected, at byte 8",
		`{1:2}`: "a key in double quotes is expected, at byte 1", `{'a':1}`: "a key in double quotes", `{"a":1,}`: "no comma stands before }, at byte 7",
	} {
		if _, err := collect(body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", body, err, want)
		}
	}
}

func TestReader_ReadsWhatEncodingJSONReads(t *testing.T) {
	for _, body := range []string{
		`{}`, " {\t\"a\" :\r\n 1 , \"b\":[ ] } \n", `{"s":"x","n":-12.50e+3,"t":true,"f":false,"z":null,"o":{"a":[1,{"b":[]}]},"0":0}`,
		`{"a":"\"\\\/\b\f\n\r\t\u00e7\u0000"}`, `{"ad":"Şişli İğdır ÇÖÜ"}`, `{"a":"\ud83d\ude00!"}`, `{"a":"\ud83d"}`, `{"a":"\ud83dx","b":"\ud83d\u0041","c":"\ude00"}`,
		`{"a":{"x":1},"b":{"x":1},"x":1}`, `{"a":1,"A":2}`, `{"":1}`, `{"a":` + strings.Repeat("[", MaxDepth-1) + strings.Repeat("]", MaxDepth-1) + `}`, `{"a\tb":1}`,
		`{"a":-0}`, `{"a":1E5,"b":1e-5,"c":0.0}`, `{"a":{"b":1,"c":2},"b":3,"c":4}`, `{"a":"\ud83d\ud83d\ude00"}`,
	} {
		got, err := collect(body)
		if wanted := standard(t, body); err != nil || !reflect.DeepEqual(got, wanted) {
			t.Errorf("%.100q: got %#v, %v, want %#v", body, got, err, wanted)
		}
	}
}

func standard(t *testing.T, body string) map[string]any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(body))
	dec.UseNumber()
	var want map[string]any
	if err := dec.Decode(&want); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", body, err)
	}
	if !json.Valid([]byte(body)) {
		t.Fatalf("encoding/json finds %q invalid", body)
	}

	return want
}

// every has a field of each kind.
type every struct {
	Text   delivery.Text   `json:"s"`
	Number delivery.Number `json:"n"`
	Flag   *bool           `json:"b"`
	Raw    Raw             `json:"r"`
	Texts  []string        `json:"a"`
	Below  delivery.Text   `json:"o.s"`
	Inner  struct {
		Number delivery.Number `json:"d.n"`
	} `json:"c"`
	Unread string
}

func TestRoot_ReadsEachKind(t *testing.T) {
	r := New(`{"s":"x","n":-1.50,"b":false,"r":{"b": [1, 2]} ,"a":["y","z"],"o":{"s":"below","n":{}},"c":{"d":{"n":2}},"Unread":"x","o.s":"x"}`)
	var got every
	r.Root(Bind(&got))
	want := every{Text: delivery.Text{Value: "x", Set: true}, Number: delivery.Number{Literal: "-1.50", Set: true}, Flag: new(bool),
		Raw: Raw{Text: `{"b": [1, 2]}`, Set: true}, Texts: []string{"y", "z"}, Below: delivery.Text{Value: "below", Set: true}}
	want.Inner.Number = delivery.Number{Literal: "2", Set: true}
	if err := r.End(); err != nil || !reflect.DeepEqual(got, want) || r.Wrong != nil || r.Unknown != nil {
		t.Errorf("%v, %+v, %v, %v", err, got, r.Wrong, r.Unknown)
	}
}

func TestRoot_NotesWrongTypesAndReadsOn(t *testing.T) {
	r := New(`{"n":"1","o":[],"a":{},"b":"true","c":{"d":{"m":1,"n":[]},"e":1},"x":{},"s":"x"}`)
	var got every
	r.Root(BindClosed(&got))
	want := []delivery.FieldError{
		{Field: "n", Message: "must be a number, without quotes"}, {Field: "o", Message: "must be an object"},
		{Field: "a", Message: "must be an array"}, {Field: "b", Message: "must be true or false, without quotes"},
		{Field: "c.d.n", Message: "must be a number"},
	}

	unknown := []Unknown{
		{Path: "c.d.m", Known: []string{"n"}}, {Path: "c.e", Known: []string{"d"}},
		{Path: "x", Known: []string{"s", "n", "b", "r", "a", "o", "c"}},
	}
	if err := r.End(); err != nil || !reflect.DeepEqual(r.Wrong, want) || !reflect.DeepEqual(r.Unknown, unknown) {
		t.Errorf("%v, %v, %v", err, r.Wrong, r.Unknown)
	}
	if got.Number.Set || got.Texts != nil || got.Flag != nil || got.Text.Value != "x" {
		t.Errorf("%+v", got)
	}
}

func TestRoot_BoundsWhatItNotesOfUnknownMembers(t *testing.T) {
	var body strings.Builder
	body.WriteString(`{"name": "n"`)
	for i := range 10_000 {
		fmt.Fprintf(&body, `, "x%d": 1`, i)
	}

	body.WriteString(`}`)

	var got struct {
		Name delivery.Text `json:"name"`
	}
	r := New(body.String())
	r.Root(BindClosed(&got))
	if err := r.End(); err != nil || got.Name.Value != "n" {
		t.Errorf("%v, %+v", err, got)
	}
	if len(r.Unknown) == 0 || len(r.Unknown) > maxUnknown || len(r.Ignored) > maxIgnored {
		t.Errorf("%d are noted as unknown, %d as ignored", len(r.Unknown), len(r.Ignored))
	}
}

func TestRoot_TakesNullForAbsent(t *testing.T) {
	r := New(`{"s":null,"n":null,"b":null,"r":null,"a":null,"o":null,"c":{"d":null}}`)
	var got every
	r.Root(Bind(&got))
	if err := r.End(); err != nil || r.Wrong != nil || !reflect.DeepEqual(got, every{Raw: Raw{Set: true}}) {
		t.Errorf("%v, %v, %+v", err, r.Wrong, got)
	}
}

func TestReader_ArrayAtTheRoot(t *testing.T) {
	r := New(`[{"n":1},{"n":"2"},3]`)
	var got []string
	var e every
	fields := Bind(&e)
	r.RootArray(func(i int) {
		e = every{}
		isObject := r.Object(fmt.Sprintf("[%d]", i), fields)
		got = append(got, fmt.Sprint(isObject, e.Number.Literal))
	})

	if err := r.End(); err != nil || strings.Join(got, ",") != "true1,true,false" ||
		len(r.Wrong) != 2 || r.Wrong[0].Field != "[1].n" || r.Wrong[1].Field != "[2]" {
		t.Errorf("%v, %v, %v", err, got, r.Wrong)
	}

	r = New(`{}`)
	r.RootArray(func(int) { r.Skip() })
	if r.End() == nil {
		t.Error("an object passed for an array")
	}
}

// FuzzReader holds the reader to encoding/json: what it accepts is accepted
// there, with equal values.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{"externalStoreId":"kadikoy-1","recipient":{"name":"Ayşe"},"dropoff":{"latitude":40.98713},"orderAmount":349.90}`, `{}`, `{"a":[1,-2.5e3,"x\u00e7\ud83d\ude00",{"b":null}],"a2":true}`, `{"a":1,"a":2}`,
		"{\"a\":\"\xff\"}", `{"a":"\ud83d"}`, `{"a":01}`, ` { } x`, `{"\u0061":1,"a":2}`, `{"a":"\`, `[`,
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, body string) {
		got, err := collect(body)
		if err != nil {
			return
		}
		if want := standard(t, body); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %#v, want %#v", body, got, want)
		}
	})
}

// Whoever reads many elements refuses one and goes on.
func TestReader_NotesDuplicatesOfOneElement(t *testing.T) {
	var given struct {
		A delivery.Number `json:"a"`
	}
	fields := Bind(&given)
	r := New(`[{"a":1},{"a":1,"a":2},{"a":1,"x":[{"":1,"":2}]},{"a":1,"b":2}]`)
	r.NotesDuplicates = true
	var noted []string
	r.RootArray(func(int) {
		r.Duplicate = ""
		r.Object("", fields)
		noted = append(noted, r.Duplicate)
	})

	want := []string{"", `the key "a" occurs twice in one object`, `the key "" occurs twice in one object`, ""}
	if err := r.End(); err != nil || !slices.Equal(noted, want) {
		t.Errorf("%q, %v", noted, err)
	}
}
