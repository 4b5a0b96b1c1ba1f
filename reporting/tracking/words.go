package tracking

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/auth"
)

// words are all texts of the pages in one language, from page/en.json and its like. A
// failure's text says what the holder of a link may know, which is not that it was about money.
type words struct {
	Language string
	Text     map[string]string
	Statuses map[string]statusWords // by name
	Failures map[delivery.FailureReason]string
	Vehicles map[string]string // by lower-case name; others are shown as given
	Notices  map[result]notice
	Months   [12]string
}

// statusWords name a state in the timeline and in a headline, and explain it.
type statusWords struct{ Step, Headline, Detail string }

// notice is a page without an order.
type notice struct{ Title, Text string }

var english, turkish = readWords("en.json"), readWords("tr.json")

func readWords(name string) *words {
	w := new(words)
	d := json.NewDecoder(bytes.NewReader(parsed(files.ReadFile("page/" + name))))
	d.DisallowUnknownFields()
	return parsed(w, d.Decode(w))
}

// wordsFor chooses by Accept-Language; English when it asks for neither.
func wordsFor(r *http.Request) *words {
	if auth.Language(r) == turkish.Language {
		return turkish
	}
	return english
}

func (w *words) status(s delivery.Status) statusWords { return w.Statuses[s.String()] }

func (w *words) format(name string, args ...any) string { return fmt.Sprintf(w.Text[name], args...) }

// failure is the reason in words; an unknown one is some other.
func (w *words) failure(r delivery.FailureReason) string {
	return cmp.Or(w.Failures[r], w.Failures[delivery.OtherFailure])
}

func (w *words) vehicle(name string) string {
	return cmp.Or(w.Vehicles[strings.ToLower(name)], name)
}

// clock is the local time of day, with the day when that is not today.
func (w *words) clock(t, now time.Time) string {
	t, now = t.In(delivery.Istanbul), now.In(delivery.Istanbul)
	text := t.Format("15:04")
	if t.YearDay() != now.YearDay() || t.Year() != now.Year() {
		text = fmt.Sprintf("%d %s %s", t.Day(), w.Months[t.Month()-1], text)
	}
	return text
}

// age is how long ago something was; the future is now.
func (w *words) age(d time.Duration) string {
	switch {
	case d < 5*time.Second:
		return w.Text["Now"]
	case d < time.Minute:
		return w.format("SecondsAgo", int(d.Seconds()))
	case d < time.Hour:
		return w.format("MinutesAgo", int(d.Minutes()))
	}
	return w.format("HoursAgo", int(d.Hours()))
}

// until is how long it takes until the estimate; a minute late is not late.
func (w *words) until(d time.Duration) string {
	switch {
	case d < -2*time.Minute:
		return w.Text["Late"]
	case d < 90*time.Second:
		return w.Text["Soon"]
	}
	minutes := int(d.Round(time.Minute).Minutes())
	if minutes < 90 {
		return w.format("Minutes", minutes)
	}
	return w.format("Hours", minutes/60, minutes%60)
}

// distance is metres in hundreds, or kilometres with a decimal below 10.
func (w *words) distance(metres float64) string {
	hundreds := int(metres/100 + 0.5)
	switch {
	case hundreds < 10:
		return strconv.Itoa(hundreds*100) + " m"
	case hundreds < 100:
		return strconv.Itoa(hundreds/10) + w.Text["Decimal"] + strconv.Itoa(hundreds%10) + " km"
	}
	return strconv.Itoa((hundreds+5)/10) + " km"
}
