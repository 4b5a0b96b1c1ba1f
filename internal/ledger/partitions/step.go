package partitions

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
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/orders"
)

// ErrNotOwner reports that a step was refused because the partition has another owner, or none.
var ErrNotOwner = errors.New("the partition has another owner")

// Step is what the owner of a partition changes at once, all or nothing.
type Step struct {
	Token     Token              // as it will be; the owner sets how far it has got
	Batch     string             // the entry with the step's events, once it is written; empty: it has none
	Conflicts []delivery.OrderID // of ErrConflict: these were changed since they were read
	Published []*Delivery        // the batch's events for webhooks

	Ledger     *core.Client
	limits     *limits.Limits
	Partition  core.Partition
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
	s := &Step{Ledger: l.core, limits: l.limits, Partition: l.core.Partitions[partition], was: string(token.Stored()), Token: token,
		eventsByAccount: make(map[delivery.AccountID][]byte), adds: make(map[string][]any), removes: make(map[string][]any)}
	s.Token.Sequence++
	return s
}

// Command adds a command of Redis; its keys are the partition's.
func (s *Step) Command(words ...any) {
	s.commands = append(append(s.commands, len(words)), words...)
}

// condition lets the step fail unless the bytes of an order's record are as given.
func (s *Step) condition(id delivery.OrderID, first int, bytes []byte) {
	s.conditions = append(s.conditions, s.Partition.Order(id.Digest()), first, first+len(bytes)-1, bytes)
	s.orders[0] = append(s.orders[0], id)
}

// Offsets in an order's head: what a report notes.
const (
	OrderReportedAt      = 2
	OrderVersionAt       = 4
	orderCourierUpdateAt = 44
)

// List puts a new order on its fleet's list of jobs, and sets its first timer.
func (s *Step) List(o *NewOrder) {
	s.condition(o.ID, OrderVersionAt, binary.BigEndian.AppendUint64(nil, o.version))
	s.add(s.Partition.Jobs(delivery.Searching, o.fleet), o.created, o.ID)
	s.add(s.Partition.Key(core.KindTimers), o.created.Add(FirstTimerAfter), o.ID)
}

func (s *Step) add(key string, at time.Time, id delivery.OrderID) {
	s.adds[key] = append(s.adds[key], core.Millis(at), core.OrderMember(id))
}

func (s *Step) remove(key string, id delivery.OrderID) {
	s.removes[key] = append(s.removes[key], core.OrderMember(id))
}

// Change appends changes, one at least, to an order as it was read. Each is one version and one event.
func (s *Step) Change(o *delivery.Order, changes []delivery.Change) {
	now, version := s.Ledger.Now(), o.Version
	var entries []byte
	for i := range changes {
		c := &changes[i]
		version = delivery.NextVersion(version, now, uint16(rand.Uint32()))
		c.Version = version
		entries = core.AppendChange(entries, c)
		s.events = core.AppendOrderEvent(s.events, o.ID, c.Version, c.Kind)
		s.eventsByAccount[o.Account] = core.AppendOrderEvent(s.eventsByAccount[o.Account], o.ID, c.Version, c.Kind)
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
	head = binary.BigEndian.AppendUint64(head, uint64(core.Millis(last.At)))
	head = binary.BigEndian.AppendUint32(head, core.EstimateOf(o.CreatedAt, after.ToldDropoff()))
	s.changes = append(s.changes, s.Partition.Order(o.ID.Digest()), binary.BigEndian.AppendUint64(nil, o.Version), []byte{byte(last.Status)}, head, entries)
	s.orders[1] = append(s.orders[1], o.ID)

	if last.Status != o.Status {
		s.move(o, changes)
		s.reached = append(s.reached, last.Status)
	}

	for i := range changes {
		if changes[i].Kind.EventType() != "" {
			s.Published = append(s.Published, OfOrder(&after, changes[i].Version))
		}
	}
}

// move keeps what follows from an order's status: the list of jobs, the timer, the list of those
// that have ended.
func (s *Step) move(o *delivery.Order, changes []delivery.Change) {
	last := changes[len(changes)-1]
	s.remove(s.Partition.Jobs(o.Status, o.Fleet.ID), o.ID)
	if last.Status.Terminal() {
		s.remove(s.Partition.Key(core.KindTimers), o.ID)
		s.ended = append(s.ended, core.OrderMember(o.ID))
		return
	}

	s.add(s.Partition.Jobs(last.Status, o.Fleet.ID), last.At, o.ID)
	// The order has a timer unless it was moved before it was listed. It may be early.
	s.timers = append(s.timers, core.Millis(o.CreatedAt.Add(FirstTimerAfter)), core.OrderMember(o.ID))
}

// TimeOut is Change of an order of which nothing may have been reported since it was read.
func (s *Step) TimeOut(o *delivery.Order, change delivery.Change) {
	s.condition(o.ID, OrderReportedAt, []byte{byte(o.Reported)})
	s.condition(o.ID, orderCourierUpdateAt, binary.BigEndian.AppendUint64(nil, uint64(core.Millis(o.LastCourierUpdate))))
	s.Change(o, []delivery.Change{change})
}

// Postpone sets the timer of an order; zero removes it.
func (s *Step) Postpone(id delivery.OrderID, until time.Time) {
	if until.IsZero() {
		s.remove(s.Partition.Key(core.KindTimers), id)
	} else {
		s.add(s.Partition.Key(core.KindTimers), until, id)
	}
}

// Refuse keeps a forbidden update for the panel, but for the courier's position, which may be the
// recipient's door: no time ends these entries. late: a delivery.LateDelivery, of which one
// event informs finance.
func (s *Step) Refuse(u *delivery.Update, status delivery.Status, reason string, late bool) {
	kept := *u
	kept.Location = delivery.Location{}
	fields := []any{"u", core.EncodeUpdate(&kept), "status", byte(status), "reason", reason}
	if late {
		fields = append(fields, "late", "1")
		s.events = append(append(s.events, core.EventLate), core.OrderMember(u.Order)...)
		s.events = append(binary.BigEndian.AppendUint64(s.events, uint64(core.Millis(u.At))), 0)
	}

	s.keep(core.KindRefused, fields)
}

// DeadLetter keeps an entry that could not be read or decided.
func (s *Step) DeadLetter(e Unreadable, role core.Role) {
	values := e.Values[:min(len(e.Values), WordsAtOnce/2)] // names and values by turns
	s.keep(core.KindDeadLetters, append([]any{"stream", s.Partition.Key(e.Kind), "entry", e.ID, "role", string(role), "reason", e.Reason}, values...))
}

// FieldPrefix begins the names of a dead-lettered entry's own fields.
const FieldPrefix = "field-"

func (s *Step) keep(kind byte, fields []any) {
	s.Command(append([]any{"XADD", s.Partition.Key(kind), "MAXLEN", "~", orders.RefusedKept, "*"}, fields...)...)
}

// Positions tells the readers of groups how far the owner has got.
func (s *Step) Positions(read Counts) {
	s.position(core.RoleStatus, core.KindEvents, s.Token.Events, read.Events)
	s.position(core.RoleStatus, core.KindUpdates, s.Token.Updates, read.Updates)
	s.position(core.RoleWebhook, core.KindEvents, s.Token.Webhooks, read.Webhooks)
}

func (s *Step) position(role core.Role, kind byte, id string, read int64) {
	words := []any{"XGROUP", "SETID", s.Partition.Key(kind), string(role), id}
	if read >= 0 {
		words = append(words, "ENTRIESREAD", read)
	}
	s.Command(words...)
}

// Empty reports whether the step writes nothing but the token.
func (s *Step) Empty() bool {
	return len(s.commands)+len(s.outcomes)+len(s.tries)+len(s.changes)+len(s.events)+len(s.adds)+len(s.removes) == 0
}

// WordsAtOnce bounds the arguments that one command of a step gets: Lua has room for less than 8,000.
const WordsAtOnce = 4000

// Call returns the call of advance.lua that writes the step. It adds what the step has collected to the
// step's commands, so a second call would write that twice.
func (s *Step) Call() core.Call {
	for key, members := range s.adds {
		for page := range slices.Chunk(members, WordsAtOnce) {
			s.Command(append([]any{"ZADD", key}, page...)...)
		}
	}

	for page := range slices.Chunk(s.timers, WordsAtOnce) {
		s.Command(append([]any{"ZADD", s.Partition.Key(core.KindTimers), "NX"}, page...)...)
	}

	for key, members := range s.removes { // after adds: a new order may leave its list in the same step
		for page := range slices.Chunk(members, WordsAtOnce) {
			s.Command(append([]any{"ZREM", key}, page...)...)
		}
	}

	s.publish()
	args := []any{s.was, string(s.Token.Stored()), s.Partition.Prefix, s.events, len(s.conditions) / 4, len(s.changes) / 5, len(s.ended), len(s.eventsByAccount)}
	var accountEvents []any
	for account, events := range s.eventsByAccount {
		accountEvents = append(accountEvents, account[:], events)
	}

	for _, part := range [][]any{s.conditions, s.changes, s.ended, accountEvents, s.commands} {
		args = append(args, part...)
	}

	return core.Call{Keys: []string{s.Partition.Key(core.KindOwner), s.Partition.Key(core.KindEvents)}, Args: args}
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
	calls, stepsOf := l.Advances(steps)
	replies, _ := l.core.RunAll(ctx, Advance, calls) // each reply has its own error

	result = make([]error, len(steps))
	for c, reply := range replies {
		values, _ := reply.Val().([]any)
		for n, i := range stepsOf[c] {
			switch {
			case reply.Err() != nil:
				result[i] = fmt.Errorf("partition %d: %w", steps[i].Partition.Number, core.Failure(reply.Err()))
			case calls[c].File != RenewTokens:
				result[i] = steps[i].Read(Advance, values)
			case n < len(values):
				result[i] = steps[i].Read(RenewTokens, values[n:n+1])
			default:
				result[i] = core.UnreadableReply(RenewTokens)
			}
		}
	}

	return result
}

// The scripts that write steps.
const (
	Advance     = "advance"
	RenewTokens = "renew_tokens" // of steps that write nothing but the token
)

// Advances makes the calls that write the steps. stepsOf are the places of each call's steps.
func (l *Ownership) Advances(steps []*Step) (calls []core.Call, stepsOf [][]int) {
	var renewals []int
	for i, s := range steps {
		if s.renews() && !l.core.IsCluster {
			renewals = append(renewals, i)
			continue
		}
		calls, stepsOf = append(calls, s.Call()), append(stepsOf, []int{i})
	}

	for page := range slices.Chunk(renewals, core.KeysAtOnce) {
		renewal := core.Call{File: RenewTokens}
		for _, i := range page {
			s := steps[i]
			renewal.Keys = append(renewal.Keys, s.Partition.Key(core.KindOwner))
			renewal.Args = append(renewal.Args, s.was, string(s.Token.Stored()))
		}
		calls, stepsOf = append(calls, renewal), append(stepsOf, page)
	}

	return calls, stepsOf
}

// Read takes what a script, advance or renew_tokens, has answered about the step. It returns nil if the
// step was committed, ErrNotOwner if the stored token is another, and core.ErrConflict, with Conflicts
// set, if orders were changed since they were read. Any other answer, repeated among them, is an error
// of another kind.
func (s *Step) Read(script string, values []any) error {
	if len(values) == 0 {
		return core.UnreadableReply(script)
	}

	name := core.Text(values[0])
	switch name {
	case "done":
		if len(values) > 1 {
			s.Batch = core.Text(values[1])
		}
		for _, status := range s.reached {
			s.limits.Reached(status)
		}
		return nil
	case "lost":
		return ErrNotOwner
	case "conflict":
		orders := slices.Concat(s.orders[0], s.orders[1])
		for _, place := range values[1:] {
			s.Conflicts = append(s.Conflicts, orders[place.(int64)-1])
		}
		return core.ErrConflict
	default:
		return fmt.Errorf("partition %d: script %s answered %s", s.Partition.Number, script, strconv.Quote(name))
	}
}

// FirstTimerAfter is the earliest that any timer of a new order can be due.
const FirstTimerAfter = 15 * time.Minute
