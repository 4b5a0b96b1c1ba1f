package validate

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/audit"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

// sourcesOf returns sources of an environment with an empty ClickHouse.
func sourcesOf(t *testing.T, e *testenv.Env) *Sources {
	t.Helper()
	options, err := redis.ParseURL(e.RedisURL)
	testenv.Must(t, err)
	options.ReadTimeout = testserver.Timeout
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })

	return &Sources{Ledger: e.Ledger, Redis: client, Stored: func() Archive { return Archive{} }}
}

func (r *redisReader) wantUnsettled(t *testing.T, what string, want ...unsettledGroup) {
	t.Helper()
	got, err := r.unsettledGroups(t.Context())
	testenv.Must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func (r *redisReader) wantRemains(t *testing.T, what string, want ...Remains) {
	t.Helper()
	got, err := r.remains(t.Context())
	testenv.Must(t, err)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func TestUnsettledGroups_HasEveryStreamAndGroup(t *testing.T) {
	t.Parallel()

	e := testenv.New(t)
	r := sourcesOf(t, e).reader()
	v := e.Vendor()
	r.wantUnsettled(t, "of a ledger that has settled everything")

	order := v.Order("", time.Now())
	p := order.ID.Partition()
	e.Accept(order, time.Now())
	r.wantUnsettled(t, "of an order and a report",
		unsettledGroup{partition: p, stream: "events", group: ledger.RoleStatus, unread: 1},
		unsettledGroup{partition: p, stream: "events", group: ledger.RoleWebhook, unread: 1},
		unsettledGroup{partition: p, stream: "events", group: ledger.RoleExport, unread: 1},
		unsettledGroup{partition: p, stream: "reports", group: ledger.RoleStatus, unread: 1},
	)

	// A failed attempt, then a final one, and an entry of the audit.
	_, _, err := e.Ledger.Webhooks.SetURL(t.Context(), v.Account, "https://vendor.example/hook")
	testenv.Must(t, err)
	e.Send(failed)
	e.Send(accepted)
	entry := audit.Entry{At: time.Now(), ID: audit.NewID(), Action: "a", Account: v.Account}
	testenv.Must(t, e.Ledger.Audit.Append(t.Context(), &entry))
	r.wantUnsettled(t, "of what is exported",
		unsettledGroup{partition: p, stream: "events", group: ledger.RoleExport, unread: 2},
		unsettledGroup{partition: p, stream: "outcomes", group: ledger.RoleExport, unread: 1},
		unsettledGroup{partition: p, stream: "attempts", group: ledger.RoleExport, unread: 1},
		unsettledGroup{partition: p, stream: "audit", group: ledger.RoleExport, unread: 1},
	)

	entries := read(t, e, ledger.RoleExport)
	r.wantUnsettled(t, "of what an exporter has been given",
		unsettledGroup{partition: p, stream: "events", group: ledger.RoleExport, pending: 2},
		unsettledGroup{partition: p, stream: "outcomes", group: ledger.RoleExport, pending: 1},
		unsettledGroup{partition: p, stream: "attempts", group: ledger.RoleExport, pending: 1},
		unsettledGroup{partition: p, stream: "audit", group: ledger.RoleExport, pending: 1},
	)

	testenv.Must(t, e.Ledger.Streams.Ack(t.Context(), ledger.RoleExport, entries...))
	r.wantUnsettled(t, "of what it has acknowledged")
}

// failed is the outcome of an attempt that is due again at once.
func failed(*partitions.Scheduled) partitions.AttemptRecord {
	return partitions.AttemptRecord{State: partitions.StateRetrying, NextAt: time.Now().Add(-time.Second)}
}

func accepted(*partitions.Scheduled) partitions.AttemptRecord {
	return partitions.AttemptRecord{State: partitions.StateDelivered}
}

// read reads what is new for a role, and acknowledges nothing.
func read(t *testing.T, e *testenv.Env, role ledger.Role) (entries []partitions.Entry) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_ = e.Ledger.Streams.Run(ctx, partitions.Feed{ // it ends with ctx only
		Role:     role,
		Consumer: "reader",
		Handle: func(_ context.Context, batch []partitions.Entry) error {
			entries = batch
			cancel()
			return nil
		},
	})

	return entries
}

// What Redis says of a group's lag goes by what the owner has told it, and is not known once an entry was removed.
func TestUnsettledGroups_CountsByPosition(t *testing.T) {
	t.Parallel()

	server := testserver.NewRedis(t)
	l := openLedger(t, server, 1)
	r := &redisReader{client: server.Client, partitions: partitionsOf(l.Environment(), 1)}
	r.wantUnsettled(t, "without any stream")

	for range 3 {
		testenv.Must(t, l.Webhooks.Publish(t.Context(), accounts.Notice{
			Account:    delivery.NewAccountID(),
			Type:       delivery.WebhookTest,
			OccurredAt: time.Now(),
			Data:       []byte("{}"),
		}))
	}

	wantEvents := func(what string, status, others int) {
		t.Helper()
		var want []unsettledGroup
		if status > 0 {
			want = append(want, unsettledGroup{stream: "events", group: ledger.RoleStatus, unread: status})
		}

		want = append(want, unsettledGroup{stream: "events", group: ledger.RoleWebhook, unread: others},
			unsettledGroup{stream: "events", group: ledger.RoleExport, unread: others})
		r.wantUnsettled(t, what, want...)
	}

	wantEvents("without any group", 3, 3)

	key := r.partitions[0].stream(streams[0])
	server.Do(t, "XGROUP", "CREATE", key, "status", "0")
	wantEvents("with a group that has read nothing", 3, 3)
	server.Do(t, "XGROUP", "SETID", key, "status", "0", "ENTRIESREAD", 3)
	wantEvents("with a group of which Redis was told that it has read everything", 3, 3)

	messages, err := server.Client.XRange(t.Context(), key, "-", "+").Result()
	testenv.Must(t, err)
	server.Do(t, "XDEL", key, messages[1].ID)
	wantEvents("without the entry in the middle", 2, 2)
	server.Do(t, "XGROUP", "SETID", key, "status", messages[0].ID)
	wantEvents("behind the first entry", 1, 2)
	server.Do(t, "XGROUP", "SETID", key, "status", messages[2].ID)
	wantEvents("behind the last entry", 0, 2)
}

func TestUnsettledGroups_FailsWhereAStreamIsNone(t *testing.T) {
	t.Parallel()
	server := testserver.NewRedis(t)
	r := &redisReader{client: server.Client, partitions: partitionsOf(delivery.Sandbox, 1)}
	server.Do(t, "SET", r.partitions[0].stream(streams[0]), "text")
	if left, err := r.unsettledGroups(t.Context()); err == nil {
		t.Errorf("left: %+v", left)
	}
}

func TestRemains_HasWhatWaitsAndWhatIsCounted(t *testing.T) {
	t.Parallel()

	e := testenv.New(t)
	s := sourcesOf(t, e)
	r := s.reader()
	v := e.Vendor()
	e.Vendor() // nothing waits for this one
	_, _, err := e.Ledger.Webhooks.SetURL(t.Context(), v.Account, "https://vendor.example/hook")
	testenv.Must(t, err)
	order := v.Order("", time.Now())
	e.Move(order, delivery.Assigned, time.Now())
	order = e.Read(order.ID)
	account, event := v.Account.String(), Subject(order.ID.String(), delivery.Sequence(order.Version))
	r.wantRemains(t, "before anything was sent")

	e.Decide()
	r.wantRemains(t, "of a scheduled event", Remains{Account: account, Waiting: []string{event}})
	e.Send(failed)
	r.wantRemains(t, "after a failed attempt", Remains{Account: account, Waiting: []string{event}, Counts: 1})
	e.Send(accepted)
	r.wantRemains(t, "after the event has ended")
	_, err = e.Ledger.Webhooks.ReplayEvents(t.Context(), v.Account, []string{delivery.EventID(order.ID, order.Version)})
	testenv.Must(t, err)
	r.wantRemains(t, "of a replayed event", Remains{Account: account, Waiting: []string{event}, Counts: 2})

	id := string(v.Account[:])
	remove(t, s, "}d"+id)
	r.wantRemains(t, "of counts of what does not wait", Remains{Account: account, Counts: 2})
	remove(t, s, "}c"+id)
	r.wantRemains(t, "of an event that a replay has added, and that does not wait", Remains{Account: account, Counts: 1})
	remove(t, s, "}c"+id+"r")
	r.wantRemains(t, "without any key")
}

// remove removes the only key that ends so.
func remove(t *testing.T, s *Sources, suffix string) {
	t.Helper()
	keys, err := s.Redis.Keys(t.Context(), "*").Result()
	testenv.Must(t, err)
	keys = without(keys, func(key string) bool { return !strings.HasSuffix(key, suffix) })
	if len(keys) != 1 {
		t.Fatalf("keys that end in %q: %q", suffix, keys)
	}

	testenv.Must(t, s.Redis.Del(t.Context(), keys...).Err())
}

// Finance has a receiver, and is in no set of accounts.
func TestRemains_HasWhatWaitsForFinance(t *testing.T) {
	t.Parallel()

	e := testenv.New(t)
	r := sourcesOf(t, e).reader()
	_, _, err := e.Ledger.Webhooks.SetURL(t.Context(), delivery.FinanceAccount, "https://finance.example/hook")
	testenv.Must(t, err)
	report := delivery.AvailableReport{ID: "r", Kind: delivery.ReportScheduled, At: time.Now()}
	event, err := e.Ledger.Webhooks.AnnounceReport(t.Context(), &report, time.Now())
	testenv.Must(t, err)

	e.Decide()

	r.wantRemains(t, "of a report", Remains{Account: delivery.FinanceAccount.String(), Waiting: []string{event}})
}

func TestRemains_RefusesWhatIsNoAccount(t *testing.T) {
	t.Parallel()

	e := testenv.New(t)
	s := sourcesOf(t, e)
	r := s.reader()
	e.Vendor()
	testenv.Must(t, s.Redis.SAdd(t.Context(), r.partitions[0].accounts(), "short").Err())
	if left, err := r.remains(t.Context()); err == nil {
		t.Errorf("left: %+v", left)
	}
}
