// Package testbed is what the tests of the worker's roles stand on: a real
// redis-server, a ledger in it, and an account with a fleet and an active store.
//
// It owns setting up and waiting. It refuses to play a part of the program:
// what a test is about is done by the role itself.
package testbed

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
)

// Partitions keeps the tests' ledgers small and still makes them fan out.
const Partitions = 4

// patience is how long a condition is waited for; longer means a failure.
const patience = 2 * time.Minute

// Bed is one Redis with one ledger.
type Bed struct {
	T      *testing.T
	Redis  *stack.Redis
	Ledger *ledger.Ledger
	Fleet  *delivery.Fleet
	orders int
	clock  *Clock // nil: the system's
}

// Vendor is an account with a fleet and an active store.
type Vendor struct {
	bed     *Bed
	Account delivery.AccountID
	Store   *delivery.Store
	// Edit changes a draft before the order is created from it; nil: nothing is.
	Edit func(*delivery.OrderDraft)
}

// New starts a Redis and opens a sandbox ledger with one fleet; both end with
// the test.
func New(t *testing.T) *Bed {
	t.Helper()
	return newBed(t, nil)
}

// NewUnder is New with a Redis that has a further environment, such as a shim's.
func NewUnder(t *testing.T, env []string) *Bed {
	t.Helper()
	return newBed(t, nil, env...)
}

func newBed(t *testing.T, clock *Clock, env ...string) *Bed {
	t.Helper()
	redis, err := stack.StartRedis(t.Context(), stack.RedisOptions{Dir: t.TempDir(), Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Stop)
	b := &Bed{T: t, Redis: redis, clock: clock}
	b.Ledger = b.Open()
	b.Fleet = &delivery.Fleet{ID: delivery.NewFleetID(), Name: "Hızlı Kurye", SubRegion: "Kadıköy",
		DeliveryMinutes: 25, PickupMinutes: 10, Couriers: -1, Coverage: b.coverage()}
	b.must(b.Ledger.CreateFleet(t.Context(), b.Fleet, [32]byte{1}))
	b.makeGroups()
	return b
}

// makeGroups lets each role read one notice, after which its groups exist in
// every partition; without them nothing would count as unread.
func (b *Bed) makeGroups() {
	b.T.Helper()
	b.must(b.Ledger.Publish(b.T.Context(), ledger.Notice{Account: delivery.NewAccountID(), Type: delivery.WebhookTest,
		OccurredAt: time.Now(), Data: []byte("{}")}))
	for _, role := range []ledger.Role{ledger.RoleStatus, ledger.RoleWebhook, ledger.RoleExport} {
		ctx, done := context.WithCancel(b.T.Context())
		_ = b.Ledger.RunFeed(ctx, ledger.Feed{Role: role, Consumer: "testbed",
			Handle: func(ctx context.Context, _ int, batch []ledger.Entry) error {
				defer done()
				return b.Ledger.Ack(ctx, role, batch...)
			}})
	}
}

// Config is how the bed's ledger is opened.
func (b *Bed) Config() ledger.Config {
	c := ledger.Config{
		URL:         b.Redis.URL,
		Environment: "sandbox",
		Partitions:  Partitions,
		Secrets:     ledger.SecretKeys{Current: "k", Keys: map[string][]byte{"k": make([]byte, 32)}},
	}
	if b.clock != nil {
		c.Now, c.ClockKey = b.clock.Now, clockKey
	}
	return c
}

// Open opens the ledger once more, as another process would; it is closed with
// the test.
func (b *Bed) Open() *ledger.Ledger {
	b.T.Helper()
	l, err := ledger.Open(b.T.Context(), b.Config())
	b.must(err)
	b.T.Cleanup(func() { _ = l.Close() })
	return l
}

func (b *Bed) coverage() *delivery.Coverage {
	c, err := delivery.ParseCoverage([]byte(
		`{"type":"Polygon","coordinates":[[[28,40.5],[30,40.5],[30,41.5],[28,41.5],[28,40.5]]]}`))
	b.must(err)
	return c
}

// Vendor registers an account with generous limits and an Active store.
func (b *Bed) Vendor() *Vendor {
	b.T.Helper()
	account := &delivery.Account{ID: delivery.NewAccountID(), Name: "Test", CreatedAt: time.Now(), Limits: delivery.DefaultLimits()}
	account.Limits.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 100_000, Seconds: 60}}
	b.must(b.Ledger.CreateAccount(b.T.Context(), account, [32]byte{2}))
	v := &Vendor{bed: b, Account: account.ID}
	v.Store = v.NewStore("branch-1", delivery.Active)
	return v
}

// NewStore writes a store of the bed's fleet in the given state.
func (v *Vendor) NewStore(externalID string, state delivery.StoreState) *delivery.Store {
	v.bed.T.Helper()
	s := &delivery.Store{
		Account: v.Account, ExternalID: externalID, State: state, TaxNumber: "1234567890", Name: "Kadıköy Şube",
		Phone: "2161112233", Address: "Moda Cd. 1, Kadıköy", Point: delivery.Point{Latitude: 40.98, Longitude: 29.02},
		SubRegion: "Kadıköy", Fleet: v.bed.Fleet.ID, FleetName: v.bed.Fleet.Name, UpdatedAt: time.Now(),
	}
	v.bed.must(v.bed.Ledger.WriteStore(v.bed.T.Context(), s))
	return s
}

// Order creates an order with the note, as of the given time and ready then.
func (v *Vendor) Order(note string, at time.Time) *delivery.Order {
	v.bed.T.Helper()
	return v.PreOrder(note, at, at)
}

// PreOrder creates an order with the note, as of the given time, whose package
// is ready later.
func (v *Vendor) PreOrder(note string, at, ready time.Time) *delivery.Order {
	b := v.bed
	b.T.Helper()
	b.orders++
	draft := &delivery.OrderDraft{
		ExternalStoreID: v.Store.ExternalID, ExternalOrderID: fmt.Sprintf("order-%d", b.orders), ReadyAt: ready,
		Recipient: delivery.Recipient{Name: "Ali Veli", Phone: "5321234567"},
		Dropoff:   delivery.Dropoff{Text: "Bahariye Cd. No 5 D 3", Point: delivery.Point{Latitude: 40.99, Longitude: 29.03}},
	}
	draft.PackageNote = note
	if v.Edit != nil {
		v.Edit(draft)
	}
	created, _, err := b.Ledger.CreateOrder(b.T.Context(), &ledger.Creation{
		Account: v.Account, IdempotencyKey: draft.ExternalOrderID, Body: []byte(draft.ExternalOrderID), Draft: draft, Now: at,
		Candidates: []ledger.Candidate{{Terms: b.Fleet.Terms(), Covers: true}},
	})
	b.must(err)
	return created.Order
}

// Courier is who accepts the bed's orders.
var Courier = delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5321112233", VehicleType: "Motorcycle"}

// Accept reports that Courier takes the order.
func (b *Bed) Accept(o *delivery.Order, at time.Time) {
	b.T.Helper()
	b.Report(delivery.Update{Order: o.ID, Kind: delivery.KindAccept, Status: delivery.Assigned, At: at, Courier: Courier})
}

// Reach reports that the order has reached a status.
func (b *Bed) Reach(o *delivery.Order, s delivery.Status, at time.Time) {
	b.T.Helper()
	b.Report(delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: s, At: at})
}

// Fail reports that the order cannot be delivered.
func (b *Bed) Fail(o *delivery.Order, reason delivery.FailureReason, at time.Time) {
	b.T.Helper()
	b.Report(delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: delivery.Failed, Failure: reason, At: at})
}

// Report hands in an update of the bed's fleet, heard at its own time.
func (b *Bed) Report(u delivery.Update) {
	b.T.Helper()
	u.Fleet = b.Fleet.ID
	_, err := b.Ledger.Report(b.T.Context(), u, u.At)
	b.must(err)
}

// Move takes the order to a status at once, as the status role would commit it.
func (b *Bed) Move(o *delivery.Order, s delivery.Status, at time.Time) {
	b.T.Helper()
	u := delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: s, At: at, Courier: Courier,
		Location: delivery.Location{Point: delivery.Point{Latitude: 40.985, Longitude: 29.025}, At: at}}
	order := b.Read(o.ID)
	results, err := b.Ledger.CommitAll(b.T.Context(), []ledger.Commit{{Order: order, Changes: delivery.Decide(order, u, time.Now()).Changes}})
	b.must(err)
	b.must(results[0])
}

// Read is the order as it stands.
func (b *Bed) Read(id delivery.OrderID) *delivery.Order {
	b.T.Helper()
	o, err := b.Ledger.Order(b.T.Context(), id)
	b.must(err)
	return o
}

// AwaitStatus waits until the order is in the status, and answers it.
func (b *Bed) AwaitStatus(o *delivery.Order, s delivery.Status) *delivery.Order {
	b.T.Helper()
	var last *delivery.Order
	b.Await("order in "+s.String(), func() bool {
		last = b.Read(o.ID)
		return last.Status == s
	})
	return last
}

// Stats are the ledger's figures.
func (b *Bed) Stats() ledger.Stats {
	b.T.Helper()
	s, err := b.Ledger.Stats(b.T.Context())
	b.must(err)
	return s
}

// AwaitSettled waits until the role has read and settled everything.
func (b *Bed) AwaitSettled(role ledger.Role) {
	b.T.Helper()
	b.Await(string(role)+" has settled everything", func() bool {
		s := b.Stats()
		return s.Unread[role] == 0 && s.Pending[role] == 0
	})
}

// Consume reads and acknowledges all that a role has not.
func (b *Bed) Consume(role ledger.Role) {
	b.T.Helper()
	stop := b.Start(func(ctx context.Context) error {
		err := b.Ledger.RunFeed(ctx, ledger.Feed{Role: role, Consumer: "testbed", Handle: func(ctx context.Context, _ int, batch []ledger.Entry) error {
			return b.Ledger.Ack(ctx, role, batch...)
		}})
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	b.AwaitSettled(role)
	stop()
}

// Await polls until the condition holds.
func (b *Bed) Await(what string, condition func() bool) {
	b.T.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			b.T.Fatalf("waited %s in vain: %s", patience, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Start runs a role until stop is called or the test ends; stop waits for its
// end.
func (b *Bed) Start(run func(context.Context) error) (stop func()) {
	b.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			b.T.Errorf("the role ended with %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	b.T.Cleanup(stop)
	return stop
}

// Command sends one inline command to the bed's Redis, past the ledger, to
// break something.
func (b *Bed) Command(line string) string {
	b.T.Helper()
	conn, err := net.DialTimeout("tcp", b.Redis.Addr, time.Second)
	b.must(err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "%s\r\n", line)
	b.must(err)
	reply, err := bufio.NewReader(conn).ReadString('\n')
	b.must(err)
	if strings.HasPrefix(reply, "-") {
		b.T.Fatalf("%s: %s", line, reply)
	}
	return reply
}

// EachKey runs Lua for every key k of a kind that partitions have one of, such
// as e, the stream of events, past the ledger, to break something. The Lua has
// no double quotes.
func (b *Bed) EachKey(kind, lua string) {
	b.T.Helper()
	b.each(kind, 0, lua)
}

// EachRecord runs Lua for every key k of a kind of records, such as o, the
// orders; d is the digest in its name.
func (b *Bed) EachRecord(kind, lua string) {
	b.T.Helper()
	b.each(kind, delivery.OrderDigestSize, lua)
}

// Record runs Lua for the key k of one record, which must be there; d is its
// digest.
func (b *Bed) Record(kind string, digest [delivery.OrderDigestSize]byte, lua string) {
	b.T.Helper()
	own := "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(digest), " ", ","), "[]") + "}"
	reply := b.each(kind, delivery.OrderDigestSize, "if d == string.char(unpack("+own+")) then "+lua+" found = 1 end")
	if reply != ":1\r\n" {
		b.T.Fatalf("no record %s of %x: %q", kind, digest, reply)
	}
}

// each looks at the whole of a key's name: names end in any bytes, so a pattern
// of KEYS alone would now and then find an order whose name ends like a stream's.
func (b *Bed) each(kind string, bytes int, lua string) string {
	b.T.Helper()
	return b.Command(fmt.Sprintf(`EVAL "local found = 0 for _, k in ipairs(redis.call('KEYS', '{*}%[1]s*')) do local d = string.match(k, '^{%%w+}%[1]s(.*)$') if d and #d == %[2]d then %[3]s end end return found" 0`,
		kind, bytes, lua))
}

func (b *Bed) must(err error) {
	b.T.Helper()
	if err != nil {
		b.T.Fatal(err)
	}
}
