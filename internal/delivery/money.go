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

// Money is exact Turkish lira. The zero value is "not given", which differs from 0.
type Money struct {
	Minor int64 // kuruş, 0 to MaxMoneyMinor
	Set   bool
}

// ParseMoney reads a JSON number from 0 to 9,999,999.99 by value: 12.500 and 1e2 are
// valid, 12.501 is not (design section 8). The error's text continues the field's name.
// Package decimal would spend time on every digit.
func ParseMoney(literal string) (Money, error) {
	mantissa, exponent, err := literal, int64(0), error(nil)
	if i := max(strings.IndexByte(literal, 'e'), strings.IndexByte(literal, 'E')); i >= 0 {
		mantissa = literal[:i]
		exponent, err = strconv.ParseInt(literal[i+1:], 10, 32) // what is beyond that becomes its limit
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, hasFraction := strings.Cut(mantissa, ".")
	if errors.Is(err, strconv.ErrSyntax) || !isDigits(whole) || len(whole) > 1 && whole[0] == '0' || hasFraction && !isDigits(fraction) {
		return Money{}, errMoney
	}
	// The value is the significant digits times ten to the scale.
	digits := strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return Money{Set: true}, nil
	}
	scale := exponent - int64(len(fraction)) + int64(len(digits)-len(significant))
	if negative || scale < -2 || int64(len(significant))+scale > maxMoneyDigits {
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

// String is the amount with two decimals, "12.50"; empty when not given.
func (m Money) String() string {
	if !m.Set {
		return ""
	}
	return m.Decimal().StringFixed(2)
}

// Decimal is the amount in lira; 0 when not given.
func (m Money) Decimal() decimal.Decimal { return decimal.New(m.Minor, -2) }

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

const phoneDigits = 10

var errPhone = errors.New("must have 10 digits, the first of them not 0, after +90 and a leading 0 are stripped; no blanks, dashes or brackets")

// NormalizePhone reads an optional +90, an optional 0, and returns the 10 ASCII digits
// that follow, the first not 0 (design section 9). Separators are refused: one may stand
// for a missing digit. The error's text continues the field's name.
func NormalizePhone(s string) (string, error) {
	s = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(s), "+90"), "0")
	if len(s) != phoneDigits || s[0] == '0' || !isDigits(s) {
		return "", errPhone
	}
	return s, nil
}
