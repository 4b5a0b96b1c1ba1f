package tracking

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"

	"vendorapi/internal/delivery"
)

// words are all texts of the pages in one language, from page/en.json and its
// like. Formats stand where a figure does. A failure's text says what the holder of
// a link may know: that money was the matter is the recipient's.
type words struct {
	Language string
	Page     string // the page's name, for the browser's tab

	Statuses map[string]statusWords // by name
	Failures map[delivery.FailureReason]string
	Vehicles map[string]string // by lower-case name; others are shown as given

	Timeline, Courier, Fleet, Map            string
	Store, Dropoff, CourierHere              string // the map's legend
	PickupAt, DropoffAt, DeliveredAt, EndsAt string
	Ahead                                    string // of an order whose package is ready later
	Soon, Minutes, Hours, Late               string // how long until the estimate
	CourierAway, CourierNear                 string // from the delivery area
	CourierFromStore, CourierAtStore         string
	Position                                 string // age of the courier's position
	NotKnownYet                              string // a step still to come, for who hears the page
	Reached, Present                         string
	AskStore                                 string
	Updated, ByItself, Lost, Reload          string
	Privacy                                  string

	Now, SecondsAgo, MinutesAgo, HoursAgo string
	Decimal                               string
	Months                                [12]string

	Unknown, Expired, Unavailable, Broken, ReadOnly notice
}

// statusWords name a state in the timeline, say it as a headline, and explain it.
type statusWords struct{ Step, Headline, Detail string }

// notice is a page without an order.
type notice struct{ Title, Text string }

var (
	english, turkish = readWords("en.json"), readWords("tr.json")

	languages = language.NewMatcher([]language.Tag{language.English, language.Turkish})
	tables    = []*words{english, turkish} // as in the matcher
)

func readWords(name string) *words {
	w := new(words)
	d := json.NewDecoder(bytes.NewReader(file(name)))
	d.DisallowUnknownFields()
	return parsed(w, d.Decode(w))
}

func (w *words) status(s delivery.Status) statusWords { return w.Statuses[s.String()] }

// longestHeader is more than any browser's Accept-Language.
const longestHeader = 512

// wordsFor chooses by Accept-Language; English when it asks for neither.
func wordsFor(r *http.Request) *words {
	asked := r.Header.Get("Accept-Language")
	if len(asked) > longestHeader {
		return english
	}
	tags, _, err := language.ParseAcceptLanguage(asked)
	if err != nil {
		return english
	}
	_, i, _ := languages.Match(tags...)
	return tables[i]
}

// failure is the reason in words; one that this page does not know yet is some
// other.
func (w *words) failure(r delivery.FailureReason) string {
	if text, known := w.Failures[r]; known {
		return text
	}
	return w.Failures[delivery.OtherFailure]
}

func (w *words) vehicle(name string) string {
	if text, known := w.Vehicles[strings.ToLower(name)]; known {
		return text
	}
	return name
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
		return w.Now
	case d < time.Minute:
		return fmt.Sprintf(w.SecondsAgo, int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf(w.MinutesAgo, int(d.Minutes()))
	}
	return fmt.Sprintf(w.HoursAgo, int(d.Hours()))
}

// until is how long it takes until the estimate; a minute late is not late.
func (w *words) until(d time.Duration) string {
	switch {
	case d < -2*time.Minute:
		return w.Late
	case d < 90*time.Second:
		return w.Soon
	}
	minutes := int(d.Round(time.Minute).Minutes())
	if minutes < 90 {
		return fmt.Sprintf(w.Minutes, minutes)
	}
	return fmt.Sprintf(w.Hours, minutes/60, minutes%60)
}

// distance is metres in hundreds, or kilometres with a decimal below 10.
func (w *words) distance(metres float64) string {
	hundreds := int(metres/100 + 0.5)
	switch {
	case hundreds < 10:
		return strconv.Itoa(hundreds*100) + " m"
	case hundreds < 100:
		return strconv.Itoa(hundreds/10) + w.Decimal + strconv.Itoa(hundreds%10) + " km"
	}
	return strconv.Itoa((hundreds+5)/10) + " km"
}
