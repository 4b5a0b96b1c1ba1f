package layout

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"vendorapi/internal/delivery"
)

func (l *Layout) functions() template.FuncMap {
	return template.FuncMap{
		"asset": l.address,             // NAME, such as panel.js
		"args":  args,                  // KEY VALUE …: a map, for a template with several arguments
		"chart": (*Chart).json,         // what panel.js draws
		"clock": Clock, "brief": Brief, // T, and NOW T
		"day": Date, "isoday": ISODay, "machine": machine, // T
		"written": written, "ago": Ago, "age": age, // what a field of a date holds, and NOW T
		"count": countOf, "sum": func(a, b int64) int64 { return a + b }, "plural": Plural, "money": moneyOf,
		"short": Short, "shorten": Shorten, "tail": tail, "share": share, "keep": keep, "tone": Tone, "fleetstate": FleetState, "store": StorePath,
		"fault": Fault, "field": fieldName, "said": said, // ALERT FIELD, NAME and ALERT
		"courier": delivery.AbbreviateName, // a courier's name as vendors see it
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

// Clock is a moment in local time: "22 Nov 2026 14:03:05"; empty for the zero time.
func Clock(t time.Time) string { return local(t, "2 Jan 2006 15:04:05") }

// Date is the local day: "22 Nov 2026".
func Date(t time.Time) string { return local(t, "2 Jan 2006") }

func machine(t time.Time) string { return local(t, time.RFC3339) }

// Brief is a moment as lists show it: "14:03:05" today, "21 Nov 14:03", "2 Jan 2006 15:04".
func Brief(now, t time.Time) string {
	switch {
	case Date(now) == Date(t):
		return local(t, "15:04:05")
	case local(now, "2006") == local(t, "2006"):
		return local(t, "2 Jan 15:04")
	}
	return local(t, "2 Jan 2006 15:04")
}

// written is what a field of a date or of a local time holds, as the pages write it;
// empty for anything else. Browsers show such fields in their own form.
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

// Ago is how far a moment is from now: "just now", "3 min ago", "in 2 h", "never" for zero.
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

func age(now, t time.Time) string {
	if t.IsZero() {
		return "not known"
	}
	return Span(max(now.Sub(t), 0))
}

// Span is a duration in its largest unit, rounded down: "42 s", "3 min", "5 h", "2 d".
func Span(d time.Duration) string {
	unit, name := 24*time.Hour, "d"
	switch {
	case d < time.Minute:
		unit, name = time.Second, "s"
	case d < time.Hour:
		unit, name = time.Minute, "min"
	case d < 48*time.Hour:
		unit, name = time.Hour, "h"
	}

	return fmt.Sprintf("%d %s", d/unit, name)
}

var english = message.NewPrinter(language.English)

// Count is a whole number with its thousands apart: "12,345".
func Count(n int64) string { return english.Sprint(n) }

func countOf(n any) (string, error) {
	if v := reflect.ValueOf(n); !v.CanInt() && !v.CanUint() {
		return "", fmt.Errorf("count: %T is no whole number", n)
	}
	return english.Sprintf("%d", n), nil
}

// Plural is a whole number with the word for one or for many.
func Plural(n any, one, many string) string {
	if text := english.Sprint(n); text != "1" {
		return text + " " + many
	}
	return "1 " + one
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

// share is one part of two with one decimal: "98.2 %"; empty when both are 0. All and
// nothing are only said when it is so.
func share(part, other int64) string {
	if part+other == 0 {
		return ""
	}

	tenths := math.Round(float64(part) * 1000 / float64(part+other))
	if part > 0 && other > 0 {
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

// Tone is the class of a state's colour; empty for a state without one.
func Tone(state any) string {
	if status, is := state.(delivery.Status); is {
		return cmp.Or(tones[status.String()], "accent")
	}
	return tones[fmt.Sprint(state)]
}

// Short is the first 8 characters of an id, which differ from its neighbours'.
func Short(id any) string {
	text := fmt.Sprint(id)
	return text[:min(len(text), 8)]
}

// Beginning is at most so many characters of a text.
func Beginning(text string, most int) string {
	n := 0
	for i := range text {
		n++
		if n > most {
			return text[:i]
		}
	}
	return text
}

// Shorten is Beginning, with a sign where something is left out.
func Shorten(text string, most int) string {
	if short := Beginning(text, most); short != text {
		return short + "…"
	}
	return text
}

// tail is the end of an event's id: versions of one order differ there.
func tail(id string) string { return "…" + id[max(0, len(id)-8):] }

// ISODay is the local day as addresses and inputs have it; empty for the zero time.
func ISODay(t time.Time) string { return local(t, time.DateOnly) }

// FleetState is what vendors see of a fleet, and why.
func FleetState(f *delivery.Fleet) string {
	switch {
	case f.Disabled:
		return "disabled"
	case f.Suspended:
		return "suspended"
	case f.Couriers == 0:
		return "no couriers"
	}
	return "available"
}

// keep is the class of a vendor's id that fits a cell, 17 Latin letters, and is not broken.
func keep(text string) string {
	foreign := func(c rune) bool { return c > unicode.MaxLatin1 && !unicode.Is(unicode.Latin, c) }
	if utf8.RuneCountInString(text) > 17 || strings.ContainsFunc(text, foreign) {
		return ""
	}
	return "keep"
}

var capital, beginning = regexp.MustCompile(`\B[A-Z]`), regexp.MustCompile(`^\pL`)

// fieldName is the API's name of a field in words: limits.orders.sustained.count is
// "Orders, sustained, requests".
func fieldName(name string) string {
	name = strings.TrimPrefix(name, "limits.")
	if limit, is := strings.CutSuffix(name, ".count"); is {
		name = limit + ".requests"
	}
	name = capital.ReplaceAllStringFunc(strings.NewReplacer(".", ", ", "_", " ").Replace(name), func(c string) string { return " " + strings.ToLower(c) })
	return beginning.ReplaceAllStringFunc(name, strings.ToUpper)
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
