package delivery

import (
	"errors"
	"strconv"
	"strings"

	"github.com/shopspring/decimal"
)

// MaxMoneyMinor is the largest amount, 9,999,999.99, in hundredths.
const MaxMoneyMinor = 999_999_999

// maxMoneyDigits is how many digits MaxMoneyMinor has before the point.
const maxMoneyDigits = 7

var errMoney = errors.New("must be a number from 0 to 9999999.99 with at most two decimals")

// Money is an exact amount of Turkish lira in kuruş, never a float (design
// section 8). The zero value is "not given", which is not the same as 0.
type Money struct {
	Minor int64 // kuruş, 0 to MaxMoneyMinor
	Set   bool
}

// ParseMoney reads the text of a JSON number: 0 to 9,999,999.99 with at most
// two decimals by value, so 12.500 and 1e2 are fine and 12.501 is not
// (design section 8). The error's text completes a sentence that begins with
// the field's name.
func ParseMoney(literal string) (Money, error) {
	n, ok := splitNumber(literal)
	if !ok {
		return Money{}, errMoney
	}
	// The value is the significant digits times ten to the scale.
	digits := strings.TrimLeft(n.whole+n.fraction, "0")
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return Money{Set: true}, nil
	}
	scale := n.exponent - int64(len(n.fraction)) + int64(len(digits)-len(significant))
	if n.negative || scale < -2 || int64(len(significant))+scale > maxMoneyDigits {
		return Money{}, errMoney
	}
	minor, err := strconv.ParseInt(significant, 10, 64)
	if err != nil {
		return Money{}, errMoney
	}
	for range scale + 2 {
		minor *= 10
	}
	return Money{Minor: minor, Set: true}, nil
}

// String is the amount with two decimals and a point, "12.50"; empty when not
// given.
func (m Money) String() string {
	if !m.Set {
		return ""
	}
	return m.Decimal().StringFixed(2)
}

// Decimal is the amount in lira; 0 when not given.
func (m Money) Decimal() decimal.Decimal { return decimal.New(m.Minor, -2) }

// number is a JSON number in its parts.
type number struct {
	negative        bool
	whole, fraction string
	exponent        int64
}

// splitNumber reads the grammar of RFC 8259, section 6. An exponent beyond any
// sensible size is kept as a large one instead of overflowing.
func splitNumber(s string) (number, bool) {
	var n number
	s, n.negative = strings.CutPrefix(s, "-")
	n.whole, s = cutDigits(s)
	if n.whole == "" || len(n.whole) > 1 && n.whole[0] == '0' {
		return number{}, false
	}
	if rest, point := strings.CutPrefix(s, "."); point {
		if n.fraction, s = cutDigits(rest); n.fraction == "" {
			return number{}, false
		}
	}
	if s == "" {
		return n, true
	}
	if s[0] != 'e' && s[0] != 'E' {
		return number{}, false
	}
	var ok bool
	n.exponent, ok = parseExponent(s[1:])
	return n, ok
}

func parseExponent(s string) (int64, bool) {
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	digits, rest := cutDigits(s)
	if digits == "" || rest != "" {
		return 0, false
	}
	const huge = int64(1) << 40
	e, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || e > huge {
		e = huge
	}
	if negative {
		e = -e
	}
	return e, true
}

// cutDigits splits off the leading ASCII digits.
func cutDigits(s string) (digits, rest string) {
	i := 0
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return s[:i], s[i:]
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
