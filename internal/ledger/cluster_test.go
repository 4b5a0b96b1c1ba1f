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
	cluster, err := stack.StartCluster(t.Context(), t.TempDir(), 3)
	must(t, err)
	t.Cleanup(cluster.Stop)
	l, err := Open(t.Context(), Config{URL: cluster.URL, Environment: "production", Pipelines: 1, Secrets: testSecrets, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	if !l.cluster {
		t.Fatal("the cluster was not recognised")
	}
	must(t, l.Ping(t.Context()))
	masters := make(map[string]int)
	for _, r := range l.rooms {
		one, err := l.rdb.(*redis.ClusterClient).MasterForKey(t.Context(), r.prefix)
		must(t, err)
		masters[one.Options().Addr]++
	}
	for master, n := range masters {
		if n < 5 || n > 6 {
			t.Errorf("master %s has %d of 16 partitions", master, n)
		}
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
	accounts, err := l.Accounts(t.Context())
	must(t, err)
	if len(accounts) != 12 {
		t.Errorf("%d accounts", len(accounts))
	}
	_, err = l.Stats(t.Context())
	must(t, err)
	must(t, l.CountFailedLogin(t.Context(), "ven", "127.0.0.1"))
	must(t, l.FlushMinutes(t.Context(), time.Now()))
	session, _, err := l.CreateSession(t.Context(), ayse)
	must(t, err)
	_, err = l.Session(t.Context(), session)
	must(t, err)
	clusterLists(t, l)
	must(t, errors.Join(l.CountSignIn(t.Context(), "ayse", "192.0.2.1/32"),
		l.ForgiveSignIns(t.Context(), "ayse", "192.0.2.1/32"), l.EndSession(t.Context(), session)))
}

func clusterWay(t *testing.T, s *env) {
	t.Helper()
	s.register(t)
	first, _, err := s.CreateOrder(t.Context(), s.creation("X-1", "key"))
	must(t, err)
	again, _, err := s.CreateOrder(t.Context(), s.creation("X-1", "key"))
	must(t, err)
	if !again.Replayed {
		t.Error("not replayed")
	}
	o := first.Order
	_, _, err = s.PollOrder(t.Context(), s.account, o.ID)
	must(t, err)
	s.report(t, o.ID, delivery.Assigned)
	ignored, err := s.ReportLocations(t.Context(), s.fleet.ID, []Position{{o.ID, delivery.Location{Point: taksim, At: time.Now()}}}, time.Now())
	must(t, err)
	if ignored != 0 {
		t.Error("the location was ignored")
	}
	partition := o.ID.Partition()
	reader := s.rooms[partition : partition+1]
	entries := collectFrom(t, s.Ledger, reader, RoleStatus, 2)
	must(t, s.IndexJobs(t.Context(), partition, entries[:1]))
	result, err := s.CommitAll(t.Context(), []Commit{{Order: o, Settles: entries[1:],
		Changes: []delivery.Change{{Status: delivery.Assigned, At: time.Now()}}}})
	must(t, err)
	must(t, result[0])
	_, err = s.QueueEvents(t.Context(), partition, collectFrom(t, s.Ledger, reader, RoleWebhook, 2), noGrant)
	must(t, err)
	// Other accounts of the partition may have something due too.
	ds, _, err := s.Lease(t.Context(), partition, grant(100))
	must(t, err)
	mine := 0
	for _, d := range ds {
		s.record(t, d, Outcome{OK: true, Status: 200})
		if d.Account == s.account {
			mine++
		}
	}
	if mine != 1 {
		t.Errorf("%d events leased, want 1", mine)
	}
	n, err := s.ReplaySince(t.Context(), s.account, time.Now().Add(-time.Hour))
	must(t, err)
	if n != 1 {
		t.Errorf("%d replayed", n)
	}
	_, _, err = s.CancelOrder(t.Context(), s.account, o.ID, "", "", time.Now())
	must(t, err)
	jobs, _, err := s.Jobs(t.Context(), s.fleet.ID, delivery.Cancelled, "", 10)
	must(t, err)
	if len(jobs) != 1 {
		t.Errorf("%d cancelled jobs", len(jobs))
	}
}

// clusterLists reads what operators see of the twelve shops, over all masters.
func clusterLists(t *testing.T, l *Ledger) {
	t.Helper()
	ids, err := l.accountIDs(t.Context())
	must(t, err)
	uses, err := l.Usage(t.Context(), append(ids, delivery.NewAccountID()))
	must(t, err)
	for i := range ids {
		if got := uses[i][EndpointOrders].Sustained.Used; got != 2 {
			t.Errorf("%d orders used", got)
		}
	}
	if uses[12] != nil {
		t.Errorf("an unknown account's use: %+v", uses[12])
	}
	l.CountRefusal(delivery.CodeRateLimited)
	must(t, l.FlushMinutes(t.Context(), time.Now()))
	minutes, err := l.Activity(t.Context(), 5)
	must(t, err)
	var created, cancelled, refused int64
	for _, m := range minutes {
		created, cancelled, refused = created+m.Created, cancelled+m.Cancelled, refused+m.Refused[delivery.CodeRateLimited]
	}
	if created != 12 || cancelled != 12 || refused != 1 {
		t.Errorf("%d created, %d cancelled, %d refused", created, cancelled, refused)
	}
	for _, r := range l.rooms {
		must(t, l.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: r.key(kindRefused), Values: []any{"reason", "r"}}).Err())
		must(t, l.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: r.key(kindDeadLetters),
			Values: []any{"stream", r.key(kindEvents), "entry", "1-1"}}).Err())
	}
	traces, err := l.RefusedUpdates(t.Context(), 100)
	must(t, err)
	letters, err := l.DeadLetters(t.Context(), 100)
	must(t, err)
	orders, err := l.FindOrders(t.Context(), "X-1")
	must(t, err)
	stores, more, err := l.FindStores(t.Context(), StoreFilter{Text: "şub"}, 11)
	must(t, err)
	fleets := l.Fleets().All()
	one, _, err := l.FindStores(t.Context(), StoreFilter{Fleet: fleets[0].ID}, 11)
	must(t, err)
	endpoints, err := l.WebhookEndpoints(t.Context())
	must(t, err)
	if len(traces) != 16 || len(letters) != 16 || len(orders) != 12 || len(stores) != 11 || !more || len(one) != 1 || len(endpoints) != 12 {
		t.Errorf("%d traces, %d letters, %d orders, %d and %d stores, %d endpoints",
			len(traces), len(letters), len(orders), len(stores), len(one), len(endpoints))
	}
}
