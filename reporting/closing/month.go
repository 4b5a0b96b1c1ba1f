package closing

import (
	"encoding/json"
	"fmt"
	"time"

	"vendorapi/internal/delivery"
)

// Month is its first day at +03:00; in text 2026-10.
type Month struct{ time.Time }

const monthLayout = "2006-01"

// MonthOf is the month of a time.
func MonthOf(t time.Time) Month {
	y, m, _ := t.In(delivery.Istanbul).Date()
	return Month{time.Date(y, m, 1, 0, 0, 0, 0, delivery.Istanbul)}
}

// ParseMonth reads 2026-10.
func ParseMonth(text string) (Month, error) {
	t, err := time.ParseInLocation(monthLayout, text, delivery.Istanbul)
	if err != nil || t.Year() < 2000 || t.Year() > 2100 {
		return Month{}, fmt.Errorf("%q is not a month such as 2026-10", text)
	}
	return Month{t}, nil
}

// String is 2026-10.
func (m Month) String() string { return m.Format(monthLayout) }

// Name is October 2026.
func (m Month) Name() string { return m.Format("January 2006") }

// Next is the month behind it.
func (m Month) Next() Month { return Month{m.AddDate(0, 1, 0)} }

// LastDay is its last day's midnight.
func (m Month) LastDay() time.Time { return m.AddDate(0, 1, -1) }

// MarshalJSON takes the place of that of the time.
func (m Month) MarshalJSON() ([]byte, error) { return json.Marshal(m.String()) }

// UnmarshalJSON takes the place of that of the time.
func (m *Month) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	month, err := ParseMonth(s)
	*m = month
	return err
}
