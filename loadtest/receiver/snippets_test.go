package receiver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/loadtest/receiver/snippets"
)

// arrival is one webhook for the snippets, and what a receiver makes of it:
// the status that it answers, and what it knows of the orders then.
type arrival struct {
	Secrets []string          `json:"secrets"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body"`
	want    string
}

// arrivals are a sequence: every language must reach the same result.
type arrivals struct {
	list []arrival
	at   time.Time // of the machine, because the snippets look at its clock
}

// add signs m as it is and changes it then, as somebody in between might.
func (a *arrivals) add(want string, m message, change func(*arrival)) {
	m.at = m.at.Add(a.at.Sub(now))
	c := arrival{Secrets: []string{secret}, Headers: map[string]string{}, Body: []byte(m.body), want: want}
	for name, values := range m.headers() {
		c.Headers[strings.ToLower(name)] = values[0]
	}

	if change != nil {
		change(&c)
	}

	a.list = append(a.list, c)
}

const (
	stranger = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	ownName  = "x-service-signature"
	// standardName is the header of Standard Webhooks.
	standardName = "webhook-signature"
)

// forgeries are what must not be believed, and how it is made from a webhook
// that is valid.
func (a *arrivals) forgeries() {
	valid := statusChanged("forged", "o9", "Delivered", now)
	forge := func(change func(*arrival)) { a.add("401", valid, change) }
	forge(func(c *arrival) { c.Body = append(c.Body, ' ') })
	forge(func(c *arrival) { c.Body = bytes.Replace(c.Body, []byte("Delivered"), []byte("Cancelled"), 1) })
	forge(func(c *arrival) { c.Body = []byte{} })
	forge(func(c *arrival) { c.Secrets = []string{stranger} })
	forge(func(c *arrival) { c.Secrets = []string{} })
	forge(func(c *arrival) { c.Headers["webhook-id"] = "evt_2" })
	forge(func(c *arrival) { c.Headers[ownName] = strings.ToUpper(c.Headers[ownName]) })
	forge(func(c *arrival) { c.Headers[ownName] = strings.TrimPrefix(c.Headers[ownName], "sha256=") })
	forge(func(c *arrival) { c.Headers[standardName] = strings.Replace(c.Headers[standardName], "v1,", "v1a,", 1) })
	forge(func(c *arrival) { c.Headers[standardName] = "v1,AAAA v2," + c.Headers[standardName][3:] })
	for _, name := range []string{ownName, "webhook-id", "webhook-timestamp", standardName} {
		forge(func(c *arrival) { delete(c.Headers, name) })
		for _, value := range []string{"", "é", "²", "soon", "NaN", "1e9", "-1", strings.Repeat("9", 5000), "é" + strings.Repeat("0", 70)} {
			forge(func(c *arrival) { c.Headers[name] = value })
		}
		forge(func(c *arrival) { c.Headers[name] = "é" + c.Headers[name][1:] }) // as long in characters, not in bytes
	}

	// The bound is 5 minutes; what comes from the future gets older until it is read.
	for _, off := range []time.Duration{-time.Hour, -305 * time.Second, 6 * time.Minute, time.Hour} {
		m := valid
		m.at = now.Add(off)
		a.add("401", m, nil)
	}
}

// newArrivals is a day of a receiver: order o1 goes its way with every trouble
// that the spec announces ("Delivery rules"), the others follow.
func newArrivals() *arrivals {
	a := &arrivals{at: time.Now()}
	later := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	turkish := statusChanged("e1", "o1", "Assigned", later(10))
	turkish.body = strings.Replace(turkish.body, "E-1", "Kadıköy ☕", 1)
	a.add("204 o1=Assigned", turkish, nil)
	a.add("204 o1=Assigned", turkish, nil) // again
	a.forgeries()
	for i := range a.list[2:] {
		a.list[2+i].want += " o1=Assigned"
	}

	a.add("204 o1=PickedUp", statusChanged("e3", "o1", "PickedUp", later(30)), nil)
	a.add("204 o1=PickedUp", statusChanged("e2", "o1", "PickingUp", later(20)), nil)    // overtaken
	a.add("204 o1=PickedUp", statusChanged("e1b", "o1", "PickingUp", later(30)), nil)   // a skipped step, of the same time
	a.add("204 o1=Delivering", statusChanged("e4", "o1", "Delivering", later(30)), nil) // likewise, and ahead
	repeated := statusChanged("e4", "o1", "Searching", later(99))
	a.add("204 o1=Delivering", repeated, nil) // an eventId counts once, whatever it carries
	zone := statusChanged("e5", "o1", "Delivered", later(31).In(time.FixedZone("", 3*3600)))
	a.add("204 o1=Delivered", zone, nil) // 15:00:31+03:00 is later than 12:00:30Z
	a.add("204 o1=Delivered", statusChanged("e6", "o1", "Assigned", later(-3600)), nil)
	known := "204 o1=Delivered"
	for _, event := range []string{"store.activated", "fleet.payment_overdue", "webhook.test", "nobody.knows"} {
		for i, data := range []string{`{"status":"Active"}`, `{"orderId":7,"status":[]}`, `[1]`, `null`} { // whatever it carries
			id := fmt.Sprint(event, i)
			a.add(known, message{id: id, event: event, attempt: "1", at: now,
				body: fmt.Sprintf(`{"eventId":%q,"event":%q,"occurredAt":"2026-11-21T15:00:00.000+03:00","data":%s}`, id, event, data)}, nil)
		}
	}

	for _, body := range []string{"", "{", "null", "[]", "7", `"e7"`, "{}",
		`{"eventId":"e7","event":"x","occurredAt":"at noon","data":{}}`} {
		a.add("400 o1=Delivered", message{id: "e7", event: "x", attempt: "1", at: now, body: body}, nil)
	}

	a.add(known+" o2=Searching", statusChanged("e8", "o2", "Searching", later(0)), func(c *arrival) { c.Secrets = []string{stranger, secret} })
	a.add(known+" o2=Assigned", statusChanged("e9", "o2", "Assigned", later(1)), func(c *arrival) { // signed with two secrets
		c.Headers[standardName] = "v1,AAAA " + c.Headers[standardName]
	})
	a.add(known+" o2=Failed", statusChanged("e10", "o2", "Failed", later(2)), func(c *arrival) {
		c.Secrets, c.Headers[standardName] = []string{secret, stranger}, c.Headers[standardName]+" v1,AAAA"
	})
	early, late := statusChanged("e11", "o3", "Searching", later(0)), statusChanged("e12", "o3", "Cancelled", later(1))
	early.at, late.at = now.Add(-290*time.Second), now.Add(290*time.Second) // clocks differ
	a.add(known+" o2=Failed o3=Searching", early, nil)
	a.add(known+" o2=Failed o3=Cancelled", late, nil)

	return a
}

func (a *arrivals) lines(t *testing.T) (input []byte, want string) {
	t.Helper()
	for _, c := range a.list {
		line, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		input = append(append(input, line...), '\n')
		want += c.want + "\n"
	}

	return input, want
}

//rule:authentication/5 delivery-rules/3 delivery-rules/4 delivery-rules/5
func TestSnippets_Go(t *testing.T) {
	a := newArrivals()
	_, want := a.lines(t)
	r := &snippets.Receiver{Seen: map[string]bool{}, Orders: map[string]snippets.Order{}}
	got := ""
	for _, c := range a.list {
		req := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(c.Body))
		for name, value := range c.Headers {
			req.Header.Set(name, value)
		}

		answer := httptest.NewRecorder()
		r.Secrets = c.Secrets
		r.ServeHTTP(answer, req)
		words := []string{}
		for id, order := range r.Orders {
			words = append(words, id+"="+order.Status)
		}

		slices.Sort(words)
		got += strings.Join(append([]string{fmt.Sprint(answer.Code)}, words...), " ") + "\n"
	}

	compare(t, got, want)
}

// compare shows the lines that differ.
func compare(t *testing.T, got, want string) {
	t.Helper()
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Errorf("line %d: got %q, want %q", i+1, a[min(i, len(a)-1)], b[min(i, len(b)-1)])
			if i >= len(a) || i >= len(b) {
				return
			}
		}
	}
}
