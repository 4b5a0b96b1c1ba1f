package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
)

// collect reads any object the way a caller does and returns what encoding/json
// would: strings, json.Number, bool, nil, []any and map[string]any.
func collect(body string) (map[string]any, error) {
	r := New(body)
	out := map[string]any{}
	r.Root(func(key string) { out[key] = value(&r) })
	return out, r.End()
}

func value(r *Reader) any {
	r.space()
	switch r.peek() {
	case '{':
		out := map[string]any{}
		r.Object("", func(key string) { out[key] = value(r) })
		return out
	case '[':
		out := []any{}
		r.Array("", func(int) { out = append(out, value(r)) })
		return out
	case '"':
		var t delivery.Text
		r.Text("", &t)
		return t.Value
	case 't', 'f':
		if b := r.Bool(""); b != nil {
			return *b
		}
	case 'n':
		r.Skip()
	default:
		var n delivery.Number
		r.Number("", &n)
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
	for name, body := range map[string]string{
		"empty":                       "",
		"white space only":            " \n",
		"array":                       "[]",
		"string":                      `"a"`,
		"number":                      "1",
		"null":                        "null",
		"open":                        "{",
		"open after key":              `{"a"`,
		"open after colon":            `{"a":`,
		"open string":                 `{"a":"b`,
		"open escape":                 `{"a":"b\`,
		"trailing comma":              `{"a":1,}`,
		"leading comma":               `{,"a":1}`,
		"two commas":                  `{"a":1,,"b":2}`,
		"no comma":                    `{"a":1 "b":2}`,
		"no colon":                    `{"a" 1}`,
		"no value":                    `{"a":}`,
		"unquoted key":                `{a:1}`,
		"single quotes":               `{'a':1}`,
		"trailing data":               `{} {}`,
		"trailing NUL":                "{}\x00",
		"byte order mark":             "\ufeff{}",
		"comment":                     `{/*x*/}`,
		"raw line break in string":    "{\"a\":\"b\nc\"}",
		"raw NUL in string":           "{\"a\":\"b\x00c\"}",
		"raw tab after escape":        "{\"a\":\"\\n\tc\"}",
		"raw line break in key":       "{\"a\n\":1}",
		"invalid UTF-8":               "{\"a\":\"\xff\"}",
		"overlong UTF-8":              "{\"a\":\"\xc0\xaf\"}",
		"UTF-8 surrogate":             "{\"a\":\"\xed\xa0\x80\"}",
		"invalid UTF-8 in key":        "{\"\xff\":1}",
		"UTF-16":                      "{\x00}\x00",
		"leading zero":                `{"a":01}`,
		"plus":                        `{"a":+1}`,
		"lone minus":                  `{"a":-}`,
		"leading point":               `{"a":.5}`,
		"trailing point":              `{"a":5.}`,
		"open exponent":               `{"a":5e}`,
		"hex":                         `{"a":0x1}`,
		"NaN":                         `{"a":NaN}`,
		"Infinity":                    `{"a":-Infinity}`,
		"half a literal":              `{"a":tru}`,
		"capital literal":             `{"a":True}`,
		"unknown escape":              `{"a":"\x41"}`,
		"short unicode escape":        `{"a":"\u12"}`,
		"bad hex digit":               `{"a":"\u12g4"}`,
		"same key twice":              `{"a":1,"a":1}`,
		"same key twice, escaped":     `{"a":1,"\u0061":1}`,
		"same key twice, null":        `{"a":null,"a":1}`,
		"same key twice, deep":        `{"a":{"b":[{"c":1,"c":2}]}}`,
		"same key twice, many keys":   `{` + manyKeys.String() + `"k7":1}`,
		"same key twice, after a sub": `{"a":{"b":1},"a":1}`,
		"too deep":                    `{"a":` + deep + `}`,
		"unclosed array":              `{"a":[1}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := collect(body)
			var refusal *delivery.Error
			if !errors.As(err, &refusal) || refusal.Code != delivery.CodeMalformedRequest {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestReader_ReadsWhatEncodingJSONReads(t *testing.T) {
	for name, body := range map[string]string{
		"empty object":        `{}`,
		"white space":         " {\t\"a\" :\r\n 1 , \"b\":[ ] } \n",
		"every kind":          `{"s":"x","n":-12.50e+3,"t":true,"f":false,"z":null,"o":{"a":[1,{"b":[]}]},"0":0}`,
		"escapes":             `{"a":"\"\\\/\b\f\n\r\t\u00e7\u0000"}`,
		"Turkish":             `{"ad":"Şişli İğdır ÇÖÜ"}`,
		"emoji by escapes":    `{"a":"\ud83d\ude00!"}`,
		"half an emoji":       `{"a":"\ud83d"}`,
		"half and a letter":   `{"a":"\ud83dx","b":"\ud83d\u0041","c":"\ude00"}`,
		"same key in two":     `{"a":{"x":1},"b":{"x":1},"x":1}`,
		"case differs":        `{"a":1,"A":2}`,
		"empty key":           `{"":1}`,
		"deep enough":         `{"a":` + strings.Repeat("[", MaxDepth-1) + strings.Repeat("]", MaxDepth-1) + `}`,
		"escaped key":         `{"a\tb":1}`,
		"number at the end":   `{"a":-0}`,
		"exponents":           `{"a":1E5,"b":1e-5,"c":0.0}`,
		"key after sub keys":  `{"a":{"b":1,"c":2},"b":3,"c":4}`,
		"surrogate then pair": `{"a":"\ud83d\ud83d\ude00"}`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := collect(body)
			if err != nil {
				t.Fatal(err)
			}
			if want := standard(t, body); !reflect.DeepEqual(got, want) {
				t.Errorf("got %#v, want %#v", got, want)
			}
		})
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

func TestReader_NotesWrongTypesAndReadsOn(t *testing.T) {
	r := New(`{"s":1,"n":"1","o":[],"a":{},"b":"true","s2":null,"n2":null,"o2":null,"a2":null,"b2":null,"last":"x"}`)
	var text, last delivery.Text
	var number delivery.Number
	r.Root(func(key string) {
		switch key[0] {
		case 's':
			r.Text(key, &text)
		case 'n':
			r.Number(key, &number)
		case 'o':
			r.Object(key, func(string) { r.Skip() })
		case 'a':
			r.Array(key, func(int) { r.Skip() })
		case 'b':
			r.Bool(key)
		default:
			r.Text(key, &last)
		}
	})
	if err := r.End(); err != nil {
		t.Fatal(err)
	}
	want := []delivery.FieldError{
		{Field: "s", Message: "must be a string"}, {Field: "n", Message: "must be a number"},
		{Field: "o", Message: "must be an object"}, {Field: "a", Message: "must be an array"},
		{Field: "b", Message: "must be true or false"},
	}
	if !reflect.DeepEqual(r.Wrong, want) {
		t.Errorf("wrong = %v", r.Wrong)
	}
	if text.Set || number.Set || last.Value != "x" {
		t.Errorf("text %v, number %v, last %v", text, number, last)
	}
}

func TestReader_RawKeepsTheText(t *testing.T) {
	r := New(`{"a": {"b": [1, 2]} , "c":null}`)
	got := map[string]string{}
	r.Root(func(key string) { got[key] = r.Raw() })
	if err := r.End(); err != nil || got["a"] != `{"b": [1, 2]}` || got["c"] != "" {
		t.Errorf("%v, %q", err, got)
	}
}

func TestReader_ArrayAtTheRoot(t *testing.T) {
	r := New(`[{"a":1},{"a":2}]`)
	var got []string
	r.RootArray(func(i int) {
		r.Object("", func(string) {
			var n delivery.Number
			r.Number("", &n)
			got = append(got, fmt.Sprintf("%d %s", i, n.Literal))
		})
	})
	if err := r.End(); err != nil || strings.Join(got, ",") != "0 1,1 2" {
		t.Errorf("%v, %v", err, got)
	}
	r = New(`{}`)
	if r.RootArray(func(int) { r.Skip() }); r.End() == nil {
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
