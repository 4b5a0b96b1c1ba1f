package delivery

import (
	"errors"
	"strings"
	"time"
)

// Istanbul is the local time of the service, +03:00 all year (design section 9).
var Istanbul = time.FixedZone("+03:00", 3*60*60)

// The years that ParseTime accepts.
const (
	minYear = 2000
	maxYear = 2100
)

// maxOffsetHours is the largest offset from UTC in use anywhere (Kiritimati).
const maxOffsetHours = 14

const (
	timeLayout = "2006-01-02T15:04:05.000-07:00"
	dateLayout = "2006-01-02"
)

var errTime = errors.New("must be an ISO 8601 time such as 2026-11-21T12:30:00+03:00")

// ParseTime reads an ISO 8601 time: date, "T", hours and minutes, then
// optionally seconds, a fraction of up to nine digits, and an offset ("Z",
// +03:00, +0300 or +03). Without an offset it is local time, +03:00 (spec,
// "Order (creation request)"). Years run from 2000 to 2100. The result is in
// Istanbul. The error's text completes a sentence that begins with the field's
// name.
func ParseTime(s string) (time.Time, error) {
	p := timeParser{rest: s}
	year, month, day := p.digits(4), p.after('-'), p.after('-')
	hour, minute := p.after('T'), p.after(':')
	second, nanos := p.seconds()
	offset := p.offset()
	if p.failed || p.rest != "" || year < minYear || year > maxYear ||
		month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, errTime
	}
	local := time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC)
	if local.Day() != day {
		return time.Time{}, errTime
	}
	return local.Add(-offset).In(Istanbul), nil
}

// AppendTime appends the time as every answer carries it: milliseconds, +03:00,
// "2026-11-21T12:30:00.000+03:00". It does not allocate.
func AppendTime(dst []byte, t time.Time) []byte {
	return t.In(Istanbul).AppendFormat(dst, timeLayout)
}

// FormatTime is AppendTime as a string.
func FormatTime(t time.Time) string {
	return string(AppendTime(make([]byte, 0, len(timeLayout)), t))
}

// ReadAs ends the message about a time that is refused: how it was understood. A
// local time with a Z behind it is three hours late.
func ReadAs(given string, at time.Time) string {
	if strings.HasSuffix(given, "Z") {
		return "; it is read as " + FormatTime(at) + ", a local time has no Z"
	}
	return "; it is read as " + FormatTime(at)
}

// appendDate appends the local day, "2026-11-21".
func appendDate(dst []byte, t time.Time) []byte {
	return t.In(Istanbul).AppendFormat(dst, dateLayout)
}

// timeParser consumes a time from the left and remembers the first failure.
type timeParser struct {
	rest   string
	failed bool
}

// digits takes exactly n digits.
func (p *timeParser) digits(n int) int {
	if p.failed || len(p.rest) < n {
		p.failed = true
		return 0
	}
	value := 0
	for i := range n {
		if !isDigit(p.rest[i]) {
			p.failed = true
			return 0
		}
		value = value*10 + int(p.rest[i]-'0')
	}
	p.rest = p.rest[n:]
	return value
}

// after takes the separator and then exactly two digits.
func (p *timeParser) after(separator byte) int {
	if !p.take(separator) {
		p.failed = true
		return 0
	}
	return p.digits(2)
}

// take consumes one character if it comes next.
func (p *timeParser) take(c byte) bool {
	if p.failed || p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// seconds takes optional seconds with an optional fraction.
func (p *timeParser) seconds() (seconds, nanos int) {
	if !p.take(':') {
		return 0, 0
	}
	seconds = p.digits(2)
	if !p.take('.') && !p.take(',') {
		return seconds, 0
	}
	fraction, rest := cutDigits(p.rest)
	if fraction == "" || len(fraction) > 9 {
		p.failed = true
		return 0, 0
	}
	p.rest = rest
	for i := range 9 {
		nanos *= 10
		if i < len(fraction) {
			nanos += int(fraction[i] - '0')
		}
	}
	return seconds, nanos
}

// offset takes an optional offset from UTC; none means Istanbul.
func (p *timeParser) offset() time.Duration {
	if p.rest == "" {
		return 3 * time.Hour
	}
	if p.take('Z') {
		return 0
	}
	sign := time.Duration(1)
	if !p.take('+') {
		if !p.take('-') {
			p.failed = true
			return 0
		}
		sign = -1
	}
	hours, minutes := p.digits(2), 0
	if strings.HasPrefix(p.rest, ":") {
		minutes = p.after(':')
	} else if p.rest != "" {
		minutes = p.digits(2)
	}
	if hours > maxOffsetHours || minutes > 59 {
		p.failed = true
	}
	return sign * (time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute)
}
