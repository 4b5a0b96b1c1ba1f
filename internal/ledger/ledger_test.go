package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

var testSecrets = core.SecretKeys{Current: "k1", Keys: map[string][]byte{"k1": []byte("0123456789abcdef0123456789abcdef")}}

// openTest opens a ledger in an empty database of the shared server, unless a
// change names another.
func openTest(tb testing.TB, change ...func(*core.Config)) *Ledger {
	tb.Helper()
	cfg := core.Config{Environment: "sandbox", Partitions: 4, Pipelines: 1, Secrets: testSecrets, ClockKey: "test:clock",
		Timeout: testserver.Timeout, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&cfg)
	}

	if cfg.URL == "" {
		cfg.URL = testserver.NewRedis(tb).URL
	}

	l, err := Open(tb.Context(), cfg)
	must(tb, err)
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})

	return l
}

// sameDatabase opens another process on a ledger.
func sameDatabase(l *Ledger) func(*core.Config) {
	return func(c *core.Config) {
		o := l.core.Redis.(*redis.Client).Options()
		c.URL, c.Partitions = fmt.Sprintf("redis://%s:%s@%s/%d", o.Username, o.Password, o.Addr, o.DB), 0
	}
}

// ownServer is a redis-server of the test's own. The disk would only cost time.
func ownServer(tb testing.TB) (*stack.Redis, func(*core.Config)) {
	tb.Helper()
	own := testserver.DedicatedRedis(tb, stack.RedisOptions{Extra: []string{"--appendfsync", "no"}})
	return own, func(c *core.Config) { c.URL = own.URL }
}

func (l *Ledger) setClock(tb testing.TB, us int64) {
	tb.Helper()
	must(tb, l.core.Redis.Set(tb.Context(), "test:clock", us, 0).Err())
}

// tester is a testing.TB or a *rapid.T.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// get is must for a call that also answers something: get(l.Account(ctx, id))(t).
func get[T any](value T, err error) func(tester) T {
	return func(t tester) T {
		t.Helper()
		must(t, err)
		return value
	}
}

func get2[T, U any](one T, two U, err error) func(tester) (T, U) {
	return func(t tester) (T, U) {
		t.Helper()
		must(t, err)
		return one, two
	}
}

// check fails the test unless the condition holds; require also ends it.
func check(t tester, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, args...)
	}
}

func require(t tester, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, args...)
	}
}

// equal compares deeply; what names the thing.
func equal[T any](t tester, got, want T, what string) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// errOf is the error of a call that answers more.
func errOf(answer ...any) error {
	err, _ := answer[len(answer)-1].(error)
	return err
}

func wantError(t tester, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func wantCode(tb testing.TB, err error, code delivery.Code) *delivery.Error {
	tb.Helper()
	refusal, ok := err.(*delivery.Error)
	if !ok || refusal.Code != code {
		tb.Fatalf("got %v, want %s", err, code)
	}
	return refusal
}

// plenty are limits that no test reaches by accident.
func plenty() delivery.Limits {
	wide := delivery.EndpointLimit{Sustained: delivery.Window{Count: 100_000, Seconds: 60}}
	return delivery.Limits{Orders: wide, OrderStatus: wide, Cancel: wide, Token: wide,
		Stores: delivery.EndpointLimit{Sustained: delivery.Window{Count: 100_000, Seconds: 60}, Burst: delivery.Window{Count: 100_000, Seconds: 10}}}
}

var testHash = [32]byte{1, 2, 3}

func newAccount(tb testing.TB, l *Ledger, limits delivery.Limits) delivery.AccountID {
	tb.Helper()
	a := &delivery.Account{ID: delivery.NewAccountID(), Name: "Vendor", Limits: limits, CreatedAt: time.Now()}
	must(tb, l.Accounts.Create(tb.Context(), a, testHash))
	return a.ID
}

// aroundTaksim covers the point of every test order.
const aroundTaksim = `{"type":"Polygon","coordinates":[[[28.9,40.9],[29.1,40.9],[29.1,41.1],[28.9,41.1],[28.9,40.9]]]}`

var taksim = delivery.Point{Latitude: 41.0369, Longitude: 28.985}

func newFleet(tb testing.TB, l *Ledger) *delivery.Fleet {
	tb.Helper()
	coverage := get(delivery.ParseCoverage([]byte(aroundTaksim)))(tb)
	f := &delivery.Fleet{ID: delivery.NewFleetID(), Name: "Hızlı Kurye", SubRegion: "Beyoğlu", DeliveryMinutes: 25,
		PickupMinutes: 10, Couriers: -1, Coverage: coverage}
	must(tb, l.Fleets.Create(tb.Context(), f, testHash))
	must(tb, l.Fleets.Load(tb.Context()))

	return f
}

func newStore(tb testing.TB, l *Ledger, account delivery.AccountID, fleet *delivery.Fleet) *delivery.Store {
	tb.Helper()
	s := &delivery.Store{Account: account, ExternalID: "S-1", State: delivery.Active, TaxNumber: "1234567890", Name: "Şube",
		Phone: "2121234567", Address: "İstiklal Caddesi 1", Point: taksim, Fleet: fleet.ID, FleetName: fleet.Name, UpdatedAt: time.Now()}
	must(tb, l.Stores.Write(tb.Context(), s))
	return s
}

// countCall sends a composed call of a script that counts.
func (l *Ledger) countCall(ctx context.Context, c *core.ScriptCall, account delivery.AccountID) (limits.CountingReply, error) {
	reply, err := l.core.Send(ctx, c)
	return l.Limits.Counted(account, limits.EndpointOrders, time.Now(), reply, err)
}

// untilRefused repeats a call, of which it gives the number from 0, until it is RATE_LIMITED. At least burst calls must
// pass, and at most one more for each refill interval that has gone by on Redis's own clock.
func untilRefused(t *testing.T, burst int, refill time.Duration, call func(i int) error) *delivery.Error {
	t.Helper()
	began := time.Now()
	for passed := 0; ; passed++ {
		err := call(passed)
		if err != nil {
			check(t, passed >= burst, "%d calls passed, want at least %d", passed, burst)
			return wantCode(t, err, delivery.CodeRateLimited)
		}
		freed := int(time.Since(began) / refill)
		require(t, passed < burst+freed, "call %d passed after %s", passed+1, time.Since(began))
	}
}

// env is an account with an active store.
type env struct {
	*Ledger
	account delivery.AccountID
	fleet   *delivery.Fleet

	// Where both clocks, the scripts' and the process's, stand still until the
	// test moves them (newWebhookEnv).
	ms     *atomic.Int64
	worker *Ledger // of the partition's owner, with a worker's rights
}

func newEnv(tb testing.TB, change ...func(*core.Config)) *env {
	tb.Helper()
	return newVendor(tb, openTest(tb, change...))
}

func newVendor(tb testing.TB, l *Ledger) *env {
	tb.Helper()
	s := &env{Ledger: l, account: newAccount(tb, l, plenty()), fleet: newFleet(tb, l)}
	newStore(tb, l, s.account, s.fleet)
	return s
}

func testDraft(externalID string) *delivery.OrderDraft {
	return &delivery.OrderDraft{
		ExternalStoreID: "S-1", ExternalOrderID: externalID, ReadyAt: time.Now(),
		Recipient: delivery.Recipient{Name: "Ayşe Öztürk", Phone: "5321234567"},
		Dropoff:   delivery.Dropoff{Text: "Sıraselviler Cad. 12, zil 4", Point: taksim, DoorNo: "4"},
		Payment:   delivery.Payment{Type: delivery.Cash, CollectionAmount: delivery.Money{Minor: 12550, Set: true}},
	}
}

func (s *env) creation(externalID, key string) *orders.Creation {
	return &orders.Creation{Account: s.account, IdempotencyKey: key, Body: []byte("body of " + externalID), Draft: testDraft(externalID),
		Candidates: s.Fleets.Snapshot().AppendCandidates(nil, taksim), Now: time.Now()}
}

func (s *env) create(tb testing.TB, externalID string) *delivery.Order {
	tb.Helper()
	created, _ := get2(s.Orders.Create(tb.Context(), s.creation(externalID, "")))(tb)
	return created.Order
}

func (s *env) createMany(tb testing.TB, prefix string, n int) {
	tb.Helper()
	for i := range n {
		s.create(tb, fmt.Sprint(prefix, "-", i))
	}
}

// report appends a courier's update for an order of the account.
func (s *env) report(tb testing.TB, id delivery.OrderID, status delivery.Status) {
	tb.Helper()
	u := delivery.Update{Order: id, Fleet: s.fleet.ID, Kind: delivery.KindStatus, Status: status, At: time.Now()}
	get(s.Orders.Report(tb.Context(), u, time.Now()))(tb)
}

func (s *env) advance(tb testing.TB, id delivery.OrderID, statuses ...delivery.Status) {
	tb.Helper()
	for _, status := range statuses {
		o := get(s.Orders.Get(tb.Context(), id))(tb)
		s.change(tb, o, delivery.Change{Status: status, At: time.Now().Truncate(time.Millisecond)})
	}
}

// advanceBy writes one step in the place of the partition's owner.
func (l *Ledger) advanceBy(ctx context.Context, partition int, f func(*partitions.Step)) error {
	stored, err := l.Ownership.Tokens(ctx)
	if err != nil {
		return err
	}
	token, err := stored[partition].Token()
	if err != nil {
		return err
	}

	step := l.Ownership.Step(partition, token)
	step.Token.Epoch++
	f(step)

	return l.Ownership.Advance(ctx, []*partitions.Step{step})[0]
}

func (s *env) step(tb testing.TB, partition int, f func(*partitions.Step)) {
	tb.Helper()
	must(tb, s.advanceBy(tb.Context(), partition, f))
}

func (s *env) change(tb testing.TB, o *delivery.Order, changes ...delivery.Change) {
	tb.Helper()
	s.step(tb, o.ID.Partition(), func(step *partitions.Step) { step.Change(o, changes) })
}

func (s *env) swap(tb testing.TB, o *delivery.Order, to delivery.Courier) {
	tb.Helper()
	s.change(tb, o, delivery.Change{Kind: delivery.CourierReplaced, Status: o.Status, At: o.UpdatedAt().Add(time.Millisecond), Courier: to})
}

// list puts new orders of one partition on their fleets' lists.
func (l *Ledger) list(tb testing.TB, orders ...delivery.OrderID) {
	tb.Helper()
	w := &partitions.Wanted{Partition: orders[0].Partition(), New: orders}
	must(tb, l.Ownership.ReadOrders(tb.Context(), []*partitions.Wanted{w}))
	must(tb, l.advanceBy(tb.Context(), w.Partition, func(step *partitions.Step) {
		for _, o := range w.News {
			if o != nil {
				step.List(o)
			}
		}
	}))
}

func makeGroups(ctx context.Context, r *partitions.FeedReader) error {
	for _, s := range r.Streams {
		if err := r.Ledger.MakeGroups(ctx, s.Key); err != nil {
			return err
		}
		s.HasGroups = true
	}
	return nil
}

// readOwn takes up what the consumer has begun, in all streams.
func readOwn(ctx context.Context, r *partitions.FeedReader) error {
	errs := make([]error, len(r.Streams))
	for i, s := range r.Streams {
		errs[i] = r.ReadOwnOf(ctx, s.StreamRef)
	}
	return core.JoinCounted(errs)
}

// gather reads what is new once.
func gather(ctx context.Context, r *partitions.FeedReader) error {
	reading, handling := r.ReadNew(ctx)
	return core.JoinCounted([]error{reading, handling})
}

// collect reads a role's entries, own unfinished ones first, until it has n, and
// acknowledges none.
func collect(tb testing.TB, l *Ledger, role core.Role, consumer string, n int) []partitions.Entry {
	tb.Helper()
	return collectAs(tb, l, l.core.Partitions, role, consumer, n)
}

func collectFrom(tb testing.TB, l *Ledger, partitionList []core.Partition, role core.Role, n int) []partitions.Entry {
	tb.Helper()
	return collectAs(tb, l, partitionList, role, "c", n)
}

func collectAs(tb testing.TB, l *Ledger, partitionList []core.Partition, role core.Role, consumer string, n int) []partitions.Entry {
	tb.Helper()
	var got []partitions.Entry
	reader := partitions.NewFeedReader(l.core, &partitions.Feed{Role: role, Consumer: consumer, Batch: 1000, Every: time.Millisecond, Log: func(string, ...any) {},
		Handle: func(_ context.Context, batch []partitions.Entry) error {
			got = append(got, batch...)
			return nil
		}}, partitionList)

	must(tb, makeGroups(tb.Context(), reader))
	must(tb, readOwn(tb.Context(), reader))
	for deadline := time.Now().Add(testserver.Timeout); len(got) < n; {
		require(tb, !time.Now().After(deadline), "%d entries were handed out, want %d", len(got), n)
		must(tb, gather(tb.Context(), reader))
	}

	return got
}

func (s *env) tick(t *testing.T) {
	t.Helper()
	now := func() int64 { return get(s.core.Redis.Time(t.Context()).Result())(t).UnixMilli() }
	began := now()
	testserver.Await(t, "the next millisecond", func() bool { return now() > began })
}

func (s *env) stats(t *testing.T) operations.Stats {
	t.Helper()
	return get(s.Monitor.Stats(t.Context()))(t)
}

// lag is the exporter's.
func (s *env) lag(t *testing.T) partitions.Lag {
	t.Helper()
	return get(s.Streams.Lag(t.Context(), core.RoleExport))(t)
}

func redisInfo(tb testing.TB, l *Ledger, key string) []redis.XInfoGroup {
	tb.Helper()
	groups := get(l.core.Redis.XInfoGroups(tb.Context(), key).Result())(tb)
	return groups
}
