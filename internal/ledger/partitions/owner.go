package partitions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
)

// Token says who owns a partition and how far its streams were processed. Every write of the
// owner compares it with what is stored and replaces it. It has no time: whoever wants to take a
// partition over must have seen the token unchanged for some time of a clock of its own.
type Token struct {
	Owner    string // empty: the last owner has left
	Epoch    uint64 // raised with every owner
	Sequence uint64 // raised with every write of one
	// Up to where the streams of events and updates are decided, and the webhooks of the former
	// have ended or are scheduled.
	Events, Updates, Webhooks string
}

func codeToken(c *core.Codec, t *Token) {
	c.All(&t.Epoch, &t.Sequence, &t.Owner, &t.Events, &t.Updates, &t.Webhooks)
}

// Stored is the stored form; the zero token is not stored.
func (t *Token) Stored() Stored {
	if *t == (Token{}) {
		return ""
	}
	return Stored(core.Encode(func(c *core.Codec) { codeToken(c, t) }))
}

// Ownership is how workers share the partitions: each has one owner, which alone reads its
// streams of events and updates, moves its orders and sends its webhooks.
type Ownership struct {
	core   *core.Client
	limits *limits.Limits
}

// NewOwnership returns the calls of owners.
func NewOwnership(c *core.Client, bounds *limits.Limits) *Ownership {
	return &Ownership{core: c, limits: bounds}
}

// Stored is a token as it is stored; two are equal while nobody has written.
type Stored string

// Token reads a stored token; the zero Token when there is none.
func (s Stored) Token() (t Token, err error) {
	if s != "" {
		err = core.Decode("owner", string(s), func(c *core.Codec) { codeToken(c, &t) })
	}
	return t, err
}

// Due lists orders whose timers have run out, at most limit of each partition. After an error it has
// those of the partitions that could be read. Replicas do not confirm the answer: what follows from it
// is written with Advance.
func (l *Ownership) Due(ctx context.Context, partitions []int, now time.Time, limit int) ([][]delivery.OrderID, error) {
	members, err := l.core.Due(ctx, core.KindTimers, partitions, now, limit)

	orders := make([][]delivery.OrderID, len(partitions))
	for i, p := range partitions {
		orders[i] = l.core.Partitions[p].OrdersOf(members[i])
	}
	return orders, core.Failed("reading timers", err)
}

// Take makes the worker the owner of a partition whose token is still the one seen. It goes on
// where the last owner was or, where that is later, at a group's position, which only a person can
// have set there. ErrNotOwner when the token has changed.
func (l *Ownership) Take(ctx context.Context, partition int, seen Stored, worker string) (*Owned, error) {
	r := l.core.Partitions[partition]
	token, err := seen.Token()
	if err != nil {
		return nil, fmt.Errorf("partition %d: %w", partition, err)
	}
	if err := l.core.MakeGroups(ctx, r.Key(core.KindEvents), r.Key(core.KindUpdates)); err != nil {
		return nil, err
	}

	token.Owner, token.Epoch = worker, token.Epoch+1
	o := &Owned{Partition: partition, Token: token}
	step := l.Step(partition, token)
	step.was = string(seen)

	for _, g := range []struct {
		role core.Role
		kind byte
		id   *string
		read *int64
	}{
		{core.RoleStatus, core.KindEvents, &step.Token.Events, &o.Read.Events}, {core.RoleStatus, core.KindUpdates, &step.Token.Updates, &o.Read.Updates},
		{core.RoleWebhook, core.KindEvents, &step.Token.Webhooks, &o.Read.Webhooks},
	} {
		if err := l.takeGroup(ctx, step, g.role, g.kind, g.id, g.read); err != nil {
			return nil, err
		}
	}

	notes, err := l.core.Redis.XRevRangeN(ctx, r.Key(core.KindNotes), "+", "-", 1).Result()
	if err != nil {
		return nil, core.Failed("reading notes", err)
	}

	o.Notes = "0-0"
	if len(notes) > 0 { // everything is read after this
		o.Notes = notes[0].ID
	}

	if err := l.Advance(ctx, []*Step{step})[0]; err != nil {
		return nil, err
	}

	// Nobody else publishes any more but gateways.
	stream, err := l.core.Redis.XInfoStream(ctx, r.Key(core.KindEvents)).Result()
	if err != nil {
		return nil, core.Failed("reading a stream", err)
	}

	o.CatchUp = stream.LastGeneratedID

	o.Token, o.From, o.ReadFrom = step.Token, step.Token.Events, o.Read.Events
	if core.StreamIDLess(o.Token.Webhooks, o.From) {
		o.From, o.ReadFrom = o.Token.Webhooks, o.Read.Webhooks
	}

	return o, nil
}

// Owned is a partition of this process.
type Owned struct {
	Partition int
	Token     Token
	Read      Counts // what the token's positions are
	From      string // the last event read; before Token.Events until all webhooks are known
	ReadFrom  int64
	Notes     string // the last note read
	// CatchUp is the last event that an earlier owner may have published. Until it is read nothing
	// that was reported is decided, so that no version is announced before an earlier one.
	CatchUp string
}

// CaughtUp reports whether all that earlier owners published has been read.
func (o *Owned) CaughtUp() bool { return o.CatchesUp(o.From) }

// CatchesUp reports whether all that earlier owners published stands up to a position of the events.
func (o *Owned) CatchesUp(position string) bool { return !core.StreamIDLess(position, o.CatchUp) }

// Later reports whether an id is after another in the same stream.
func Later(id, than string) bool { return core.StreamIDLess(than, id) }

// Counts are positions as numbers of entries since the streams began; less than 0: not known.
type Counts struct{ Events, Updates, Webhooks int64 }

// takeGroup finds where to go on, and notes that in the group, which nobody reads by.
func (l *Ownership) takeGroup(ctx context.Context, step *Step, role core.Role, kind byte, id *string, read *int64) error {
	key := step.Partition.Key(kind)
	pipe := l.core.Redis.Pipeline()
	before, groups := pipe.XInfoStream(ctx, key), pipe.XInfoGroups(ctx, key)
	after := pipe.XInfoStream(ctx, key)
	if _, err := pipe.Exec(ctx); err != nil {
		return core.Failed("reading a group", err)
	}

	added := before.Val().EntriesAdded
	group, _ := core.GroupOf(groups.Val(), role)
	if *id == "" || core.StreamIDLess(*id, group.LastDeliveredID) {
		*id = group.LastDeliveredID
	}

	*read = -1
	switch {
	case added != after.Val().EntriesAdded: // the counts are not one moment's
	case *id == before.Val().LastGeneratedID:
		*read = added
	case group.Lag >= 0:
		ahead, err := l.core.CountBetween(ctx, key, group.LastDeliveredID, *id)
		if err != nil {
			return err
		}
		behind, err := l.core.CountBetween(ctx, key, *id, group.LastDeliveredID)
		if err != nil {
			return err
		}

		*read = added - group.Lag + ahead - behind
	}

	step.position(role, kind, *id, *read)

	return nil
}

// Unreadable is an entry that cannot be read, or not be decided.
type Unreadable struct {
	ID, Reason string
	Kind       byte
	Values     []any // names and values
}

// Undecided is an entry of an update about which nothing can be decided, and why.
func (e *Entry) Undecided(reason string) Unreadable {
	reason = delivery.Excerpt(reason, delivery.MaxForeignError) // it may quote what was sent
	return Unreadable{e.ID, reason, e.Kind(), []any{FieldPrefix + "u", core.EncodeUpdate(e.Update)}}
}

// Inbox is what has come into a partition since its owner has read.
type Inbox struct {
	Partition       int
	Entries         []Entry // to be decided: events before updates, each in their order
	Published       []Entry // all events, those decided before included: for the webhooks
	Notes           []delivery.AccountID
	Unreadable      []Unreadable
	Events, Updates string // the last of each; empty: there is none
	Note            string
	ReadEvents      int64
	ReadUpdates     int64
	Full            bool // there may be more
	decided         string
}

// Read waits until something has come into one of the partitions, for at most block, and returns
// at most count entries of each stream. In a cluster it takes one partition at a time.
func (l *Ownership) Read(ctx context.Context, owned []*Owned, count int, block time.Duration) ([]*Inbox, error) {
	keys, ids := make([]string, 0, 6*len(owned)), make([]string, 0, 3*len(owned))
	byPrefix := make(map[string]*Inbox, len(owned))
	for _, o := range owned {
		r := l.core.Partitions[o.Partition]
		byPrefix[r.Prefix] = &Inbox{Partition: o.Partition, decided: o.Token.Events}
		keys, ids = append(keys, r.Key(core.KindEvents), r.Key(core.KindNotes)), append(ids, o.From, o.Notes)
		if o.CaughtUp() {
			keys, ids = append(keys, r.Key(core.KindUpdates)), append(ids, o.Token.Updates)
		}
	}

	found, err := l.core.Readers.XRead(ctx, &redis.XReadArgs{Streams: append(keys, ids...), Count: int64(count), Block: block}).Result()
	if err != nil {
		return nil, core.ReadFailure(err)
	}

	var inboxes []*Inbox
	slices.SortFunc(found, func(a, b redis.XStream) int { return cmp.Compare(a.Stream, b.Stream) }) // events before updates
	for _, stream := range found {
		last := len(stream.Stream) - 1
		in := byPrefix[stream.Stream[:last]]
		if len(in.Events)+len(in.Updates)+len(in.Note) == 0 {
			inboxes = append(inboxes, in)
		}
		in.take(l.core.Partitions[in.Partition], stream.Stream[last], stream.Messages, count)
	}

	return inboxes, nil
}

func (in *Inbox) take(r core.Partition, kind byte, messages []redis.XMessage, count int) {
	n := len(messages)
	in.Full = in.Full || n == count
	last := messages[n-1].ID
	switch kind {
	case core.KindEvents:
		in.Events, in.ReadEvents = last, int64(n)
	case core.KindUpdates:
		in.Updates, in.ReadUpdates = last, int64(n)
	default:
		in.Note = last
	}

	for _, m := range messages {
		e := Entry{Partition: r.Number, ID: m.ID}
		if account := core.Text(m.Values["w"]); kind == core.KindNotes {
			if len(account) == len(delivery.AccountID{}) {
				in.Notes = append(in.Notes, delivery.AccountID([]byte(account)))
			}
			continue
		}

		if err := e.Read(r, m.Values); err != nil {
			if kind == core.KindEvents && !core.StreamIDLess(in.decided, m.ID) {
				continue
			}

			bad := Unreadable{m.ID, UnreadableReason(err), kind, nil}
			for name, value := range m.Values {
				bad.Values = append(bad.Values, FieldPrefix+name, value)
			}

			in.Unreadable = append(in.Unreadable, bad)

			continue
		}

		if kind == core.KindEvents {
			in.Published = append(in.Published, e)
		}

		if kind == core.KindUpdates || core.StreamIDLess(in.decided, m.ID) {
			in.Entries = append(in.Entries, e)
		}
	}
}

// NewOrder is what is known of an order that waits for a courier.
type NewOrder struct {
	ID      delivery.OrderID
	fleet   delivery.FleetID
	version uint64
	created time.Time
}

// Wanted is what a step of a partition is about, and what was found of it.
type Wanted struct {
	Partition     int
	New, Reported []delivery.OrderID
	Events        []Event
	Endpoints     []delivery.AccountID // that may have changed
	After         string               // the update up to which all is decided; empty: Undecided is not wanted

	Undecided  map[delivery.OrderID]bool // reported of before they were read; nil: not known
	News       []*NewOrder               // nil in its place: it has moved on
	Deliveries []*Delivery               // of Events; nil in its place: it is gone, or unreadable
	Facts      []*Facts                  // of Endpoints
	Orders     []*delivery.Order         // nil in its place: it is gone, or unreadable
	Unreadable map[delivery.OrderID]error
}

// ReadOrders reads what turns of several partitions need, in one round trip: orders, events and endpoints. Deliveries of
// one order share it, and have it apart from Orders.
func (l *Ownership) ReadOrders(ctx context.Context, wanted []*Wanted) error {
	reader := newEventReader(ctx)
	_, err := core.Pipelined(ctx, l.core.Redis, "reading orders", wanted, func(pipe redis.Pipeliner, w *Wanted) func() *Wanted {
		r := l.core.Partitions[w.Partition]

		// The questions, in one round trip.
		var heads []*redis.StringCmd
		for _, id := range w.New {
			heads = append(heads, pipe.GetRange(ctx, r.Order(id.Digest()), 0, core.OrderHead-1))
		}

		keys := make([]string, len(w.Reported))
		for i, id := range w.Reported {
			keys[i] = r.Order(id.Digest())
		}

		var records *redis.SliceCmd
		if len(keys) > 0 {
			records = pipe.MGet(ctx, keys...)
		}

		events := make([]func() (*Delivery, string), len(w.Events))
		for i := range w.Events {
			events[i] = reader.read(pipe, r, w.Events[i].Key())
		}

		endpoints := make([]func() *Facts, len(w.Endpoints))
		for i, account := range w.Endpoints {
			endpoints[i] = l.readFacts(ctx, pipe, r, account)
		}

		var updates *redis.XMessageSliceCmd
		if w.After != "" { // behind the orders: what is reported later shows in the record
			updates = pipe.XRangeN(ctx, r.Key(core.KindUpdates), "("+w.After, "+", core.MostListed)
		}

		// The answers.
		return func() *Wanted {
			w.Undecided = nil
			if updates != nil {
				w.Undecided = undecided(updates.Val())
			}

			w.News = make([]*NewOrder, len(w.New))
			w.Orders = make([]*delivery.Order, len(w.Reported))
			w.Deliveries = make([]*Delivery, len(w.Events))
			for i, head := range heads {
				w.News[i] = decodeNew(w.New[i], head.Val())
			}

			for i, event := range events {
				w.Deliveries[i], _ = event()
			}

			w.Facts = make([]*Facts, len(endpoints))
			for i, facts := range endpoints {
				w.Facts[i] = facts()
			}

			for i, id := range w.Reported {
				if record := core.Text(records.Val()[i]); record != "" {
					w.decodeReported(i, id, record)
				}
			}

			return w
		}
	})

	return err
}

func (w *Wanted) decodeReported(i int, id delivery.OrderID, record string) {
	o, err := core.DecodeOrder(record, w.Partition)
	switch {
	case err != nil:
		if w.Unreadable == nil {
			w.Unreadable = make(map[delivery.OrderID]error)
		}
		w.Unreadable[id] = err
	case o.ID == id:
		w.Orders[i] = o
	}
}

// undecided are the orders that updates are about; nil: that is not known.
func undecided(updates []redis.XMessage) map[delivery.OrderID]bool {
	if len(updates) == core.MostListed {
		return nil
	}

	orders := make(map[delivery.OrderID]bool, len(updates))
	for _, m := range updates {
		u, err := core.DecodeUpdate(core.Text(m.Values["u"]))
		if err != nil {
			return nil // until it is among the dead letters
		}
		orders[u.Order] = true
	}

	return orders
}

func decodeNew(id delivery.OrderID, head string) *NewOrder {
	f := core.Fields{Rest: head}
	f.Take(1)
	if status := delivery.Status(f.Byte()); status != delivery.Searching {
		return nil
	}

	f.Take(2)
	o := &NewOrder{ID: id, version: f.Uint64()}
	f.Take(core.OrderCreatedAt - OrderVersionAt - 8)
	o.created = core.TimeOf(int64(f.Uint64()))
	f.Take(core.OrderHead - core.OrderCreatedAt - 8 - len(o.fleet))
	copy(o.fleet[:], f.Take(len(o.fleet)))
	if f.Err != nil {
		return nil
	}

	return o
}
