package layout

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"vendorapi/internal/delivery"
)

// functions are what templates may call.
//
//	asset "panel.js"   the address of an asset
//	clock T            22 Nov 2026 14:03:05, local time; "" for the zero time
//	brief NOW T        14:03:05 within the same local day, 21 Nov 14:03 otherwise
//	minute T           14:03
//	day T              22 Nov 2026
//	written TEXT       what a field of a date holds, such as 2026-11-22, as day and clock write it
//	machine T          for <time datetime>
//	ago NOW T          "3 min ago", "in 2 h"
//	count N            12,345
//	money M            1,234.56; M is kuruş (int64) or delivery.Money
//	percent R          98.2 % of a ratio 0 to 1
//	short ID           the first 8 characters of an id
//	keep TEXT          the class "keep", which breaks over no line, of a text that fits one cell
//	fault ALERT FIELD  what is wrong with a field, or ""
//	field NAME         the API's name of a field in words
//	said ALERT         a refusal's message, with the fields that it names in words
//	tone STATE         the class of a state's colour: good, warn, bad, accent, quiet or ""
//	courier NAME       a courier's name as vendors see it
//	args KEY VALUE …   a map, for a template with several arguments
//	chart C            what panel.js draws
func (l *Layout) functions() template.FuncMap {
	return template.FuncMap{
		"asset": l.address,
		"clock": Clock, "brief": Brief, "minute": Minute, "day": Date, "written": written, "machine": machineTime, "ago": Ago,
		"count": countOf, "money": moneyOf, "percent": Percent, "short": Short, "keep": keep, "fault": Fault, "field": fieldName, "said": said,
		"tone": Tone, "courier": delivery.AbbreviateName, "args": args, "chart": (*Chart).json,
	}
}

func args(pairs ...any) map[string]any {
	m := map[string]any{}
	for pair := range slices.Chunk(pairs, 2) {
		m[pair[0].(string)] = pair[1]
	}
	return m
}

func local(t time.Time, layout string) string {
	if t.IsZero() {
		return ""
	}
	return t.In(delivery.Istanbul).Format(layout)
}

// Clock is a moment in local time, to the second: "22 Nov 2026 14:03:05".
func Clock(t time.Time) string { return local(t, "2 Jan 2006 15:04:05") }

// Brief is a moment as lists show it: "14:03:05" within the same local day as
// now, "21 Nov 14:03" otherwise. Another year is named.
func Brief(now, t time.Time) string {
	switch today := now.In(delivery.Istanbul); {
	case Date(now) == Date(t):
		return local(t, "15:04:05")
	case t.In(delivery.Istanbul).Year() == today.Year():
		return local(t, "2 Jan 15:04")
	}
	return local(t, "2 Jan 2006 15:04")
}

// Minute is the time of day in local time: "14:03".
func Minute(t time.Time) string { return local(t, "15:04") }

// Date is the local day: "22 Nov 2026".
func Date(t time.Time) string { return local(t, "2 Jan 2006") }

// written is what a field of a date or of a local time holds, as the pages write
// it; "" for anything else. Browsers show such fields in a form of their own.
func written(field string) string {
	for _, form := range []struct{ field, page string }{
		{time.DateOnly, "2 Jan 2006"}, {"2006-01-02T15:04:05", "2 Jan 2006 15:04:05"}, {"2006-01-02T15:04", "2 Jan 2006 15:04:05"},
	} {
		if t, err := time.Parse(form.field, field); err == nil {
			return t.Format(form.page)
		}
	}
	return ""
}

func machineTime(t time.Time) string { return local(t, time.RFC3339) }

// Ago is how far a moment is from now, in one unit: "just now", "3 min ago",
// "in 2 h". The zero time is "never".
func Ago(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := now.Sub(t)
	text := Span(max(d, -d))
	switch {
	case text == "0 s":
		return "just now"
	case d < 0:
		return "in " + text
	}
	return text + " ago"
}

// Span is a duration in its largest unit: "42 s", "3 min", "5 h", "2 d". Halves
// are not rounded up: it has not been that long yet.
func Span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + " s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + " min"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + " h"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + " d"
}

// Count is a whole number with its thousands apart: "12,345".
func Count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func countOf(n any) (string, error) {
	switch v := reflect.ValueOf(n); {
	case v.CanInt():
		return Count(v.Int()), nil
	case v.CanUint():
		return Count(int64(min(v.Uint(), math.MaxInt64))), nil
	}
	return "", fmt.Errorf("count: %T is no whole number", n)
}

// Money is an amount in kuruş as lira: "1,234.56".
func Money(kurus int64) string {
	sign, amount := "", uint64(kurus)
	if kurus < 0 {
		sign, amount = "-", -amount
	}
	return fmt.Sprintf("%s%s.%02d", sign, Count(int64(amount/100)), amount%100)
}

// moneyOf writes an amount that is not known as "–", which is not 0.
func moneyOf(m any) (string, error) {
	switch m := m.(type) {
	case int64:
		return Money(m), nil
	case delivery.Money:
		if !m.Set {
			return "–", nil
		}
		return Money(m.Minor), nil
	}
	return "", fmt.Errorf("money: %T is no amount", m)
}

// Percent is a ratio with one decimal. All and nothing are only said when it is
// so.
func Percent(ratio float64) string {
	tenths := math.Round(ratio * 1000)
	if ratio > 0 && ratio < 1 {
		tenths = min(max(tenths, 1), 999)
	}
	return strconv.FormatFloat(tenths/10, 'f', 1, 64) + " %"
}

// tones are the colours of states, by the words that pages and API have for them.
var tones = map[string]string{
	"Delivered": "good", "Failed": "bad", "Cancelled": "quiet", // orders
	"delivered": "good", "retrying": "warn", "undelivered": "bad", "notSent": "quiet", // webhook attempts
	"healthy": "good", "failing": "warn", "unreachable": "bad", "gone": "bad", // receivers
	"available": "good", "no couriers": "warn", "suspended": "bad", "disabled": "bad", // fleets
	"active": "good", "migrating": "warn", "awaiting approval": "accent", // stores
}

// Tone is the colour of an order's status, or of the state of anything else.
func Tone(state any) string {
	if status, is := state.(delivery.Status); is {
		return cmp.Or(tones[status.String()], "accent")
	}
	return tones[fmt.Sprint(state)]
}

// Short is the beginning of an id, enough to tell it from its neighbours.
func Short(id any) string {
	text := fmt.Sprint(id)
	return text[:min(len(text), 8)]
}

// keptLetters is how many letters of the latin alphabet fit the cell of a table.
const keptLetters = 17

// keep is the class of an id that vendors wrote: one that fits a cell is broken
// nowhere, also not at its hyphens.
func keep(text string) string {
	letters := 0
	for _, c := range text {
		if letters++; letters > keptLetters || c > unicode.MaxLatin1 && !unicode.Is(unicode.Latin, c) {
			return ""
		}
	}
	return "keep"
}

// fieldName is the API's name of a field in words: "Orders, sustained, requests"
// for limits.orders.sustained.count, "Closing date" for closingDate.
func fieldName(name string) string {
	parts := strings.Split(strings.TrimPrefix(name, "limits."), ".")
	if last := len(parts) - 1; last > 0 && parts[last] == "count" {
		parts[last] = "requests"
	}
	var b strings.Builder
	for _, c := range strings.Join(parts, ", ") {
		if unicode.IsUpper(c) && b.Len() > 0 {
			b.WriteByte(' ')
			c = unicode.ToLower(c)
		}
		if b.Len() == 0 {
			c = unicode.ToUpper(c)
		}
		b.WriteRune(c)
	}
	return b.String()
}

// said is a refusal's message; the API names fields in it as requests have them.
func said(alert *delivery.Error) string {
	message := alert.Message
	for _, f := range alert.Fields {
		message = strings.ReplaceAll(message, f.Field+" "+f.Message, fieldName(f.Field)+" "+f.Message)
	}
	return message
}

// Fault is what a refusal says of one field; empty when it says nothing of it.
func Fault(alert *delivery.Error, field string) string {
	if alert != nil {
		for _, f := range alert.Fields {
			if f.Field == field {
				return f.Message
			}
		}
	}
	return ""
}
