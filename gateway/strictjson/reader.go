// Package strictjson reads request bodies into structs: JSON as RFC 8259 has it, in one
// pass over the text. Malformed is what is not RFC 8259 or not UTF-8, the same key twice
// in one object, anything after the value, and nesting beyond MaxDepth. A value of the
// wrong type is noted (Wrong) and reading goes on. null counts as absent. Keys are
// case-sensitive. Strings are parts of the text.
//
// sonic finds no duplicate keys, and needs more time and 18 allocations for what takes
// none here (the gateway's BenchmarkDecode).
package strictjson

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"vendorapi/internal/delivery"
)

// MaxDepth is how deep objects and arrays may be nested. A GeoJSON
// MultiPolygon, the deepest body that means anything here, needs 6.
const MaxDepth = 64

// maxIgnored bounds Reader.Ignored: it only helps to explain a refusal.
const maxIgnored = 64

// maxUnknown bounds Reader.Unknown, each of which has the list of what is known beside it. A refusal
// names fewer.
const maxUnknown = 64

// Reader reads one JSON text. After the first syntax error everything is a no-op, and
// End returns it.
type Reader struct {
	// Wrong lists the members of a wrong type, in the order of the text.
	Wrong []delivery.FieldError
	// Unknown lists the first members without a field in objects that are closed.
	Unknown []Unknown
	// Ignored lists the first members without a field in any object.
	Ignored []string

	// NotesDuplicates makes a key that occurs twice in one object no syntax error, so that a reader
	// of many elements can refuse one and go on. Of the members the last one counts.
	NotesDuplicates bool
	// Duplicate says which key occurred twice, the first since it was emptied; empty: none.
	Duplicate string

	src       string
	pos       int
	depth     int
	unescaped []byte // of the last string with an escape
	err       error
}

// New reads src. The strings handed out later are parts of it.
func New(src string) Reader {
	r := Reader{src: src}
	if !utf8.ValidString(src) {
		r.err = &delivery.Error{Code: delivery.CodeMalformedRequest, Message: "the body is not UTF-8"}
	}
	return r
}

// End is the result for the whole text: nil, or a *delivery.Error MALFORMED_REQUEST.
func (r *Reader) End() error {
	r.space()
	if r.err == nil && r.pos < len(r.src) {
		r.fail("something follows the JSON value")
	}
	return r.err
}

// RootArray reads a body that must be an array; each must consume its element.
func (r *Reader) RootArray(each func(index int)) {
	if r.root('[', "an array is expected") {
		r.array(each)
	}
}

func (r *Reader) root(c byte, otherwise string) bool {
	r.space()
	switch {
	case r.peek() == c:
		return true
	case r.pos == len(r.src):
		r.fail("the body is empty")
	case strings.HasPrefix(r.src, "\ufeff"):
		r.fail("the body begins with a byte order mark; remove it")
	default:
		r.fail(otherwise)
	}

	return false
}

func (r *Reader) readText(path string, dst *delivery.Text) {
	if r.expect('"', path, "must be a string") {
		dst.Value, dst.Set = r.text(), true
	}
}

func (r *Reader) readNumber(path string, dst *delivery.Number) {
	r.space()
	if c := r.peek(); c != '-' && (c < '0' || c > '9') {
		message := "must be a number"
		if c == '"' {
			message = "must be a number, without quotes"
		}
		r.mismatch(path, message)
		return
	}

	dst.Literal, dst.Set = r.number(), true
}

// readBool reads a member that should be true or false; nil when it is neither.
func (r *Reader) readBool(path string) *bool {
	r.space()
	if c := r.peek(); c != 't' && c != 'f' {
		r.mismatch(path, "must be true or false, without quotes")
		return nil
	}

	value := r.peek() == 't'
	r.Skip()
	return &value
}

// readRaw reads any value and returns its text; empty for null.
func (r *Reader) readRaw() string {
	r.space()
	start := r.pos
	r.Skip()
	if raw := r.src[start:r.pos]; r.err == nil && raw != "null" {
		return raw
	}
	return ""
}

// Skip reads any value.
func (r *Reader) Skip() {
	r.space()
	c := r.peek()
	switch {
	case c == '{':
		r.object(func(string) { r.Skip() })
	case c == '[':
		r.array(func(int) { r.Skip() })
	case c == '"':
		r.text()
	case c == '-' || c >= '0' && c <= '9':
		r.number()
	default:
		for _, word := range []string{"true", "false", "null"} {
			if c == word[0] && strings.HasPrefix(r.src[r.pos:], word) {
				r.pos += len(word)
				return
			}
		}
		r.fail("a JSON value is expected")
	}
}

// expect is true when a value that begins with c comes next; null is skipped
// as absent, anything else noted and skipped.
func (r *Reader) expect(c byte, path, message string) bool {
	r.space()
	if r.peek() == c {
		return true
	}
	r.mismatch(path, message)
	return false
}

func (r *Reader) mismatch(path, message string) {
	if r.peek() != 'n' && r.err == nil {
		r.Wrong = append(r.Wrong, delivery.FieldError{Field: path, Message: message})
	}
	r.Skip()
}

func (r *Reader) object(each func(key string)) {
	if !r.enter() {
		return
	}

	var keys keySet
	for first := true; r.more('}', first); first = false {
		if c := r.peek(); c != '"' {
			what := "a key in double quotes is expected"
			switch {
			case !first && c >= '0' && c <= '9':
				what += "; numbers have a decimal point, not a comma"
			case !first && c == '}':
				what += "; no comma stands before }"
			}

			r.fail(what)
			return
		}

		key := r.text()
		if r.err == nil && !keys.add(key) {
			r.duplicate(key)
		}

		r.space()
		if !r.take(':') {
			r.fail("a colon is expected")
			return
		}

		each(key)
		if r.err != nil {
			return
		}
	}

	r.depth--
}

func (r *Reader) duplicate(key string) {
	message := fmt.Sprintf("the key %.64q occurs twice in one object", key)
	if !r.NotesDuplicates {
		r.fail(message)
		return
	}

	if r.Duplicate == "" {
		r.Duplicate = message
	}
}

// keySet is the keys of one object. Beyond fewKeys a map takes over, so that thousands
// of keys cost no quadratic time.
type keySet struct {
	few   [fewKeys]string
	count int // in few
	many  map[string]struct{}
}

const fewKeys = 16

func (s *keySet) add(key string) bool {
	if s.many != nil {
		_, found := s.many[key]
		s.many[key] = struct{}{}
		return !found
	}

	for i := range s.few[:s.count] {
		if s.few[i] == key {
			return false
		}
	}

	if s.count < fewKeys {
		s.few[s.count] = key
		s.count++
		return true
	}

	s.many = make(map[string]struct{}, 4*fewKeys)
	for _, k := range s.few {
		s.many[k] = struct{}{}
	}

	s.many[key] = struct{}{}

	return true
}

func (r *Reader) array(each func(index int)) {
	if !r.enter() {
		return
	}

	for i := 0; r.more(']', i == 0); i++ {
		each(i)
		if r.err != nil {
			return
		}
	}

	r.depth--
}

func (r *Reader) enter() bool {
	if r.err != nil {
		return false
	}

	r.depth++
	if r.depth > MaxDepth {
		r.fail("too many levels of nesting")
		return false
	}

	r.pos++

	return true
}

// more reports whether a member follows, else it has consumed the closing bracket.
func (r *Reader) more(closing byte, first bool) bool {
	r.space()
	switch {
	case r.err != nil:
		return false
	case r.take(closing):
		return false
	case first:
		return true
	case !r.take(','):
		r.fail("a comma or a closing bracket is expected")
		return false
	}

	r.space()

	return r.err == nil
}

func (r *Reader) space() {
	for r.pos < len(r.src) {
		switch r.src[r.pos] {
		case ' ', '\n', '\r', '\t':
			r.pos++
		default:
			return
		}
	}
}

// peek is the next byte, 0 at the end (a NUL is no valid beginning either) and
// after an error.
func (r *Reader) peek() byte {
	if r.err == nil && r.pos < len(r.src) {
		return r.src[r.pos]
	}
	return 0
}

func (r *Reader) take(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.pos++
	return true
}

func (r *Reader) fail(what string) {
	if r.err == nil {
		r.err = delivery.Refuse(delivery.CodeMalformedRequest, "the body is not acceptable JSON: %s, at byte %d", what, r.pos)
	}
}

// text reads a string. One without escapes is a part of the source.
func (r *Reader) text() string {
	if !r.take('"') {
		r.fail("a string is expected")
		return ""
	}

	start := r.pos
	for i := start; i < len(r.src); i++ {
		c := r.src[i]
		switch {
		case c == '"':
			r.pos = i + 1
			return r.src[start:i]
		case c == '\\':
			return r.escapedText(start, i)
		case c < ' ':
			r.pos = i
			r.fail("a control character in a string must be escaped")
			return ""
		}
	}

	r.pos = len(r.src)
	r.fail("a string has no end")

	return ""
}

func (r *Reader) escapedText(start, escape int) string {
	if r.unescaped == nil {
		r.unescaped = make([]byte, 0, 128)
	}

	out := r.unescaped[:0]
	out = append(out, r.src[start:escape]...)
	for r.pos = escape; r.pos < len(r.src); {
		c := r.src[r.pos]
		switch {
		case c == '"':
			r.pos++
			r.unescaped = out
			return string(out)
		case c == '\\':
			out = r.escape(out)
			if r.err != nil {
				return ""
			}
		case c < ' ':
			r.fail("a control character in a string must be escaped")
			return ""
		default:
			out = append(out, c)
			r.pos++
		}
	}

	r.fail("a string has no end")

	return ""
}

func (r *Reader) escape(out []byte) []byte {
	if r.pos+1 >= len(r.src) {
		r.fail("an escape has no end")
		return out
	}

	const written, meant = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	c := r.src[r.pos+1]
	i := strings.IndexByte(written, c)
	switch {
	case c == 'u':
		return r.unicodeEscape(out)
	case i < 0:
		r.fail("no such escape")
		return out
	}

	r.pos += 2

	return append(out, meant[i])
}

// unicodeEscape reads \uXXXX and the second half of a pair. Half a pair alone, left by
// clients that cut texts, becomes U+FFFD rather than refuse the order.
func (r *Reader) unicodeEscape(out []byte) []byte {
	first, ok := r.codeUnit(r.pos)
	if !ok {
		r.fail("four hex digits are expected")
		return out
	}

	r.pos += 6
	if !utf16.IsSurrogate(first) {
		return utf8.AppendRune(out, first)
	}

	if second, ok := r.codeUnit(r.pos); ok {
		if pair := utf16.DecodeRune(first, second); pair != utf8.RuneError {
			r.pos += 6
			return utf8.AppendRune(out, pair)
		}
	}

	return utf8.AppendRune(out, utf8.RuneError)
}

func (r *Reader) codeUnit(at int) (rune, bool) {
	if at+6 > len(r.src) || r.src[at] != '\\' || r.src[at+1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(r.src[at+2:at+6], 16, 16)
	return rune(unit), err == nil
}

func (r *Reader) number() string {
	start := r.pos
	r.take('-')
	ok := r.take('0') || r.digits()
	ok = ok && (!r.take('.') || r.digits())
	if ok && (r.take('e') || r.take('E')) {
		_ = r.take('+') || r.take('-')
		ok = r.digits()
	}

	if !ok {
		r.fail("a digit is expected")
		return ""
	}

	return r.src[start:r.pos]
}

func (r *Reader) digits() bool {
	start := r.pos
	for r.pos < len(r.src) && r.src[r.pos] >= '0' && r.src[r.pos] <= '9' {
		r.pos++
	}
	return r.pos > start
}
