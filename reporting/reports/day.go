package reports

import (
	"errors"
	"fmt"
	"time"

	"vendorapi/internal/delivery"
)

// Day is a local calendar day, as days since 1970-01-01. Days are cut at 00:00
// +03:00 (design section 8).
type Day int32

// The days that a report may ask for; the same years as everywhere in the API.
var (
	firstDay = dayOf(2000, time.January, 1)
	lastDay  = dayOf(2100, time.December, 31)
)

const (
	dayLayout   = "2006-01-02"
	monthLayout = "2006-01"
)

func dayOf(year int, month time.Month, day int) Day {
	return Day(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / 86400)
}

// DayOf is the local day of a moment.
func DayOf(t time.Time) Day {
	year, month, day := t.In(delivery.Istanbul).Date()
	return dayOf(year, month, day)
}

// ParseDay reads 2006-01-02, from 2000 to 2100.
func ParseDay(s string) (Day, error) {
	t, err := time.Parse(dayLayout, s)
	if wrong := (*time.ParseError)(nil); errors.As(err, &wrong) && wrong.Message == ": day out of range" {
		return 0, fmt.Errorf("there is no day %s", s)
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a day such as 2026-11-21", s)
	}
	day := Day(t.Unix() / 86400)
	if day < firstDay || day > lastDay {
		return 0, fmt.Errorf("%s is not between %s and %s", day.Text(), firstDay.Text(), lastDay.Text())
	}
	return day, nil
}

// midnight is the day's beginning as if it were UTC, for formatting.
func (d Day) midnight() time.Time { return time.Unix(int64(d)*86400, 0).UTC() }

// String is 2006-01-02.
func (d Day) String() string { return d.midnight().Format(dayLayout) }

// Text is the day as pages have it: 2 Jan 2006.
func (d Day) Text() string { return d.midnight().Format("2 Jan 2006") }

// FirstOfMonth is the first day of the same month.
func (d Day) FirstOfMonth() Day {
	year, month, _ := d.midnight().Date()
	return dayOf(year, month, 1)
}
