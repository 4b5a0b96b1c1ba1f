package ledger

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
)

// TestCluster_WholeWayOfAnOrder runs every script against three masters: a key
// outside its script's slot would be refused there.
func TestCluster_WholeWayOfAnOrder(t *testing.T) {
	cluster := get(stack.StartCluster(t.Context(), t.TempDir(), 3))(t)
	t.Cleanup(cluster.Stop)
	l := get(Open(t.Context(), Config{URL: cluster.URL, Environment: "production", Pipelines: 1, Secrets: testSecrets, Log: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() { _ = l.Close() })
	require(t, l.cluster, "the cluster was not recognised")
	must(t, l.Ping(t.Context()))
	masters := make(map[string]int)
	for _, r := range l.rooms {
		one := get(l.rdb.(*redis.ClusterClient).MasterForKey(t.Context(), r.prefix))(t)
		masters[one.Options().Addr]++
	}
	for master, n := range masters {
		check(t, n >= 5 && n <= 6, "master %s has %d of 16 partitions", master, n)
	}
	// Enough accounts to meet every master.
	for range 12 {
		s := newVendor(t, l)
		clusterWay(t, s)
	}
	for p := range l.Partitions() {
		if _, err := l.Trim(t.Context(), p, time.Hour); err != nil {
			t.Error(err)
		}
		if _, err := l.Retire(t.Context(), p, time.Now(), 10); err != nil {
			t.Error(err)
		}
		if _, err := l.DueOrders(t.Context(), p, time.Now(), 10); err != nil {
			t.Error(err)
		}
	}
	accounts := get(l.Accounts(t.Context()))(t)
	check(t, len(accounts) == 12, "%d accounts", len(accounts))
	get(l.Stats(t.Context()))(t)
	must(t, l.CountFailedLogin(t.Context(), "ven", "127.0.0.1"))
	must(t, l.FlushMinutes(t.Context(), time.Now()))
	session, _ := get2(l.CreateSession(t.Context(), ayse))(t)
	get(l.Session(t.Context(), session))(t)
	clusterLists(t, l)
	must(t, errors.Join(l.CountSignIn(t.Context(), "ayse", "192.0.2.1/32"),
		l.ForgiveSignIns(t.Context(), "ayse", "192.0.2.1/32"), l.EndSession(t.Context(), session)))
}

func clusterWay(t *testing.T, s *env) {
	t.Helper()
	s.register(t)
	first, _ := get2(s.CreateOrder(t.Context(), s.creation("X-1", "key")))(t)
	again, _ := get2(s.CreateOrder(t.Context(), s.creation("X-1", "key")))(t)
	check(t, again.Replayed, "not replayed")
	o := first.Order
	get2(s.PollOrder(t.Context(), s.account, o.ID))(t)
	s.report(t, o.ID, delivery.Assigned)
	ignored := get(s.ReportLocations(t.Context(), s.fleet.ID, []Position{{o.ID, delivery.Location{Point: taksim, At: time.Now()}}}, time.Now()))(t)
	check(t, ignored == 0, "the location was ignored")
	partition := o.ID.Partition()
	reader := s.rooms[partition : partition+1]
	entries := collectFrom(t, s.Ledger, reader, RoleStatus, 2)
	must(t, s.IndexJobs(t.Context(), partition, entries[:1]))
	result, err := s.CommitAll(t.Context(), []Commit{{Order: o, Settles: entries[1:],
		Changes: []delivery.Change{{Status: delivery.Assigned, At: time.Now()}}}})
	must(t, err)
	must(t, result[0])
	get(s.QueueEvents(t.Context(), partition, collectFrom(t, s.Ledger, reader, RoleWebhook, 2), noGrant))(t)
	// Other accounts of the partition may have something due too.
	ds, _ := get2(s.Lease(t.Context(), partition, grant(100)))(t)
	mine := 0
	for _, d := range ds {
		s.record(t, d, Outcome{OK: true, Status: 200})
		if d.Account == s.account {
			mine++
		}
	}
	check(t, mine == 1, "%d events leased, want 1", mine)
	n := get(s.ReplaySince(t.Context(), s.account, time.Now().Add(-time.Hour)))(t)
	check(t, n == 1, "%d replayed", n)
	get2(s.CancelOrder(t.Context(), s.account, o.ID, "", "", time.Now()))(t)
	jobs, _ := get2(s.Jobs(t.Context(), s.fleet.ID, delivery.Cancelled, "", 10))(t)
	check(t, len(jobs) == 1, "%d cancelled jobs", len(jobs))
}

// clusterLists reads what operators see of the twelve shops, over all masters.
func clusterLists(t *testing.T, l *Ledger) {
	t.Helper()
	ids := get(l.accountIDs(t.Context()))(t)
	uses := get(l.Usage(t.Context(), append(ids, delivery.NewAccountID())))(t)
	for i := range ids {
		if got := uses[i][EndpointOrders].Sustained.Used; got != 2 {
			t.Errorf("%d orders used", got)
		}
	}
	check(t, uses[12] == nil, "an unknown account's use: %+v", uses[12])
	l.CountRefusal(delivery.CodeRateLimited)
	must(t, l.FlushMinutes(t.Context(), time.Now()))
	minutes := get(l.Activity(t.Context(), 5))(t)
	var created, cancelled, refused int64
	for _, m := range minutes {
		created, cancelled, refused = created+m.Created, cancelled+m.Cancelled, refused+m.Refused[delivery.CodeRateLimited]
	}
	check(t, created == 12 && cancelled == 12 && refused == 1, "%d created, %d cancelled, %d refused", created, cancelled, refused)
	for _, r := range l.rooms {
		must(t, l.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: r.key(kindRefused), Values: []any{"reason", "r"}}).Err())
		must(t, l.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: r.key(kindDeadLetters),
			Values: []any{"stream", r.key(kindEvents), "entry", "1-1"}}).Err())
	}
	traces := get(l.RefusedUpdates(t.Context(), 100))(t)
	letters := get(l.DeadLetters(t.Context(), 100))(t)
	orders := get(l.FindOrders(t.Context(), "X-1"))(t)
	stores, more := get2(l.FindStores(t.Context(), StoreFilter{Text: "şub"}, 11))(t)
	fleets := l.Fleets().All()
	one, _ := get2(l.FindStores(t.Context(), StoreFilter{Fleet: fleets[0].ID}, 11))(t)
	endpoints := get(l.WebhookEndpoints(t.Context()))(t)
	check(t, len(traces) == 16 && len(letters) == 16 && len(orders) == 12 && len(stores) == 11 && more && len(one) == 1 && len(endpoints) == 12,
		"%d traces, %d letters, %d orders, %d and %d stores, %d endpoints", len(traces), len(letters), len(orders), len(stores), len(one), len(endpoints))
}
