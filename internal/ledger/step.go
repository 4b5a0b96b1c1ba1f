package ledger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
)

// ErrNotOwner says that the partition has another owner, or none.
var ErrNotOwner = errors.New("the partition has another owner")

// Step is what the owner of a partition changes at once, all or nothing.
type Step struct {
	Token     Token              // as it will be; the owner sets how far it has got
	Batch     string             // the entry with the step's events, once it is written; empty: it has none
	Conflicts []delivery.OrderID // of ErrConflict: these were changed since they were read
	Published []*Delivery        // the batch's events for webhooks

	ledger     *core
	activity   *activityCounts
	partition  partition
	was        string
	conditions []any // four each
	changes    []any // five each
	commands   []any
	orders     [2][]delivery.OrderID // of the conditions and the changes
	events     []byte
	ended      []any
	reached    []delivery.Status
	outcomes   []byte
	tries      []byte
	timers     []any            // of orders that may have none: score, member
	adds       map[string][]any // members to add to sorted sets, by key: score, member
	removes    map[string][]any

	// eventsByAccount has the events of each account, for its replays.
	eventsByAccount map[delivery.AccountID][]byte
}

// Step begins a step of the owner that has the token.
func (l *Ownership) Step(partition int, token Token) *Step {
	s := &Step{ledger: l.core, activity: l.limits.activity, partition: l.partitions[partition], was: string(token.Stored()), Token: token,
		eventsByAccount: make(map[delivery.AccountID][]byte), adds: make(map[string][]any), removes: make(map[string][]any)}
	s.Token.Sequence++
	return s
}

// command adds a command of Redis; its keys are the partition's.
func (s *Step) command(words ...any) {
	s.commands = append(append(s.commands, len(words)), words...)
}

// condition lets the step fail unless the bytes of an order's record are as given.
func (s *Step) condition(id delivery.OrderID, first int, bytes []byte) {
	s.conditions = append(s.conditions, s.partition.order(id.Digest()), first, first+len(bytes)-1, bytes)
	s.orders[0] = append(s.orders[0], id)
}

// Offsets in an order's head: what a report notes.
const (
	orderReportedAt      = 2
	orderVersionAt       = 4
	orderCourierUpdateAt = 44
)

// List puts a new order on its fleet's list of jobs, and sets its first timer.
func (s *Step) List(o *NewOrder) {
	s.condition(o.ID, orderVersionAt, binary.BigEndian.AppendUint64(nil, o.version))
	s.add(s.partition.jobs(delivery.Searching, o.fleet), o.created, o.ID)
	s.add(s.partition.key(kindTimers), o.created.Add(firstTimerAfter), o.ID)
}

func (s *Step) add(key string, at time.Time, id delivery.OrderID) {
	s.adds[key] = append(s.adds[key], millis(at), orderMember(id))
}

func (s *Step) remove(key string, id delivery.OrderID) {
	s.removes[key] = append(s.removes[key], orderMember(id))
}

// Change appends changes, one at least, to an order as it was read. Each is one version and one event.
func (s *Step) Change(o *delivery.Order, changes []delivery.Change) {
	now, version := s.ledger.Now(), o.Version
	var entries []byte
	for i := range changes {
		c := &changes[i]
		version = delivery.NextVersion(version, now, uint16(rand.Uint32()))
		c.Version = version
		entries = appendChange(entries, c)
		s.events = appendOrderEvent(s.events, o.ID, c.Version, c.Kind)
		s.eventsByAccount[o.Account] = appendOrderEvent(s.eventsByAccount[o.Account], o.ID, c.Version, c.Kind)
	}

	last := &changes[len(changes)-1]
	after := *o
	after.Changes = append(slices.Clip(o.Changes), changes...)
	after.Status, after.Version = last.Status, last.Version
	for i := range changes {
		after.Reach(&changes[i])
	}

	var head []byte
	head = binary.BigEndian.AppendUint64(head, last.Version)
	head = binary.BigEndian.AppendUint64(head, uint64(millis(last.At)))
	head = binary.BigEndian.AppendUint32(head, estimateOf(o.CreatedAt, after.ToldDropoff()))
	s.changes = append(s.changes, s.partition.order(o.ID.Digest()), binary.BigEndian.AppendUint64(nil, o.Version), []byte{byte(last.Status)}, head, entries)
	s.orders[1] = append(s.orders[1], o.ID)

	if last.Status != o.Status {
		s.move(o, changes)
		s.reached = append(s.reached, last.Status)
	}

	for i := range changes {
		if changes[i].Kind.EventType() != "" {
			s.Published = append(s.Published, ofOrder(&after, changes[i].Version))
		}
	}
}

// move keeps what follows from an order's status: the list of jobs, the timer, the list of those
// that have ended.
func (s *Step) move(o *delivery.Order, changes []delivery.Change) {
	last := changes[len(changes)-1]
	s.remove(s.partition.jobs(o.Status, o.Fleet.ID), o.ID)
	if last.Status.Terminal() {
		s.remove(s.partition.key(kindTimers), o.ID)
		s.ended = append(s.ended, orderMember(o.ID))
		return
	}

	s.add(s.partition.jobs(last.Status, o.Fleet.ID), last.At, o.ID)
	// The order has a timer unless it was moved before it was listed. It may be early.
	s.timers = append(s.timers, millis(o.CreatedAt.Add(firstTimerAfter)), orderMember(o.ID))
}

// TimeOut is Change of an order of which nothing may have been reported since it was read.
func (s *Step) TimeOut(o *delivery.Order, change delivery.Change) {
	s.condition(o.ID, orderReportedAt, []byte{byte(o.Reported)})
	s.condition(o.ID, orderCourierUpdateAt, binary.BigEndian.AppendUint64(nil, uint64(millis(o.LastCourierUpdate))))
	s.Change(o, []delivery.Change{change})
}

// Postpone sets the timer of an order; zero removes it.
func (s *Step) Postpone(id delivery.OrderID, until time.Time) {
	if until.IsZero() {
		s.remove(s.partition.key(kindTimers), id)
	} else {
		s.add(s.partition.key(kindTimers), until, id)
	}
}

// Refuse keeps a forbidden update for the panel, but for the courier's position, which may be the
// recipient's door: no time ends these entries. late: a delivery.LateDelivery, of which one
// event informs finance.
func (s *Step) Refuse(u *delivery.Update, status delivery.Status, reason string, late bool) {
	kept := *u
	kept.Location = delivery.Location{}
	fields := []any{"u", encodeUpdate(&kept), "status", byte(status), "reason", reason}
	if late {
		fields = append(fields, "late", "1")
		s.events = append(append(s.events, eventLate), orderMember(u.Order)...)
		s.events = append(binary.BigEndian.AppendUint64(s.events, uint64(millis(u.At))), 0)
	}

	s.keep(kindRefused, fields)
}

// DeadLetter keeps an entry that could not be read or decided.
func (s *Step) DeadLetter(e Unreadable, role Role) {
	values := e.values[:min(len(e.values), wordsAtOnce/2)] // names and values by turns
	s.keep(kindDeadLetters, append([]any{"stream", s.partition.key(e.kind), "entry", e.ID, "role", string(role), "reason", e.Reason}, values...))
}

// fieldPrefix begins the names of a dead-lettered entry's own fields.
const fieldPrefix = "field-"

func (s *Step) keep(kind byte, fields []any) {
	s.command(append([]any{"XADD", s.partition.key(kind), "MAXLEN", "~", refusedKept, "*"}, fields...)...)
}

// Positions tells the readers of groups how far the owner has got.
func (s *Step) Positions(read Counts) {
	s.position(RoleStatus, kindEvents, s.Token.Events, read.Events)
	s.position(RoleStatus, kindUpdates, s.Token.Updates, read.Updates)
	s.position(RoleWebhook, kindEvents, s.Token.Webhooks, read.Webhooks)
}

func (s *Step) position(role Role, kind byte, id string, read int64) {
	words := []any{"XGROUP", "SETID", s.partition.key(kind), string(role), id}
	if read >= 0 {
		words = append(words, "ENTRIESREAD", read)
	}
	s.command(words...)
}

// Empty reports whether the step writes nothing but the token.
func (s *Step) Empty() bool {
	return len(s.commands)+len(s.outcomes)+len(s.tries)+len(s.changes)+len(s.events)+len(s.adds)+len(s.removes) == 0
}

// wordsAtOnce is less than Lua can spread.
const wordsAtOnce = 4000

func (s *Step) call() call {
	for key, members := range s.adds {
		for page := range slices.Chunk(members, wordsAtOnce) {
			s.command(append([]any{"ZADD", key}, page...)...)
		}
	}

	for page := range slices.Chunk(s.timers, wordsAtOnce) {
		s.command(append([]any{"ZADD", s.partition.key(kindTimers), "NX"}, page...)...)
	}

	for key, members := range s.removes { // after adds: a new order may leave its list in the same step
		for page := range slices.Chunk(members, wordsAtOnce) {
			s.command(append([]any{"ZREM", key}, page...)...)
		}
	}

	s.publish()
	args := []any{s.was, string(s.Token.Stored()), s.partition.prefix, s.events, len(s.conditions) / 4, len(s.changes) / 5, len(s.ended), len(s.eventsByAccount)}
	var accountEvents []any
	for account, events := range s.eventsByAccount {
		accountEvents = append(accountEvents, account[:], events)
	}

	for _, part := range [][]any{s.conditions, s.changes, s.ended, accountEvents, s.commands} {
		args = append(args, part...)
	}

	return call{keys: []string{s.partition.key(kindOwner), s.partition.key(kindEvents)}, args: args}
}

// renews reports whether the step does nothing but replace the owner's token by its next one.
func (s *Step) renews() bool {
	return s.Empty() && len(s.conditions)+len(s.ended)+len(s.eventsByAccount) == 0
}

// Advance writes steps of several partitions in one round trip. result[i] is nil, ErrNotOwner,
// ErrConflict with the step's Conflicts, or another error: then it is not known whether the step
// was written, and the owner must read again how far it has got.
//
// On a single server the steps that write nothing but the token share calls of renew_tokens, so that
// a worker's idle partitions cost one call and not one each. Each token is still compared and
// replaced by itself: an idle partition is fenced, lost and taken over like any other.
func (l *Ownership) Advance(ctx context.Context, steps []*Step) (result []error) {
	calls, stepsOf := l.advances(steps)
	replies, _ := l.runAll(ctx, advance, calls) // each reply has its own error

	result = make([]error, len(steps))
	for c, reply := range replies {
		values, _ := reply.Val().([]any)
		for n, i := range stepsOf[c] {
			switch {
			case reply.Err() != nil:
				result[i] = fmt.Errorf("partition %d: %w", steps[i].partition.number, failure(reply.Err()))
			case calls[c].file != renewTokens:
				result[i] = steps[i].read(advance, values)
			case n < len(values):
				result[i] = steps[i].read(renewTokens, values[n:n+1])
			default:
				result[i] = unreadable(renewTokens)
			}
		}
	}

	return result
}

// The scripts that write steps.
const (
	advance     = "advance"
	renewTokens = "renew_tokens" // of steps that write nothing but the token
)

// keysAtOnce bounds the keys of one script call over many partitions, so that it blocks Redis for less
// than 1 ms.
const keysAtOnce = 256

// advances makes the calls that write the steps. stepsOf are the places of each call's steps.
func (l *Ownership) advances(steps []*Step) (calls []call, stepsOf [][]int) {
	var renewals []int
	for i, s := range steps {
		if s.renews() && !l.cluster {
			renewals = append(renewals, i)
			continue
		}
		calls, stepsOf = append(calls, s.call()), append(stepsOf, []int{i})
	}

	for page := range slices.Chunk(renewals, keysAtOnce) {
		renewal := call{file: renewTokens}
		for _, i := range page {
			s := steps[i]
			renewal.keys = append(renewal.keys, s.partition.key(kindOwner))
			renewal.args = append(renewal.args, s.was, string(s.Token.Stored()))
		}
		calls, stepsOf = append(calls, renewal), append(stepsOf, page)
	}

	return calls, stepsOf
}

// read takes what a script, advance or renew_tokens, has answered about the step.
func (s *Step) read(script string, values []any) error {
	if len(values) == 0 {
		return unreadable(script)
	}

	switch name := text(values[0]); name {
	case "done":
		if len(values) > 1 {
			s.Batch = text(values[1])
		}
		for _, status := range s.reached {
			s.activity.reached(status)
		}
		return nil
	case "lost":
		return ErrNotOwner
	case "conflict":
		orders := slices.Concat(s.orders[0], s.orders[1])
		for _, place := range values[1:] {
			s.Conflicts = append(s.Conflicts, orders[place.(int64)-1])
		}
		return ErrConflict
	default:
		return fmt.Errorf("partition %d: script %s answered %s", s.partition.number, script, strconv.Quote(name))
	}
}
