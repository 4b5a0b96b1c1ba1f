// Package testenv gives tests a ledger with a fleet and an account whose store is
// active, in a database of the Redis that the run shares (package testserver). A test
// whose subject is Redis's death, rights or settings takes NewOn a server of its own.
// NewArchive adds a ClickHouse.
package testenv

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// Partitions keeps the tests' ledgers small and still makes them fan out.
const Partitions = 4

// Env is a ledger in a Redis.
type Env struct {
	T        *testing.T
	RedisURL string         // the operator's, unless Server has no users
	Ledger   *ledger.Ledger // opened as the operator; OpenAs is for the rights of a program
	Fleet    *delivery.Fleet
	Server   *stack.Redis // of NewOn; nil: the shared one
	urlFor   func(user string) string
	client   *redis.Client
	orders   int
	clock    *atomic.Int64 // of NewWithClock, in microseconds; nil: the system's
}

// Vendor is an account with a fleet and an active store.
type Vendor struct {
	env     *Env
	Account delivery.AccountID
	Store   *delivery.Store
	// Edit changes a draft before the order is created from it; nil: it is not changed.
	Edit func(*delivery.OrderDraft)
}

// New opens a sandbox ledger with one fleet in an empty database of the shared
// Redis. It ends with the test.
func New(t *testing.T) *Env {
	t.Helper()
	return onShared(t).open()
}

func onShared(t *testing.T) *Env {
	t.Helper()
	r := testserver.NewRedis(t)
	return &Env{T: t, RedisURL: r.URL, urlFor: r.URLFor, client: r.Client}
}

// clockKey is where the scripts of an environment with a clock find the time. It
// begins as the keys of the sandbox do, so that every program may read it.
const clockKey = "{sclock}"

// NewWithClock is New with a clock, in this process and in Redis, that stands still
// until it is set. Rates of events a second alone go by Redis's own clock.
func NewWithClock(t *testing.T) *Env {
	t.Helper()
	e := onShared(t)
	e.clock = new(atomic.Int64)
	e.SetClock(time.Now())
	return e.open()
}

// Now is what the environment's clock says.
func (e *Env) Now() time.Time { return time.UnixMicro(e.clock.Load()) }

// SetClock moves the environment's clock, Redis's last.
func (e *Env) SetClock(at time.Time) {
	e.T.Helper()
	e.clock.Store(at.UnixMicro())
	e.Do("SET", clockKey, at.UnixMicro())
}

// NewOn is New on a server of the test's own (testserver.DedicatedRedis).
func NewOn(t *testing.T, server *stack.Redis) *Env {
	t.Helper()
	options, err := redis.ParseURL(server.URL)
	Must(t, err)
	options.ReadTimeout = testserver.Timeout // the scripts of some tests write much
	e := &Env{T: t, RedisURL: server.URL, urlFor: server.URLFor, Server: server, client: redis.NewClient(options)}
	t.Cleanup(func() { _ = e.client.Close() })

	return e.open()
}

func (e *Env) open() *Env {
	e.T.Helper()
	coverage, err := delivery.ParseCoverage([]byte(
		`{"type":"Polygon","coordinates":[[[28,40.5],[30,40.5],[30,41.5],[28,41.5],[28,40.5]]]}`))
	Must(e.T, err)
	e.Ledger = e.OpenAs(stack.OperatorUser)
	e.Fleet = &delivery.Fleet{ID: delivery.NewFleetID(), Name: "Hızlı Kurye", SubRegion: "Kadıköy",
		DeliveryMinutes: 25, PickupMinutes: 10, Couriers: -1, Coverage: coverage}
	Must(e.T, e.Ledger.Fleets.Create(e.T.Context(), e.Fleet, [32]byte{1}))
	e.makeGroups()

	return e
}

// makeGroups lets each role read one notice, after which its groups exist in
// every partition; without them nothing would count as unread.
func (e *Env) makeGroups() {
	e.T.Helper()
	Must(e.T, e.Ledger.Webhooks.Publish(e.T.Context(), accounts.Notice{Account: delivery.NewAccountID(), Type: delivery.WebhookTest,
		OccurredAt: time.Now(), Data: []byte("{}")}))
	for _, role := range []ledger.Role{ledger.RoleStatus, ledger.RoleWebhook, ledger.RoleExport} {
		ctx, done := context.WithCancel(e.T.Context())
		Must(e.T, e.acknowledge(ctx, role, done))
	}
}

// acknowledge acknowledges all that the role reads until ctx ends, and calls done after each batch.
func (e *Env) acknowledge(ctx context.Context, role ledger.Role, done func()) error {
	_ = e.Ledger.Streams.Run(ctx, partitions.Feed{Role: role, Consumer: "testenv", // it ends with ctx only
		Handle: func(_ context.Context, batch []partitions.Entry) error {
			defer done()
			return e.Ledger.Streams.Ack(e.T.Context(), role, batch...)
		}})
	return nil
}

// ConfigFor is how a user of configs/redis-users.acl opens the ledger.
func (e *Env) ConfigFor(user string) ledger.Config {
	c := ledger.Config{URL: e.urlFor(user), Environment: "sandbox", Partitions: Partitions, Timeout: testserver.Timeout,
		Secrets: ledger.SecretKeys{Current: "k", Keys: map[string][]byte{"k": make([]byte, 32)}}}
	if e.clock != nil {
		c.Now, c.ClockKey = e.Now, clockKey
	}

	if user == stack.ReportingUser { // it has no keys
		c.Secrets, c.Log = ledger.SecretKeys{}, slog.New(slog.DiscardHandler)
	}
	return c
}

// OpenAs opens the ledger once more, as another process would, until the test ends, with the
// rights of a program: stack.WorkerUser, for example.
func (e *Env) OpenAs(user string) *ledger.Ledger {
	e.T.Helper()
	l, err := ledger.Open(e.T.Context(), e.ConfigFor(user))
	Must(e.T, err)
	e.T.Cleanup(func() { _ = l.Close() })
	return l
}

// Vendor registers an account with generous limits and an Active store.
func (e *Env) Vendor() *Vendor {
	e.T.Helper()
	account := &delivery.Account{ID: delivery.NewAccountID(), Name: "Test", CreatedAt: time.Now(), Limits: delivery.DefaultLimits()}
	account.Limits.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 100_000, Seconds: 60}}
	Must(e.T, e.Ledger.Accounts.Create(e.T.Context(), account, [32]byte{2}))
	v := &Vendor{env: e, Account: account.ID}
	v.Store = v.NewStore("branch-1", delivery.Active)

	return v
}

// NewStore writes a store of the environment's fleet in the given state.
func (v *Vendor) NewStore(externalID string, state delivery.StoreState) *delivery.Store {
	v.env.T.Helper()
	s := &delivery.Store{
		Account: v.Account, ExternalID: externalID, State: state, TaxNumber: "1234567890", Name: "Kadıköy Şube",
		Phone: "2161112233", Address: "Moda Cd. 1, Kadıköy", Point: delivery.Point{Latitude: 40.98, Longitude: 29.02},
		SubRegion: "Kadıköy", Fleet: v.env.Fleet.ID, FleetName: v.env.Fleet.Name, UpdatedAt: time.Now(),
	}
	Must(v.env.T, v.env.Ledger.Stores.Write(v.env.T.Context(), s))
	return s
}

// Order creates an order with the note, as of the given time and ready then.
func (v *Vendor) Order(note string, at time.Time) *delivery.Order {
	e := v.env
	e.T.Helper()
	e.orders++
	draft := &delivery.OrderDraft{
		ExternalStoreID: v.Store.ExternalID, ExternalOrderID: fmt.Sprintf("order-%d", e.orders), ReadyAt: at,
		Recipient: delivery.Recipient{Name: "Ali Veli", Phone: "5321234567"},
		Dropoff:   delivery.Dropoff{Text: "Bahariye Cd. No 5 D 3", Point: delivery.Point{Latitude: 40.99, Longitude: 29.03}},
	}

	draft.PackageNote = note
	if v.Edit != nil {
		v.Edit(draft)
	}

	created, _, err := e.Ledger.Orders.Create(e.T.Context(), &orders.Creation{
		Account: v.Account, IdempotencyKey: draft.ExternalOrderID, Body: []byte(draft.ExternalOrderID), Draft: draft, Now: at,
		Candidates: []accounts.Candidate{{Terms: e.Fleet.Terms(), Covers: true}},
	})

	Must(e.T, err)

	return created.Order
}

// Courier is who accepts the environment's orders.
var Courier = delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5321112233", VehicleType: "Motorcycle"}

// Accept reports that Courier takes the order.
func (e *Env) Accept(o *delivery.Order, at time.Time) {
	e.T.Helper()
	e.Report(delivery.Update{Order: o.ID, Kind: delivery.KindAccept, Status: delivery.Assigned, At: at, Courier: Courier})
}

// Reach reports that the order has reached a status.
func (e *Env) Reach(o *delivery.Order, s delivery.Status, at time.Time) {
	e.T.Helper()
	e.Report(delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: s, At: at})
}

// Fail reports that the order cannot be delivered.
func (e *Env) Fail(o *delivery.Order, reason delivery.FailureReason, at time.Time) {
	e.T.Helper()
	e.Report(delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: delivery.Failed, Failure: reason, At: at})
}

// Report hands in an update of the environment's fleet, received at its own time.
func (e *Env) Report(u delivery.Update) {
	e.T.Helper()
	u.Fleet = e.Fleet.ID
	_, err := e.Ledger.Orders.Report(e.T.Context(), u, u.At)
	Must(e.T, err)
}

// Move takes the order to a status at once, as the status role would.
func (e *Env) Move(o *delivery.Order, s delivery.Status, at time.Time) {
	e.T.Helper()
	u := delivery.Update{Order: o.ID, Kind: delivery.KindStatus, Status: s, At: at, Courier: Courier,
		Location: delivery.Location{Point: delivery.Point{Latitude: 40.985, Longitude: 29.025}, At: at}}
	e.Step(o.ID.Partition(), func(step *partitions.Step) {
		order := e.Read(o.ID)
		step.Change(order, delivery.Decide(order, u, time.Now()).Changes)
	})
}

// Read is the order as it stands.
func (e *Env) Read(id delivery.OrderID) *delivery.Order {
	e.T.Helper()
	o, err := e.Ledger.Orders.Get(e.T.Context(), id)
	Must(e.T, err)
	return o
}

// Shrink shrinks all orders that have ended, as the worker does a day later.
func Shrink(t testing.TB, l *ledger.Ledger) {
	t.Helper()
	for p := range l.Partitions() {
		for looked := 1; looked > 0; {
			var err error
			looked, err = l.Orders.Shrink(t.Context(), p, time.Now().Add(time.Hour))
			Must(t, err)
		}
	}
}

// AwaitStatus waits until the order is in the status, and answers it.
func (e *Env) AwaitStatus(o *delivery.Order, s delivery.Status) *delivery.Order {
	e.T.Helper()
	var last *delivery.Order
	e.Await("order in "+s.String(), func() bool {
		last = e.Read(o.ID)
		return last.Status == s
	})
	return last
}

// DeliveredPath are the statuses of an order that goes the whole way.
const DeliveredPath = "Searching Assigned PickingUp PickedUp Delivering Delivered"

// CheckPath holds an order's statuses, and what is true of every order: versions are dense and time
// never goes back.
func (e *Env) CheckPath(o *delivery.Order, want string) {
	e.T.Helper()
	last := e.Read(o.ID)
	path, at := delivery.Searching.String(), last.CreatedAt
	for _, c := range last.Changes {
		if c.Kind == delivery.StatusReached {
			path += " " + c.Status.String()
		}
		if c.At.Before(at) {
			e.T.Errorf("%s at %s, before %s", c.Status, c.At, at)
		}
		at = c.At
	}

	if path != want {
		e.T.Errorf("%s, want %s", path, want)
	}
	if int(delivery.Sequence(last.Version)) != len(last.Changes)+1 {
		e.T.Errorf("version %x after %d changes", last.Version, len(last.Changes))
	}
}

// Stats are the ledger's figures.
func (e *Env) Stats() operations.Stats {
	e.T.Helper()
	s, err := e.Ledger.Monitor.Stats(e.T.Context())
	Must(e.T, err)
	return s
}

// AwaitSettled waits until the role has read and settled everything.
func (e *Env) AwaitSettled(role ledger.Role) {
	e.T.Helper()
	e.Await(string(role)+" has settled everything", func() bool {
		s := e.Stats()
		return s.Unread[role] == 0 && s.Pending[role] == 0
	})
}

// Consume reads and acknowledges all that a role has not.
func (e *Env) Consume(role ledger.Role) {
	e.T.Helper()
	stop := e.Start(func(ctx context.Context) error { return e.acknowledge(ctx, role, func() {}) })
	e.AwaitSettled(role)
	stop()
}

// KeepConsuming reads and acknowledges all that a role gets, as a running program would, until the test ends.
func (e *Env) KeepConsuming(role ledger.Role) {
	e.T.Helper()
	e.Start(func(ctx context.Context) error { return e.acknowledge(ctx, role, func() {}) })
}

// Await polls until the condition holds.
func (e *Env) Await(what string, condition func() bool) {
	e.T.Helper()
	testserver.Await(e.T, what, condition)
}

// Start runs a role until stop is called or the test ends; stop waits for its
// end.
func (e *Env) Start(run func(context.Context) error) (stop func()) {
	e.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			e.T.Errorf("the role ended with %v", err)
		}
	}()

	stop = func() { cancel(); <-done }
	e.T.Cleanup(stop)

	return stop
}

// Do sends one command to Redis as the operator, past the ledger, to break
// something.
func (e *Env) Do(args ...any) any {
	e.T.Helper()
	return testserver.Do(e.T, e.client, args...)
}

// PrefixesLua is a function of Lua for tests' scripts: the prefixes {tag} of the partitions that have events.
// The keys of orders end in any bytes, also in those of other keys, so a pattern alone is not enough.
const PrefixesLua = `
local function prefixes()
  local found = {}
  for _, key in ipairs(redis.call('KEYS', '*}e')) do
    found[#found + 1] = string.match(key, '^({[^}]+})e$')
  end
  return found
end
`

// EachKey runs Lua for every key k of a kind that partitions have one of, such
// as e, the stream of events, past the ledger, to break something.
func (e *Env) EachKey(kind, lua string) {
	e.T.Helper()
	e.each(kind, 0, lua)
}

// EachRecord runs Lua for every key k of a kind of records, such as o, the
// orders; d is the digest in its name.
func (e *Env) EachRecord(kind, lua string) {
	e.T.Helper()
	e.each(kind, delivery.OrderDigestSize, lua)
}

// Record runs Lua for the key k of one record, which must be there; d is its
// digest.
func (e *Env) Record(kind string, digest [delivery.OrderDigestSize]byte, lua string) {
	e.T.Helper()
	own := "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(digest), " ", ","), "[]") + "}"
	reply := e.each(kind, delivery.OrderDigestSize, "if d == string.char(unpack("+own+")) then "+lua+" found = 1 end")
	if reply != int64(1) {
		e.T.Fatalf("no record %s of %x: %v", kind, digest, reply)
	}
}

// each looks at the whole of a key's name: names end in any bytes, so a pattern
// of KEYS alone would now and then find an order whose name ends like a stream's.
func (e *Env) each(kind string, bytes int, lua string) any {
	e.T.Helper()
	return e.Do("EVAL", fmt.Sprintf(`local found = 0 for _, k in ipairs(redis.call('KEYS', '{*}%[1]s*')) do local d = string.match(k, '^{%%w+}%[1]s(.*)$') if d and #d == %[2]d then %[3]s end end return found`, kind, bytes, lua), 0)
}

// Value is what a counter or a gauge stands at.
func Value(t *testing.T, metric prometheus.Metric) float64 {
	t.Helper()
	var m dto.Metric
	Must(t, metric.Write(&m))
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}
