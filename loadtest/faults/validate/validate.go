// Package validate checks the invariants of a system that went through faults. Clients record their operations,
// receivers what they got in an Inbox; Sources.Gather reads Redis and ClickHouse, and Check compares all of it. It
// reports only what no run of a correct system can explain: a request without an answer may have happened or not.
package validate

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
)

// Invariant is the fixed short name of one.
type Invariant string

// The invariants, by what a violation is called.
const (
	LostOrder         Invariant = "lost-order"         // a 201 whose order is not there
	DuplicateOrder    Invariant = "duplicate-order"    // two orders for one external id
	UnknownOrder      Invariant = "unknown-order"      // an order that no request explains
	OrderDiffers      Invariant = "order-differs"      // an order that is not what its request said
	KeyTwoOutcomes    Invariant = "key-two-outcomes"   // one idempotency key, two successes
	ReplayDiffers     Invariant = "replay-differs"     // a replay's bytes are not those of the first answer
	ServerError       Invariant = "server-error"       // a 500
	OverLimit         Invariant = "over-limit"         // more admitted in a window than the limit
	IllegalMove       Invariant = "illegal-move"       // a status that cannot follow the one before it
	StateLost         Invariant = "state-lost"         // a client was shown a state that the order never had
	StateBackwards    Invariant = "state-backwards"    // a client saw a later state and then an earlier one
	ReportLost        Invariant = "report-lost"        // what a fleet was acknowledged is neither in its order nor refused
	JobTakenTwice     Invariant = "job-taken-twice"    // two couriers were both answered that an order is theirs
	SettingLost       Invariant = "setting-lost"       // a setting is not what it was set to
	ReplayLost        Invariant = "replay-lost"        // an event whose replay was acknowledged did not come again
	VersionGap        Invariant = "version-gap"        // the versions of an order are not dense
	NotEnded          Invariant = "not-ended"          // an order that a courier should have ended
	IndexInconsistent Invariant = "index-inconsistent" // a timer or a list of jobs disagrees with an order
	EventLost         Invariant = "event-lost"         // a version that was never delivered and does not wait
	EventWrong        Invariant = "event-wrong"        // a webhook about what did not happen, or cannot be verified
	EventLate         Invariant = "event-late"         // sent more than 24 h after it happened
	EventUnordered    Invariant = "event-unordered"    // the next event before the first attempt of the one before
	EventTwice        Invariant = "event-twice"        // published, or settled, more than once
	HealthySlow       Invariant = "healthy-slow"       // a healthy receiver waited because of others
	ClickHouseDiffers Invariant = "clickhouse-differs" // ClickHouse FINAL is not what Redis has
	PendingLeft       Invariant = "pending-left"       // a group has not settled everything
	ScheduleLeft      Invariant = "schedule-left"      // events wait although their receiver is healthy
	DeadLettered      Invariant = "dead-lettered"      // an entry was given up
	Unreadable        Invariant = "unreadable"         // a record that cannot be read
	NotLinearizable   Invariant = "not-linearizable"   // no order of the operations explains the answers
	Crashed           Invariant = "crashed"            // a process ended by itself
	WrongFigure       Invariant = "wrong-figure"       // a figure of a round with a system of its own is not as wanted
)

// Violation is one invariant that does not hold.
type Violation struct {
	Invariant Invariant `json:"invariant"`
	Subjects  []string  `json:"subjects"` // ids of what it is about
	Text      string    `json:"says"`     // one sentence
}

// String returns the violation as one line of text.
func (v Violation) String() string {
	return fmt.Sprintf("%s [%s]: %s", v.Invariant, strings.Join(v.Subjects, " "), v.Text)
}

// Report counts what was checked.
type Report struct {
	Operations int
	Unknown    int // operations whose outcome their client could not see
	Replays    int // answered with Idempotent-Replayed
	Refusals   int // answered 4xx, and 503 FLEET_UNAVAILABLE
	Limited    int // those of them that were 429
	Reports    int // acknowledged to fleets
	Clerks     int // changes and looks at settings, and replays, that succeeded

	Orders   int // in Redis
	States   int // that these orders went through, creations included
	Rows     int // of ClickHouse that were compared
	Webhooks int // requests that reached a receiver
	Windows  int // limits of an account that were checked

	// Histories were searched for a linearization; for Undecided ones the search did not end in time.
	Histories int
	Undecided int
}

// Add adds the counts of another report to r.
func (r *Report) Add(o Report) {
	sum, more := reflect.ValueOf(r).Elem(), reflect.ValueOf(o)
	for i := range sum.NumField() { // all are integers
		sum.Field(i).SetInt(sum.Field(i).Int() + more.Field(i).Int())
	}
}

// A name is an external id or an idempotency key, of an account.
type name struct{ account, name string }

type check struct {
	facts      *Facts
	report     Report
	violations []Violation

	ops      []*Operation // of the accounts' vendors, by start
	fleetOps []*Operation // of fleets about the accounts' orders, by start
	clerkOps []*Operation // of the accounts' clerks, by start
	accounts map[string]*Account

	own      []*Order          // in Redis, of the accounts
	orders   map[string]*Order // in Redis, by id, those of other accounts too
	external map[name]*Order   // in Redis, by external id

	creates  map[name][]*Operation
	made     map[string][]*Operation // successful creates, by order id
	arrivals map[string][]*Arrival   // verified ones, by Subject
	// firstArrivals has when an attempt of an event was first seen by its receiver, by the event's id.
	firstArrivals map[string]time.Time
	attempts      map[string][]*Attempt // as recorded, by Subject
	remains       map[string]Remains    // by account
}

// Check compares ops, which must be all operations of the accounts in f since they were made, with f. It takes at most
// half a minute.
func Check(ops []Operation, f *Facts) (Report, []Violation) {
	c := index(ops, f)
	c.count()
	c.checkAcknowledged()
	c.checkKeys()
	c.checkStored()
	c.checkSeen()
	c.checkReports()
	c.checkTaken()
	c.checkSettings()
	c.checkReplays()
	c.checkWindows()
	c.checkArrivals()
	c.checkDelivered()
	c.checkLatency()
	c.checkPublished()
	c.checkArchive()
	c.checkAttempts()
	c.checkRemains()
	c.checkLinearizable()
	slices.SortStableFunc(c.violations, func(a, b Violation) int { return cmp.Compare(a.Invariant, b.Invariant) })

	return c.report, c.violations
}

// index returns a check of the facts with all its maps filled in. It takes only the operations of the accounts in f, sorted by
// start.
func index(ops []Operation, f *Facts) *check {
	c := &check{
		facts:         f,
		violations:    slices.Clone(f.Found),
		accounts:      make(map[string]*Account),
		orders:        make(map[string]*Order),
		external:      make(map[name]*Order),
		creates:       make(map[name][]*Operation),
		made:          make(map[string][]*Operation),
		arrivals:      make(map[string][]*Arrival),
		firstArrivals: make(map[string]time.Time),
		attempts:      make(map[string][]*Attempt),
		remains:       make(map[string]Remains),
	}

	for _, a := range f.Accounts {
		c.accounts[a.ID] = &a
	}

	sorted := slices.SortedStableFunc(slices.Values(ops), func(a, b Operation) int {
		return a.Start.Compare(b.Start)
	})
	for _, op := range sorted {
		if c.accounts[op.Account] == nil {
			continue
		}

		if op.Kind.isByFleet() {
			c.fleetOps = append(c.fleetOps, &op)
			continue
		}

		if op.Kind.isByClerk() {
			c.clerkOps = append(c.clerkOps, &op)
			continue
		}

		c.ops = append(c.ops, &op)
		if op.Kind == Create {
			external := name{op.Account, op.External}
			c.creates[external] = append(c.creates[external], &op)
			if op.OK() {
				c.made[op.Order] = append(c.made[op.Order], &op)
			}
		}
	}

	for _, o := range f.Orders {
		external := name{o.Account, o.External}
		if c.accounts[o.Account] != nil {
			c.own = append(c.own, &o)
			if other := c.external[external]; other != nil {
				c.violated(DuplicateOrder, []string{other.ID, o.ID}, "Redis has two orders for external id %q", o.External)
			}
		}
		c.orders[o.ID], c.external[external] = &o, &o
	}

	arrivals := slices.SortedStableFunc(slices.Values(f.Arrivals), func(a, b Arrival) int {
		return a.Began.Compare(b.Began)
	})
	for _, a := range arrivals {
		_, isLater := c.firstArrivals[a.EventID]
		if !isLater {
			c.firstArrivals[a.EventID] = a.Began
		}
		if at := subjectOf(a.EventID); at != "" && a.Invalid == "" {
			c.arrivals[at] = append(c.arrivals[at], &a)
		}
	}

	for _, w := range f.Remains {
		c.remains[w.Account] = w
	}

	for _, a := range f.Archive.Attempts {
		if at := subjectOf(a.EventID); at != "" {
			c.attempts[at] = append(c.attempts[at], &a)
		}
	}

	return c
}

func subjectOf(eventID string) string {
	id, version, err := delivery.ParseEventID(eventID)
	if err != nil {
		return ""
	}
	return Subject(id.String(), delivery.Sequence(version))
}

func (c *check) violated(i Invariant, subjects []string, format string, args ...any) {
	c.violations = append(c.violations, Violation{i, subjects, fmt.Sprintf(format, args...)})
}

func (c *check) about(subject string, i Invariant, format string, args ...any) {
	c.violated(i, []string{subject}, format, args...)
}

func (c *check) count() {
	r, a := &c.report, &c.facts.Archive
	operations := slices.Concat(c.ops, c.fleetOps, c.clerkOps)
	r.Operations, r.Webhooks, r.Rows = len(operations), len(c.facts.Arrivals), len(a.Orders)+len(a.Steps)+len(a.Attempts)
	for _, op := range operations {
		switch {
		case op.Unknown():
			r.Unknown++
		case !op.OK():
			r.Refusals++
		case op.Replayed:
			r.Replays++
		}

		if op.Status == 429 {
			r.Limited++
		}

		if op.Kind.isByFleet() && op.OK() {
			r.Reports++
		}

		if op.Kind.isByClerk() && op.OK() {
			r.Clerks++
		}

		if op.Status == 500 {
			c.about(cmp.Or(op.Order, op.External, op.Event, op.Account), ServerError, "a %s was answered 500 %s", op.Kind, op.Code)
		}
	}

	r.Orders = len(c.own)
	for _, o := range c.own {
		r.States += 1 + len(o.Changes)
	}
}
