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

// maxOffset is beyond the largest offset from UTC in use anywhere (Kiritimati).
const maxOffset = 15 * 60 * 60

const timeLayout = "2006-01-02T15:04:05.000-07:00"

var errTime = errors.New("must be an ISO 8601 time such as 2026-11-21T12:30:00+03:00")

// ParseTime reads an ISO 8601 time: date, "T", hours and minutes, optionally seconds, up
// to nine digits of a fraction, and an offset ("Z", +03:00, +0300 or +03), else +03:00.
// Years run from 2000 to 2100. The error's text continues the field's name.
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
	if clock[13] != ':' || len(clock) > len("2006-01-02T15:04:05.123456789") || at.Year() < minYear || at.Year() > maxYear ||
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

// ReadAs ends a message with how a time was read; local times often end in Z.
func ReadAs(given string, at time.Time) string {
	if strings.HasSuffix(given, "Z") {
		return "; it is read as " + FormatTime(at) + ", a local time has no Z"
	}
	return "; it is read as " + FormatTime(at)
}
