package delivery

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

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
// valid, 12.501 is not (decisions, "Finance"). The error's text continues the field's name.
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
// that follow, the first not 0 (decisions, "Phone"). Separators are refused: one may stand
// for a missing digit. The error's text continues the field's name.
// Invisible characters, which phones add to what is copied from contacts, are taken away.
func NormalizePhone(s string) (string, error) {
	number := pasted(s)
	digits := strings.TrimPrefix(strings.TrimPrefix(number, "+90"), "0")
	if len(digits) == phoneDigits && digits[0] != '0' && isDigits(digits) {
		return digits, nil
	}
	if named := unreadableDigit(s); named != "" {
		return "", fmt.Errorf("%w%s", errPhone, named)
	}
	return "", errPhone
}

// Istanbul is the local time of the service, +03:00 all year (decisions, "Timestamps").
var Istanbul = time.FixedZone("+03:00", 3*60*60)

// The years in which an order can have been placed, and a key of tracking links made.
const (
	minYear = 2000
	maxYear = 2100
)

// maxOffset is beyond the largest offset from UTC in use anywhere (Kiritimati).
const maxOffset = 15 * 60 * 60

const timeLayout = "2006-01-02T15:04:05.000-07:00"

var errTime = errors.New("must be an ISO 8601 time such as 2026-11-21T12:30:00+03:00")

// ParseTime reads an ISO 8601 time: date, "T", hours and minutes, optionally seconds, up
// to nine digits of a fraction, and an offset ("Z", +03:00, +0300 or +03), else +03:00.
// Any year of four digits will do: programs have 0001 or 9999 for a time that they do not know,
// and each field has bounds of its own. The error's text continues the field's name.
func ParseTime(s string) (time.Time, error) {
	clock, zone := s, ""
	if i := strings.LastIndexAny(s, "Z+-"); i > len(time.DateOnly) {
		clock, zone = s[:i], s[i:]
	}

	layout := "2006-01-02T15:04:05Z07:00"
	if len(clock) <= len("2006-01-02T15:04") {
		layout = "2006-01-02T15:04Z07:00"
	}

	switch len(zone) {
	case 0:
		layout = layout[:len(layout)-len("Z07:00")]
	case 3:
		layout = layout[:len(layout)-len(":00")]
	case 5:
		layout = layout[:len(layout)-len(":00")] + "00"
	}

	at, err := time.ParseInLocation(layout, s, Istanbul)
	if err != nil {
		return time.Time{}, errTime
	}

	// Package time takes shorter hours, longer fractions and larger offsets.
	_, offset := at.Zone()
	if clock[13] != ':' || len(clock) > len("2006-01-02T15:04:05.123456789") ||
		offset <= -maxOffset || offset >= maxOffset || len(zone) > 3 && zone[len(zone)-2] == '6' {
		return time.Time{}, errTime
	}

	return at.In(Istanbul), nil
}

// AppendTime appends "2026-11-21T12:30:00.000+03:00" without allocating.
func AppendTime(dst []byte, t time.Time) []byte {
	return t.In(Istanbul).AppendFormat(dst, timeLayout)
}

// FormatTime is AppendTime as a string.
func FormatTime(t time.Time) string {
	return string(AppendTime(make([]byte, 0, len(timeLayout)), t))
}

// ReadAs ends a message with how a time was read.
func ReadAs(at time.Time) string { return "; it is read as " + FormatTime(at) }

// ReadAsLate is ReadAs for a time that lies too far ahead: a local time in Turkey to which
// somebody has added a Z is three hours late.
func ReadAsLate(given string, at time.Time) string {
	if strings.HasSuffix(given, "Z") {
		return ReadAs(at) + ", a local time has no Z"
	}
	return ReadAs(at)
}

// combiningDot is left of an İ that was lower-cased as in English.
const combiningDot = '\u0307'

// FoldName makes names alike that differ in case only, with İ, i, I and ı as one letter,
// which people type alike; ş is not s. Invalid UTF-8 becomes U+FFFD. Idempotent.
func FoldName(name string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case 'I', 'İ', 'ı':
			return 'i'
		case combiningDot:
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}
