package partitions

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
)

// WebhookWindow is an event's time to be delivered (spec, "Delivery rules", 2).
const WebhookWindow = 24 * time.Hour

// Delivery is an event for an endpoint.
type Delivery struct {
	Account    delivery.AccountID
	Key        string // its name in the endpoint's schedule
	EventID    string
	Type       delivery.EventType
	OccurredAt time.Time
	ReplayedAt time.Time       // zero: no replay
	Order      *delivery.Order // of an order's event: render its Version
	Version    uint64
	Data       []byte // of a notice
}

// Deadline is when it is too late to send it. A replay has a window of its own.
func (d *Delivery) Deadline() time.Time {
	if d.ReplayedAt.After(d.OccurredAt) {
		return d.ReplayedAt.Add(WebhookWindow)
	}
	return d.OccurredAt.Add(WebhookWindow)
}

// What Bytes counts besides texts, which stand in the order's record: strings that are read from a record
// keep all of it in memory.
const (
	deliveryBytes = int(unsafe.Sizeof(Delivery{}))
	orderBytes    = int(unsafe.Sizeof(delivery.Order{})) + core.OrderHead + 62 // numbers of the document, and lengths of texts
	changeBytes   = int(unsafe.Sizeof(delivery.Change{}))
	entryBytes    = 56 // of a change in the record
)

// Bytes returns about how many bytes of memory the event takes while it waits: its fields, its data and its
// order. An order that several events share is counted for each of them, so the sum over events is an
// upper bound. It encodes and allocates nothing, but looks at every change of the order.
func (d *Delivery) Bytes() int {
	bytes := deliveryBytes + len(d.Key) + len(d.EventID) + len(d.Data)
	o := d.Order
	if o == nil {
		return bytes
	}

	bytes += orderBytes + len(o.Fleet.Name) + draftTexts(&o.OrderDraft) + courierTexts(&o.Accepted)
	bytes += cap(o.Changes) * changeBytes
	for i := range o.Changes {
		c := &o.Changes[i]
		bytes += entryBytes + courierTexts(&c.Courier) + len(c.Failure) + len(c.Cancel) + len(c.Note)
		if c.Kind == delivery.CourierReplaced { // the record also has the acceptance
			bytes += courierTexts(&c.Courier)
		}
	}

	return bytes
}

// draftTexts returns how many bytes the texts of an order have.
func draftTexts(d *delivery.OrderDraft) int {
	to := &d.Dropoff
	return len(d.ExternalStoreID) + len(d.ExternalOrderID) + len(d.Recipient.Name) + len(d.Recipient.Phone) +
		len(to.Text) + len(to.BuildingNo) + len(to.DoorNo) + len(to.Floor) + len(to.Note) + len(d.PackageNote)
}

// courierTexts returns how many bytes the texts of a courier have.
func courierTexts(c *delivery.Courier) int {
	return len(c.Phone) + len(c.Name) + len(c.VehicleType)
}

// VersionKey returns the name in a schedule of the event of an order's version, which is also how
// streams name it.
func VersionKey(id delivery.OrderID, version uint64, kind delivery.ChangeKind) string {
	return string(core.AppendOrderEvent(nil, id, version, kind))
}

// NoticeKey returns the name in a schedule of a notice: the kind of event and the event id.
func NoticeKey(eventID string) string { return string(rune(core.EventNotice)) + eventID }

// OfOrder returns the event of a version of the order, or nil if the order has no such version.
func OfOrder(o *delivery.Order, version uint64) *Delivery {
	change, ok := o.At(version)
	if !ok {
		return nil
	}

	return &Delivery{
		Account:    o.Account,
		Key:        VersionKey(o.ID, change.Version, change.Kind),
		EventID:    delivery.EventID(o.ID, change.Version),
		Type:       change.Kind.EventType(),
		OccurredAt: change.At,
		Order:      o,
		Version:    change.Version,
	}
}

// Ping returns a webhook.test event that probes an idle receiver. Its id is made of account and time, so
// a repeated call for the same millisecond returns the same event.
func Ping(account delivery.AccountID, at time.Time) *Delivery {
	id := hex.EncodeToString(binary.BigEndian.AppendUint64(account[:], uint64(at.UnixMilli())))

	return &Delivery{
		Account:    account,
		EventID:    "evt_ping_" + id,
		Type:       delivery.WebhookTest,
		OccurredAt: at,
		Data:       TestData(account),
	}
}

// Scheduled is an event in the schedule of an endpoint.
type Scheduled struct {
	Key      string
	Due      int64 // when the event is to be sent next, in ms since 1970
	Attempts int   // how many attempts have been made

	// ReplayedAt is when the replay that scheduled the event was asked for, in ms since 1970. It is 0
	// for an event that no replay has scheduled.
	ReplayedAt int64

	// AskedAt is when a replay last asked for the event while it waited, in ms since 1970; 0 if none has.
	AskedAt int64

	Delivery *Delivery
	Gone     string // why the event can never be sent; empty if it can
}

// attemptsText returns what the hash of attempts keeps of an event; ParseAttempts reads it.
func attemptsText(attempts int, replayedAt int64) string {
	if replayedAt == 0 {
		return strconv.Itoa(attempts)
	}
	return strconv.Itoa(attempts) + "@" + strconv.FormatInt(replayedAt, 10)
}

// ParseAttempts sets Attempts, ReplayedAt and AskedAt from what the hash of attempts keeps of the event:
// the number of attempts, then @ and ReplayedAt, then + and AskedAt. A missing part is 0.
func (s *Scheduled) ParseAttempts(text string) {
	text, asked, _ := strings.Cut(text, "+")
	attempts, replayed, _ := strings.Cut(text, "@")
	s.Attempts, s.ReplayedAt, s.AskedAt = int(core.ParseNumber(attempts)), core.ParseNumber(replayed), core.ParseNumber(asked)
}

// Unscheduled is an event to be removed from the schedule of an endpoint.
type Unscheduled struct {
	Key                 string
	ReplayedAt, AskedAt int64 // as in Scheduled, when its last send began
}

// replays returns what stands behind the attempts of such an event in the hash of attempts.
func (u *Unscheduled) replays() string {
	text := ""
	if u.ReplayedAt != 0 {
		text = "@" + strconv.FormatInt(u.ReplayedAt, 10)
	}

	if u.AskedAt != 0 {
		text += "+" + strconv.FormatInt(u.AskedAt, 10)
	}
	return text
}

// ScheduleQuery asks for a part of an endpoint's schedule: at most Limit due from From until Until,
// ms, and the first one after Until. What Known names needs no Delivery.
type ScheduleQuery struct {
	Partition   int
	Account     delivery.AccountID
	From, Until int64
	Limit       int
	Known       func(key string) bool
}

// Scheduled reads parts of schedules, in two round trips, in the order in which they are due. Events
// of one order share it: nobody may change it.
func (l *Ownership) Scheduled(ctx context.Context, queries []ScheduleQuery) ([][]*Scheduled, error) {
	reads, err := core.Pipelined(ctx, l.core.Redis, "reading schedules", queries, func(pipe redis.Pipeliner, q ScheduleQuery) func() []redis.Z {
		key := l.core.Partitions[q.Partition].KeyOf(core.KindRetries, q.Account[:])
		after := strconv.FormatUint(uint64(q.Until)+1, 10) // replays are due within a millisecond
		due := pipe.ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: strconv.FormatInt(q.From, 10), Max: "(" + after, Count: int64(q.Limit)})
		next := pipe.ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: after, Max: "+inf", Count: 1})
		return func() []redis.Z { return append(due.Val(), next.Val()...) }
	})
	if err != nil {
		return nil, err
	}

	type queried struct {
		*Scheduled
		query *ScheduleQuery
	}

	found := make([][]*Scheduled, len(queries))
	var all []queried
	for i, read := range reads {
		for _, z := range read {
			s := &Scheduled{Key: z.Member.(string), Due: int64(z.Score)}
			found[i], all = append(found[i], s), append(all, queried{s, &queries[i]})
		}
	}

	events := newEventReader(ctx)
	_, err = core.Pipelined(ctx, l.core.Redis, "reading scheduled events", all, func(pipe redis.Pipeliner, s queried) func() *Delivery {
		r := l.core.Partitions[s.query.Partition]
		attempts := pipe.HGet(ctx, r.KeyOf(core.KindAttempts, s.query.Account[:]), s.Key)
		var event func() (*Delivery, string)
		if !s.query.Known(s.Key) {
			event = events.read(pipe, r, s.Key)
		}

		return func() *Delivery {
			s.ParseAttempts(attempts.Val())
			if event == nil {
				return nil
			}

			s.Delivery, s.Gone = event()
			if s.Delivery == nil { // only its ids are known
				s.Delivery = GoneEvent(r, s.Key)
			}

			s.Delivery.Account, s.Delivery.ReplayedAt = s.query.Account, core.TimeOf(s.ReplayedAt)

			return s.Delivery
		}
	})

	return found, err
}

// eventReader reads the orders and notices of events, in the pipelines of one call. An order that
// several events share is read and decoded once, and they share it: nobody may change it.
type eventReader struct {
	ctx    context.Context
	orders map[string]*SharedOrder // by the order's key
}

// SharedOrder is an order whose events share it.
type SharedOrder struct {
	Record    *redis.StringCmd
	isDecoded bool
	order     *delivery.Order
	gone      string // why there is none
}

func newEventReader(ctx context.Context) *eventReader {
	return &eventReader{ctx: ctx, orders: make(map[string]*SharedOrder)}
}

// read asks for what an event needs, unless an event before has asked for it. event must be called after
// the pipeline was executed without an error. It returns the event, or why it can never be sent.
func (e *eventReader) read(pipe redis.Pipeliner, r core.Partition, key string) (event func() (d *Delivery, gone string)) {
	if key[0] == core.EventNotice {
		record := pipe.Get(e.ctx, r.KeyOf(core.KindNotice, []byte(key[1:])))
		return func() (*Delivery, string) { return DecodeNoticeEvent(key, record) }
	}

	orderKey := r.KeyOf(core.KindOrder, []byte(key[1:min(13, len(key))]))
	o := e.orders[orderKey]
	if o == nil {
		o = &SharedOrder{Record: pipe.Get(e.ctx, orderKey)}
		e.orders[orderKey] = o
	}

	return func() (*Delivery, string) {
		o.Decode(r)
		return o.Event(key)
	}
}

// DecodeNoticeEvent makes the delivery of a notice, or says why it can never be sent.
func DecodeNoticeEvent(key string, record *redis.StringCmd) (d *Delivery, gone string) {
	if errors.Is(record.Err(), redis.Nil) {
		return nil, "the event's body has expired"
	}

	n, err := accounts.DecodeNotice(record.Val())
	if err != nil {
		return nil, UnreadableReason(err)
	}

	kind := strings.Clone(string(n.Type)) // a part of the record would keep all of it in memory, besides Data

	return &Delivery{Account: n.Account, Key: key, EventID: key[1:], Type: delivery.EventType(kind), OccurredAt: n.OccurredAt, Data: n.Data}, ""
}

// Decode decodes the order that was read, the first time that it is called.
func (o *SharedOrder) Decode(r core.Partition) {
	if o.isDecoded {
		return
	}

	o.isDecoded = true

	if errors.Is(o.Record.Err(), redis.Nil) {
		o.gone = "the order is no longer stored"
		return
	}

	order, err := core.DecodeOrder(o.Record.Val(), r.Number)
	if err != nil {
		o.gone = UnreadableReason(err)
		return
	}

	o.order = order
}

// Event makes the delivery of the version that a key names, or says why it can never be sent.
func (o *SharedOrder) Event(key string) (d *Delivery, gone string) {
	if o.order == nil {
		return nil, o.gone
	}

	f := core.Fields{Rest: key[min(15, len(key)):]}
	version := f.Uint64()
	d = OfOrder(o.order, version)
	if d == nil || d.Version != version {
		return nil, "the order has no such version"
	}

	return d, ""
}

// GoneEvent names an event whose order or notice is gone.
func GoneEvent(r core.Partition, key string) *Delivery {
	d := &Delivery{Key: key}
	if key[0] == core.EventNotice {
		d.EventID = key[1:]
		return d
	}

	f := core.Fields{Rest: key[min(15, len(key)):]}
	d.Version = f.Uint64()
	d.Type = delivery.ChangeKind(f.Byte()).EventType()
	d.EventID = delivery.EventID(r.OrderOfMember(key[1:min(15, len(key))]), d.Version)

	return d
}

// reference is the event as the streams name it.
func (d *Delivery) reference() string {
	if d.Key == "" { // a ping, which is in no schedule
		return NoticeKey(d.EventID)
	}
	return d.Key
}

// Facts are what is stored about an endpoint.
type Facts struct {
	Receiver
	Unreadable error // of the secrets
	Limits     EndpointLimits
	Muted      []delivery.EventType // of which nothing is sent
	Moved      int64                // the version with which the URL last changed
	Deleted    int64                // the version with which a URL was last deleted; 0: none ever was

	// ProbeRequest is the number of the last request to probe: somebody says that the receiver is repaired. It
	// is 0 if that one was answered (EndpointChange.ProbeAnswered), or nobody has asked.
	ProbeRequest int64

	// What the owner has written.
	State      EndpointState
	StateSince int64 // ms
	Breaker    Breaker
	Tally      Tally
	Waiting    int // EndpointChange.Waiting

	Scheduled bool // its schedule is not empty
}

// EndpointAt is what a partition has of an account's endpoint.
type EndpointAt struct {
	Partition int
	Account   delivery.AccountID
}

// EndpointFacts reads what is stored about endpoints.
func (l *Ownership) EndpointFacts(ctx context.Context, endpoints []EndpointAt) ([]*Facts, error) {
	return core.Pipelined(ctx, l.core.Redis, "reading webhook endpoints", endpoints, func(pipe redis.Pipeliner, e EndpointAt) func() *Facts {
		return l.readFacts(ctx, pipe, l.core.Partitions[e.Partition], e.Account)
	})
}

// readFacts asks for what is stored about an endpoint.
func (l *Ownership) readFacts(ctx context.Context, pipe redis.Pipeliner, r core.Partition, account delivery.AccountID) func() *Facts {
	values := pipe.HGetAll(ctx, r.KeyOf(core.KindEndpoint, account[:]))
	scheduled := pipe.ZCard(ctx, r.KeyOf(core.KindRetries, account[:]))
	muted := pipe.HGet(ctx, r.Account(account), core.MutedField)
	return func() *Facts {
		f := DecodeFacts(account, values.Val(), l.core.Secrets, l.core.Now())
		f.Muted = core.DecodeMuted(muted.Val())
		f.Scheduled = scheduled.Val() > 0
		return f
	}
}

// DecodeFacts returns what an endpoint's hash says. Where its secrets cannot be opened, Facts.Unreadable says why.
func DecodeFacts(account delivery.AccountID, values map[string]string, keys core.SecretKeys, now time.Time) *Facts {
	receiver, err := decodeReceiver(account, values, keys, now)
	f := &Facts{Receiver: *receiver, State: EndpointState(values["state"]), StateSince: core.ParseNumber(values["since"]),
		Moved: core.ParseNumber(values["moved"]), Deleted: core.ParseNumber(values["deleted"]),
		ProbeRequest: probeRequest(values), Unreadable: err, Waiting: int(core.ParseNumber(values["waiting"])),
		Limits: EndpointLimits{InFlight: int(core.ParseNumber(values["in_flight"])), PerSecond: int(core.ParseNumber(values["pace"]))},
	}

	unpack(values["gate"], func(c *core.Codec) { codeBreaker(c, &f.Breaker) })
	unpack(values["tally"], func(c *core.Codec) { codeTally(c, &f.Tally) })
	return f
}

// probeRequest returns the last request to probe that the owner has not answered; 0: none is open.
func probeRequest(values map[string]string) int64 {
	last, answered := core.ParseNumber(values["probe"]), core.ParseNumber(values["probed"])
	if last <= answered {
		return 0
	}
	return last
}

// Pending calls page with the accounts of a partition that have a schedule or a breaker, finance's too. A
// new owner asks once. Every account of the partition is looked at, itemsAtOnce in a round trip, and a
// page has those of one round trip that were found; none is empty. They come in no order. It ends with page's
// first error, or when it cannot read: then the pages so far are right, and others are missing.
func (l *Ownership) Pending(ctx context.Context, partition int, page func([]delivery.AccountID) error) error {
	r := l.core.Partitions[partition]
	look := func(ids []delivery.AccountID) error {
		isPending, err := core.Pipelined(ctx, l.core.Redis, "reading schedules", ids, func(pipe redis.Pipeliner, id delivery.AccountID) func() bool {
			scheduled, breaker := pipe.ZCard(ctx, r.KeyOf(core.KindRetries, id[:])), pipe.HExists(ctx, r.KeyOf(core.KindEndpoint, id[:]), "gate")
			return func() bool { return scheduled.Val() > 0 || breaker.Val() }
		})
		if err != nil {
			return err
		}

		var pending []delivery.AccountID
		for i, id := range ids {
			if isPending[i] {
				pending = append(pending, id)
			}
		}

		if len(pending) == 0 {
			return nil
		}

		return page(pending)
	}

	if l.core.PartitionOf(delivery.FinanceAccount) == r { // it is not in the set
		if err := look([]delivery.AccountID{delivery.FinanceAccount}); err != nil {
			return err
		}
	}

	return l.core.EachAccountOf(ctx, l.core.Partitions[partition:partition+1], look)
}

// Ended are the ids of the events that ended after an entry of the partition's events was written.
func (l *Ownership) Ended(ctx context.Context, partition int, since string) (map[string]bool, error) {
	r, ended := l.core.Partitions[partition], make(map[string]bool)
	ms, _ := core.SplitStreamID(since)
	err := l.core.EachPage(ctx, r.Key(core.KindOutcomes), strconv.FormatUint(ms, 10), "+", func(page []redis.XMessage) error {
		for _, m := range page {
			outcomes, err := DecodeOutcomes(r, m.Values)
			if err != nil {
				continue // at worst an event is sent again
			}
			for i := range outcomes {
				ended[outcomes[i].EventID] = true
			}
		}

		return nil
	})

	return ended, err
}

// Backlog is what stands in an endpoint's schedule.
type Backlog struct {
	Events int64
	Oldest time.Time // when the one that is next happened; zero: none
}

// Backlogs reads what stands in schedules.
func (l *Ownership) Backlogs(ctx context.Context, endpoints []EndpointAt) ([]Backlog, error) {
	if len(endpoints) == 0 {
		return nil, nil
	}

	queries := make([]ScheduleQuery, len(endpoints))
	for i, e := range endpoints {
		queries[i] = ScheduleQuery{Partition: e.Partition, Account: e.Account, Until: math.MaxInt64, Limit: 1, Known: func(string) bool { return false }}
	}

	first, err := l.Scheduled(ctx, queries)
	if err != nil {
		return nil, err
	}

	backlogs, err := core.Pipelined(ctx, l.core.Redis, "reading schedules", endpoints, func(pipe redis.Pipeliner, e EndpointAt) func() Backlog {
		count := pipe.ZCard(ctx, l.core.Partitions[e.Partition].KeyOf(core.KindRetries, e.Account[:]))
		return func() Backlog { return Backlog{Events: count.Val()} }
	})

	for i := range backlogs {
		if len(first[i]) > 0 {
			backlogs[i].Oldest = first[i][0].Delivery.OccurredAt
		}
	}

	return backlogs, err
}

// Breaker is an endpoint's circuit breaker, times in ms. The zero value holds nothing back.
type Breaker struct {
	Hold     int64   // nothing is sent before; if Open, the next probe is due then
	Open     bool    // one event at a time goes out, as a probe
	Failures uint16  // attempts that failed since the last success
	Probes   uint16  // those of them that failed since it opened
	Rate     float64 // events per second while the endpoint recovers; 0: as many as it takes
	Calm     float64 // the rate below which it grows fast; 0: it always does
	Forward  int64   // retries due after this are yet to be brought forward; 0: none
	Since    int64   // when it opened
}

func codeBreaker(c *core.Codec, b *Breaker) {
	open := byte(0)
	if b.Open {
		open = 1
	}
	hold, forward, since := uint64(b.Hold), uint64(b.Forward), uint64(b.Since)
	c.All(&hold, &open, &b.Failures, &b.Probes, &b.Rate, &b.Calm, &forward, &since)
	b.Hold, b.Open, b.Forward, b.Since = int64(hold), open == 1, int64(forward), int64(since)
}

// Tally counts an endpoint's attempts by the hour, and its events by how they ended.
type Tally struct {
	Hour                                     uint32 // since 1970
	OK, Failed, PreviousOK, PreviousFailed   uint32 // attempts in it and in the one before
	Delivered, Retried, Undelivered, NotSent uint64
}

func codeTally(c *core.Codec, t *Tally) {
	c.All(&t.Hour, &t.OK, &t.Failed, &t.PreviousOK, &t.PreviousFailed, &t.Delivered, &t.Retried, &t.Undelivered, &t.NotSent)
}

// Turn begins the hour of a time in ms.
func (t *Tally) Turn(now int64) {
	hour := uint32(now / time.Hour.Milliseconds())
	if t.Hour == hour {
		return
	}

	previous := Tally{}
	if t.Hour == hour-1 {
		previous = *t
	}

	t.Hour, t.OK, t.Failed, t.PreviousOK, t.PreviousFailed = hour, 0, 0, previous.OK, previous.Failed
}

// Recent are the attempts of this hour and the one before.
func (t *Tally) Recent(now time.Time) (ok, failed int64) {
	switch now.UnixMilli()/time.Hour.Milliseconds() - int64(t.Hour) {
	case 0:
		return int64(t.OK + t.PreviousOK), int64(t.Failed + t.PreviousFailed)
	case 1:
		return int64(t.OK), int64(t.Failed)
	}
	return 0, 0
}

// unpack reads what is stored without a byte for its format; zero if nothing is.
func unpack(stored string, format func(*core.Codec)) {
	if stored != "" {
		format(&core.Codec{Fields: core.Fields{Rest: stored}})
	}
}

func pack(format func(*core.Codec)) []byte {
	c := core.Codec{Writing: true}
	format(&c)
	return c.Out
}

// Schedule puts events into an endpoint's schedule: due at Due, with their attempts. spill leaves
// one that is there as it is.
func (s *Step) Schedule(account delivery.AccountID, spill bool, events []Scheduled) {
	for page := range slices.Chunk(events, WordsAtOnce/2) {
		words := []any{"ZADD", s.Partition.KeyOf(core.KindRetries, account[:])}
		if spill {
			words = append(words, "NX")
		}

		attempts := []any{"HSET", s.Partition.KeyOf(core.KindAttempts, account[:])}
		for _, e := range page {
			words = append(words, e.Due, e.Key)
			if e.Attempts > 0 || e.ReplayedAt > 0 {
				attempts = append(attempts, e.Key, attemptsText(e.Attempts, e.ReplayedAt))
			}
		}

		s.Command(words...)
		if len(attempts) > 2 {
			s.Command(attempts...)
		}
	}
}

// MoveScheduled makes events of an endpoint's schedule due at Due. One that is not there stays away, and what the hash of
// attempts says of them, a replay that has just been asked for included, stays as it is.
func (s *Step) MoveScheduled(account delivery.AccountID, events []Scheduled) {
	for page := range slices.Chunk(events, WordsAtOnce/2) {
		words := []any{"ZADD", s.Partition.KeyOf(core.KindRetries, account[:]), "XX"}
		for _, e := range page {
			words = append(words, e.Due, e.Key)
		}
		s.Command(words...)
	}
}

// unscheduleCommand is the command by which advance.lua calls unschedule.
const unscheduleCommand = "UNSCHEDULE"

// Unschedule removes events from an endpoint's schedule. One that a replay has asked for since its last
// send began stays, and is due.
func (s *Step) Unschedule(account delivery.AccountID, events []Unscheduled) {
	if len(events) == 0 {
		return
	}

	words := []any{
		unscheduleCommand,
		s.Partition.KeyOf(core.KindRetries, account[:]), s.Partition.KeyOf(core.KindAttempts, account[:]), s.Partition.Replayed(account),
	}

	for i := range events {
		words = append(words, events[i].Key, events[i].replays())
	}

	s.Command(words...)
}

// proveCommand is the command by which advance.lua calls prove.
const proveCommand = "PROVE"

// EndpointChange is what an owner writes of an endpoint.
type EndpointChange struct {
	Breaker    *Breaker // nil: as it was; the zero value: nothing is held back
	Tally      *Tally   // nil: as it was
	State      EndpointState
	StateSince int64 // ms
	Waiting    int   // events in memory only; with Tally

	// Proven is the Receiver.Version whose newest secret signed a test event that was accepted; 0: none was.
	// It is written, and raises the version, only while the endpoint has that version: a secret that was
	// issued since is not proven.
	Proven int64

	// ProbeAnswered is the Facts.ProbeRequest that the owner has acted on; 0: none. A later request stays open.
	ProbeAnswered int64
}

// Endpoint writes what has changed of an endpoint.
func (s *Step) Endpoint(account delivery.AccountID, c *EndpointChange) {
	key := s.Partition.KeyOf(core.KindEndpoint, account[:])
	set, unset := []any{"HSET", key}, []any{"HDEL", key}
	if c.Breaker != nil {
		if *c.Breaker == (Breaker{}) {
			unset = append(unset, "gate")
		} else {
			set = append(set, "gate", pack(func(p *core.Codec) { codeBreaker(p, c.Breaker) }))
		}
	}

	if c.Tally != nil {
		set = append(set, "tally", pack(func(p *core.Codec) { codeTally(p, c.Tally) }), "waiting", c.Waiting)
	}

	if c.State != "" {
		set = append(set, "state", string(c.State), "since", c.StateSince)
		// Only one that is in the list has a URL.
		s.Command("ZADD", s.Partition.List(core.ListReceivers), "XX", receiverScore(c.State, c.StateSince), account[:])
	}

	if c.Proven != 0 {
		s.Command(proveCommand, key, c.Proven)
	}

	if c.ProbeAnswered != 0 {
		set = append(set, "probed", c.ProbeAnswered)
	}

	for _, words := range [][]any{set, unset} {
		if len(words) > 2 {
			s.Command(words...)
		}
	}
}

// Publish tells the export, and replays, how an event ended (final) or that an attempt has failed.
func (s *Step) Publish(account delivery.AccountID, line []byte, final bool) {
	to := &s.tries
	if final {
		to = &s.outcomes
	}
	*to = append(binary.AppendUvarint(append(*to, account[:]...), uint64(len(line))), line...)
}

// publish writes what has gathered. The exporter makes the stream of tries when it first runs: where
// there is none nobody would ever take them.
func (s *Step) publish() {
	if len(s.outcomes) > 0 {
		s.Command("XADD", s.Partition.Key(core.KindOutcomes), "*", "o", s.outcomes)
	}
	if len(s.tries) > 0 {
		s.Command("XADD", s.Partition.Key(core.KindTries), "NOMKSTREAM", "*", "o", s.tries)
	}
}

// TrimLog removes the oldest entries of an endpoint's log until it has at most the given bytes.
func (s *Step) TrimLog(account delivery.AccountID, bytes int) {
	s.Command(trimLogCommand, s.Partition.KeyOf(core.KindAttemptLog, account[:]), bytes)
}

// trimLogCommand is not a command of Redis: the script advance runs its function trim_log for it.
const trimLogCommand = "TRIMLOG"

// Log adds lines to an endpoint's log, the oldest first. kept: how many entries of the log are
// kept. again: the last entry, a failed probe's, is replaced by the line.
func (s *Step) Log(account delivery.AccountID, lines [][]byte, kept int, again bool) {
	key := s.Partition.KeyOf(core.KindAttemptLog, account[:])
	if again {
		s.Command("LPOP", key) // LSET would fail where somebody has removed the log
		s.Command("LPUSH", key, lines[0])
		return
	}

	chunk := lines[0]
	if len(lines) > 1 {
		chunk = []byte{LineChunk}
		for _, line := range lines {
			chunk = append(binary.AppendUvarint(chunk, uint64(len(line))), line...)
		}
	}

	s.Command("LPUSH", key, chunk)
	s.Command("LTRIM", key, 0, kept-1)
}
