package strictjson

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// text reads a string. One without escapes is a part of the source.
func (r *Reader) text() string {
	if !r.take('"') {
		r.fail("a string is expected")
		return ""
	}
	start := r.pos
	for i := start; i < len(r.src); i++ {
		switch c := r.src[i]; {
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

// escapedText reads on from the first escape.
func (r *Reader) escapedText(start, escape int) string {
	if r.unescaped == nil {
		r.unescaped = make([]byte, 0, 128)
	}
	out := r.unescaped[:0]
	out = append(out, r.src[start:escape]...)
	for r.pos = escape; r.pos < len(r.src); {
		switch c := r.src[r.pos]; {
		case c == '"':
			r.pos++
			r.unescaped = out
			return string(out)
		case c == '\\':
			if out = r.escape(out); r.err != nil {
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

// escape appends what the escape sequence at the present place stands for.
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

// codeUnit is the value of the \uXXXX at the given place.
func (r *Reader) codeUnit(at int) (rune, bool) {
	if at+6 > len(r.src) || r.src[at] != '\\' || r.src[at+1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(r.src[at+2:at+6], 16, 16)
	return rune(unit), err == nil
}

// number reads a number and returns it as it is written.
func (r *Reader) number() string {
	start := r.pos
	r.take('-')
	if !r.take('0') && !r.digits() {
		r.fail("a digit is expected")
		return ""
	}
	if r.take('.') && !r.digits() {
		r.fail("a digit is expected")
		return ""
	}
	if r.take('e') || r.take('E') {
		if !r.take('+') {
			r.take('-')
		}
		if !r.digits() {
			r.fail("a digit is expected")
			return ""
		}
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
