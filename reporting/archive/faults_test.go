package archive

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

// Writers go on over kill -9 at any moment, sending again what was not
// acknowledged: everything is there, once.
func TestInsert_SurvivesKill(t *testing.T) {
	t.Parallel()
	e := testserver.DedicatedClickHouse(t)
	a := open(t, e, e.NewDatabase(t))
	_, err := a.Migrate(t.Context())
	noError(t, err)
	const writers, rounds, perBatch = 3, 5, 300
	var stop atomic.Bool
	var mu sync.Mutex
	var acknowledged []*delivery.Order
	var running sync.WaitGroup
	var repeated atomic.Int64
	for w := range writers {
		running.Go(func() {
			for n := 0; !stop.Load(); n++ {
				var all []*delivery.Order
				for i := range perBatch {
					// Two months, so that a batch has two parts.
					all = append(all, newOrder(account(w*100+i%10), (w*1000+n)*perBatch+i, noon.AddDate(0, 0, i%20), toDelivered[:i%6]...))
				}
				insertUntilStored(t, a, batchOf(all...), &repeated)
				mu.Lock()
				acknowledged = append(acknowledged, all...)
				mu.Unlock()
			}
		})
	}
	for range rounds {
		time.Sleep(100*time.Millisecond + time.Duration(rand.IntN(150))*time.Millisecond)
		e.Kill(t)
		e.Start(t)
	}
	stop.Store(true)
	running.Wait()
	t.Logf("%d orders acknowledged, %d inserts repeated, over %d kills", len(acknowledged), repeated.Load(), rounds)
	if repeated.Load() == 0 {
		t.Error("no kill hit an insert")
	}
	requireStored(t, a, noon, noon.AddDate(0, 1, 0), acknowledged...)
}

func insertUntilStored(t *testing.T, a *Archive, b *Batch, repeated *atomic.Int64) {
	for began := time.Now(); ; repeated.Add(1) {
		err := a.Insert(t.Context(), b)
		if err == nil {
			return
		}
		if !errors.Is(err, delivery.ErrUnavailable) || time.Since(began) > time.Minute {
			t.Error(err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestArchive_AwayAndBack(t *testing.T) {
	t.Parallel()
	e := testserver.DedicatedClickHouse(t)
	a := open(t, e, e.NewDatabase(t))
	_, err := a.Migrate(t.Context())
	noError(t, err)
	o := newOrder(account(1), 1, noon, toDelivered...)
	calls := map[string]func(context.Context) error{
		"Ping":    a.Ping,
		"Insert":  func(ctx context.Context) error { return a.InsertAnew(ctx, batchOf(o)) },
		"Migrate": func(ctx context.Context) error { _, err := a.Migrate(ctx); return err },
		"Stored": func(ctx context.Context) error {
			for _, err := range a.Stored(ctx, Selection{From: noon, To: noon}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"AccountsOf": func(ctx context.Context) error { _, err := a.AccountsOf(ctx, noon); return err },
		"Misplaced":  func(ctx context.Context) error { _, err := a.Misplaced(ctx, []Place{{Day: noon}}); return err },
		"Remove":     func(ctx context.Context) error { return a.Remove(ctx, []Place{{Account: account(2), Day: noon}}) },
	}
	each := func(check func(name string, err error)) {
		for name, call := range calls {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			check(name, call(ctx))
			cancel()
		}
	}
	works := func(name string, err error) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	each(works)
	e.Stop(t)
	for range 3 {
		each(func(name string, err error) {
			if !errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), strings.TrimPrefix(e.URL, "http://")) ||
				strings.Contains(err.Error(), "ledger") {
				t.Errorf("%s, while it is away: %v", name, err)
			}
		})
	}
	e.Start(t)
	each(works)
	requireStored(t, a, noon, noon, o)
}

// A reader that is cut off says so: half a day must not look like a whole one.
func TestStored_ClickHouseKilledWhileReading(t *testing.T) {
	t.Parallel()
	e := testserver.DedicatedClickHouse(t)
	a := open(t, e, e.NewDatabase(t))
	_, err := a.Migrate(t.Context())
	noError(t, err)
	b := &Batch{}
	const all = 2 * rowsAtOnce
	random := make([]byte, 1000) // what cannot be compressed does not fit into the sockets
	for i := range all {
		row := OrderOf(newOrder(account(i%5), i, noon), kebap)
		_, _ = crand.Read(random)
		row.ExternalOrderID = hex.EncodeToString(random)
		b.Orders = append(b.Orders, row)
	}
	noError(t, a.Insert(t.Context(), b))
	n := 0
	err = nil
	for _, failure := range a.Stored(t.Context(), Selection{From: noon, To: noon}) {
		if err = failure; err != nil {
			break
		}
		if n++; n == 10 {
			e.Kill(t)
		}
	}
	if !errors.Is(err, delivery.ErrUnavailable) || n >= all {
		t.Errorf("%d of %d orders, then %v", n, all, err)
	}
}

// The end of a context is told as such: nobody should wait for ClickHouse then.
func TestArchive_ContextEnds(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := a.Insert(ctx, batchOf(newOrder(account(1), 1, noon)))
	if !errors.Is(err, context.Canceled) || errors.Is(err, delivery.ErrUnavailable) {
		t.Error(err)
	}
	// In the middle of the rows.
	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	rows, err := a.Select(ctx, "SELECT repeat('x', 10000), sleepEachRow(0.001) FROM numbers(1000000) SETTINGS max_block_size = 100")
	noError(t, err)
	defer rows.Close()
	for range 5 {
		if !rows.Next() {
			t.Fatal(rows.Err())
		}
	}
	cancel()
	began := time.Now()
	for rows.Next() {
	}
	if err := rows.Err(); !errors.Is(err, context.Canceled) || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	noError(t, a.Ping(t.Context()))
}

func TestArchive_AddressWithoutClickHouse(t *testing.T) {
	t.Parallel()
	a, err := Open(Settings{URL: "http://finance:SECRET@127.0.0.1:1"})
	noError(t, err)
	err = a.Ping(t.Context())
	if !errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), "127.0.0.1:1, ping") ||
		strings.Contains(err.Error(), "SECRET") {
		t.Error(err)
	}
	noError(t, a.Close())
}

func TestArchive_WithoutDatabaseOrTables(t *testing.T) {
	t.Parallel()
	e := testserver.SharedClickHouse(t)
	a := open(t, e, e.NewDatabase(t))
	noError(t, a.Ping(t.Context()))
	b := batchOf(newOrder(account(1), 1, noon))
	for _, want := range []string{"has no database " + a.database + " (`reporting migrate` makes it)", "`reporting migrate` makes the tables"} {
		err := a.Insert(t.Context(), b)
		if err == nil || errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
		noError(t, a.makeDatabase(t.Context()))
	}
}

// Select cannot change anything, and says what is wrong with a query.
func TestSelect_Refusals(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for query, want := range map[string]string{
		"SELECT nothing FROM orders": "nothing",
		"SELEC 1":                    "Syntax error",
		"DROP TABLE orders":          "readonly mode",
	} {
		rows, err := a.Select(t.Context(), query)
		if err == nil {
			t.Errorf("%s: no error", query)
			rows.Close()
			continue
		}
		if errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", query, err)
		}
	}
	// A fault after the first rows.
	rows, err := a.Select(t.Context(), "SELECT throwIf(number = 200000, 'too far'), repeat('x', 100) FROM numbers(1000000) SETTINGS max_block_size = 1000")
	noError(t, err)
	defer rows.Close()
	n := 0
	for rows.Next() {
		n++
	}
	if err := rows.Err(); err == nil || n > 200_000 || !strings.Contains(err.Error(), "clickhouse at") {
		t.Errorf("%d rows, then %v", n, err)
	}
}

// Servers say more than the embedded engine can, which has no users and is no
// part of a cluster.
func TestFault_Kinds(t *testing.T) {
	t.Parallel()
	a, err := Open(Settings{URL: "http://finance:SECRET@ch.example:8123"})
	noError(t, err)
	exception := func(code int32, name string) error {
		return &clickhouse.HTTPError{StatusCode: 500, Err: &clickhouse.Exception{Code: code, Name: "DB::Exception", Message: name}}
	}
	for _, c := range []struct {
		cause       error
		unavailable bool
		want        string
	}{
		{exception(516, "finance: Authentication failed"), false, "refuses the user or the password"},
		{exception(497, "Not enough privileges"), false, "Not enough privileges"},
		{exception(47, "Unknown identifier"), false, "Unknown identifier"},
		{exception(241, "Memory limit exceeded"), true, "Memory limit exceeded"},
		{exception(242, "Table is in readonly mode: no ZooKeeper"), true, "ZooKeeper"},
		{exception(252, "Too many parts"), true, "Too many parts"},
		{exception(999, "Keeper exception"), true, "Keeper"},
		{exception(243, "Cannot reserve 1 MiB, not enough space"), true, "space"},
		{&clickhouse.HTTPError{StatusCode: 502, Err: errors.New("Bad Gateway")}, true, "Bad Gateway"},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true, "connection refused"},
		{context.DeadlineExceeded, true, "no answer in time"},
		{&url.Error{Op: "Post", URL: "http://finance:SECRET@ch.example", Err: errors.New("EOF")}, true, "EOF"},
	} {
		got := a.fault(t.Context(), "insert", c.cause)
		if errors.Is(got, delivery.ErrUnavailable) != c.unavailable || !strings.Contains(got.Error(), c.want) ||
			!strings.Contains(got.Error(), "ch.example:8123") || strings.Contains(got.Error(), "SECRET") {
			t.Errorf("%v: %v", c.cause, got)
		}
	}
	if err := a.fault(t.Context(), "insert", nil); err != nil {
		t.Error(err)
	}
}
