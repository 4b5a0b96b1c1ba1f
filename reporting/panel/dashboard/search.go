package dashboard

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"vendorapi/internal/delivery"
)

// Bounds of a search.
const (
	pageRows  = 50
	mostText  = 128 // characters of what is searched for
	firstDays = 1   // without a text
	textDays  = 7   // with one
)

// periods are how many days a search may go back.
var periods = []int{1, 7, 30, 90, 366}

// search is what an operator looks for.
type search struct {
	text    string             // order id's beginning, external order id, store id, or part of a store's name; empty: all
	account delivery.AccountID // zero: all
	status  delivery.Status    // 0: all
	open    bool               // those that have not ended
	days    int
	since   time.Time
	until   time.Time
	after   *cursor // nil: the first page
}

// cursor is the last order of the page before.
type cursor struct {
	created time.Time
	order   delivery.OrderID
}

// parseSearch reads the parameters. What is wrong with them is told field by
// field; the rest of the search stands.
func parseSearch(q url.Values, now time.Time) (*search, error) {
	s := &search{text: clean(q.Get("q")), until: now.Add(24 * time.Hour), days: firstDays}
	if s.text != "" {
		s.days = textDays
	}
	var faults []delivery.FieldError
	fault := func(field, message string) {
		faults = append(faults, delivery.FieldError{Field: field, Message: message})
	}
	if utf8.RuneCountInString(s.text) > mostText {
		fault("q", fmt.Sprintf("must have at most %d characters", mostText))
		s.text = ""
	}
	var err error
	if text := clean(q.Get("account")); text != "" {
		if s.account, err = delivery.ParseAccountID(text); err != nil {
			fault("account", "must be an account's id, a UUID of 36 characters")
		}
	}
	switch text := q.Get("status"); text {
	case "":
	case openStatus:
		s.open = true
	default:
		if s.status, err = delivery.ParseStatus(text); err != nil {
			fault("status", "is no status of an order")
		}
	}
	if text := q.Get("days"); text != "" {
		if days, err := strconv.Atoi(text); err != nil || days < 1 || days > periods[len(periods)-1] {
			fault("days", fmt.Sprintf("must be a number of days, 1 to %d", periods[len(periods)-1]))
		} else {
			s.days = days
		}
	}
	if text := q.Get("after"); text != "" {
		if s.after, err = parseCursor(text); err != nil {
			fault("after", "is no place in this list; begin again without it")
		}
	}
	s.since = now.Add(-time.Duration(s.days) * 24 * time.Hour)
	if len(faults) > 0 {
		return s, &delivery.Error{Code: delivery.CodeValidationFailed, Message: "this search cannot be understood", Fields: faults}
	}
	return s, nil
}

// openStatus asks for all states before the end.
const openStatus = "open"

// clean removes what copying brings along: control characters, and around the
// text also white space and what is not to be seen.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return strings.TrimFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) })
}

// named is the order that the text names by its id or by that of one of its
// events; false when it names none.
func (s *search) named() (delivery.OrderID, bool) {
	if id, err := delivery.ParseOrderID(strings.ToLower(s.text)); err == nil {
		return id, true
	}
	id, _, err := delivery.ParseEventID(s.text)
	return id, err == nil
}

// idPrefix is the beginning of an order's id, as lists show it, if the text is
// one: 8 hexadecimal digits, then maybe more of the id or the sign that it goes on.
var idPrefix = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F-]{0,27})?…?$`)

// prefix is that beginning; empty: the text is none.
func (s *search) prefix() string {
	if !idPrefix.MatchString(s.text) {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(s.text, "…"))
}

// holds tells whether a row belongs to what is looked for, the text and the
// period aside: those of Redis are found by the whole external id, however old.
func (s *search) holds(o *orderRow) bool {
	switch {
	case !s.account.IsZero() && o.Account != s.account,
		s.status != 0 && o.Status != s.status,
		s.open && o.Status.Terminal(),
		s.after != nil && !s.after.before(o):
		return false
	}
	return true
}

// before tells whether a row comes after the cursor's in the list.
func (c *cursor) before(o *orderRow) bool {
	if created := o.Created.UnixMilli() - c.created.UnixMilli(); created != 0 {
		return created < 0
	}
	return o.ID.String() < c.order.String()
}

const cursorSize = 8 + len(delivery.OrderID{})

func (c *cursor) String() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(c.created.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(b, c.order[:]...))
}

func parseCursor(text string) (*cursor, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != cursorSize {
		return nil, fmt.Errorf("%q is no place in a list", text)
	}
	c := &cursor{created: time.UnixMilli(int64(binary.BigEndian.Uint64(b)))}
	copy(c.order[:], b[8:])
	if year := c.created.Year(); year < 1970 || year > 2200 {
		return nil, fmt.Errorf("%q lies in the year %d", text, year)
	}
	return c, nil
}

// address is where the search leads, from another place in the list on.
func (s *search) address(after *cursor) string {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("q", s.text)
	if !s.account.IsZero() {
		set("account", s.account.String())
	}
	set("status", s.statusValue())
	set("days", strconv.Itoa(s.days))
	if after != nil {
		set("after", after.String())
	}
	return "/orders?" + q.Encode()
}

func (s *search) statusValue() string {
	switch {
	case s.open:
		return openStatus
	case s.status != 0:
		return s.status.String()
	}
	return ""
}

// redirected answers a search by an order's or an event's id.
func (s *search) redirected(w http.ResponseWriter, r *http.Request) bool {
	id, ok := s.named()
	if ok {
		http.Redirect(w, r, "/orders/"+id.String(), http.StatusFound)
	}
	return ok
}
