package archive

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

// The end of a context is reported as such: nobody should wait for ClickHouse then.
func TestArchive_ContextEnds(t *testing.T) {
	t.Parallel()

	a := idleArchive(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := a.Insert(ctx, batchOf(newOrder(account(1), 1, noon)))
	if !errors.Is(err, context.Canceled) || errors.Is(err, delivery.ErrUnavailable) {
		t.Error(err)
	}

	// In the middle of the rows.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	n := 0
	err = a.Each(ctx, "SELECT repeat('x', 10000), sleepEachRow(0.001) FROM numbers(1000000) SETTINGS max_block_size = 100", func(driver.Rows) error {
		n++
		if n == 5 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n > 900_000 {
		t.Errorf("%d rows, then %v", n, err)
	}

	noError(t, a.Ping(t.Context()))
}

func TestArchive_AddressWithoutClickHouse(t *testing.T) {
	t.Parallel()

	a, err := Open(Settings{URL: "http://finance:SECRET@127.0.0.1:1"})
	noError(t, err)
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"ping":       func() error { return a.Ping(ctx) },
		"Insert":     func() error { return a.InsertAgain(ctx, batchOf(newOrder(account(1), 1, noon))) },
		"Migrate":    func() error { _, err := a.Migrate(ctx); return err },
		"AccountsOf": func() error { _, err := a.AccountsOf(ctx, noon); return err },
		"Misplaced":  func() error { _, err := a.Misplaced(ctx, []Place{{Day: noon}}); return err },
		"Remove":     func() error { return a.Remove(ctx, []Place{{Account: account(2), Day: noon}}) },
		"Stored":     func() error { return a.Stored(ctx, Selection{From: noon, To: noon}, nil) },
	} {
		err := call()
		if !errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), "127.0.0.1:1, ") || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", name, err)
		}
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

// Each cannot change anything, and says what is wrong with a query.
func TestEach_Refusals(t *testing.T) {
	t.Parallel()

	a := idleArchive(t)
	for query, want := range map[string]string{
		"SELECT nothing FROM orders": "nothing",
		"SELEC 1":                    "Syntax error",
		"DROP TABLE orders":          "readonly mode",
	} {
		err := a.Each(t.Context(), query, func(driver.Rows) error { return nil })
		if err == nil || errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", query, err)
		}
	}

	// A fault after the first rows.
	n := 0
	err := a.Each(t.Context(), "SELECT throwIf(number = 200000, 'too far'), repeat('x', 100) FROM numbers(1000000) SETTINGS max_block_size = 1000",
		func(driver.Rows) error { n++; return nil })
	if err == nil || n > 200_000 || !strings.Contains(err.Error(), "clickhouse at") {
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

// What a server says is quoted, but not without end.
func TestFault_CutsWhatTheServerSays(t *testing.T) {
	t.Parallel()

	a, err := Open(Settings{URL: "http://ch.example:8123"})
	noError(t, err)
	foreign := strings.Repeat("x\xff\x00\r\n", 12_000)
	for name, cause := range map[string]error{
		"an exception":   &clickhouse.Exception{Code: 47, Name: "DB::Exception", Message: foreign},
		"a proxy's page": &clickhouse.HTTPError{StatusCode: 502, Err: errors.New(foreign)},
		"a user":         &clickhouse.Exception{Code: 516, Name: "DB::Exception", Message: foreign},
	} {
		got := a.fault(t.Context(), "insert", cause)
		n := len(got.Error())
		if n > 1000 || strings.ContainsAny(got.Error(), "\r\n\x00") || !errors.Is(got, cause) {
			t.Errorf("%s: %d bytes: %q", name, n, got)
		}
	}
}
