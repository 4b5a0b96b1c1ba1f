package reports

import (
	"strconv"
	"time"

	"vendorapi/internal/delivery"
)

// style is how a format writes what is no text.
type style struct {
	decimal byte // between lira and kuruş
	// local writes times as 2006-01-02 15:04:05, which spreadsheets take for
	// dates and which drops the milliseconds; otherwise as every answer of the
	// API has them, 2006-01-02T15:04:05.000+03:00.
	local bool
}

const localLayout = "2006-01-02 15:04:05"

// append writes a given value that is no text.
func (s style) append(dst []byte, kind Kind, n int64) []byte {
	switch kind {
	case Money:
		return appendMoney(dst, n, s.decimal)
	case DayOnly:
		return Day(n).midnight().AppendFormat(dst, dayLayout)
	case Month:
		return Day(n).midnight().AppendFormat(dst, monthLayout)
	case Time:
		if at := time.UnixMilli(n); s.local {
			return at.In(delivery.Istanbul).AppendFormat(dst, localLayout)
		} else {
			return delivery.AppendTime(dst, at)
		}
	default:
		return strconv.AppendInt(dst, n, 10)
	}
}

// appendMoney writes kuruş as lira with two decimals.
func appendMoney(dst []byte, kurus int64, decimal byte) []byte {
	size := uint64(kurus)
	if kurus < 0 {
		dst = append(dst, '-')
		size = -size
	}
	dst = strconv.AppendUint(dst, size/100, 10)
	cents := size % 100
	return append(dst, decimal, byte('0'+cents/10), byte('0'+cents%10))
}
