package archive

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

func TestStored_Selects(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	var all []*delivery.Order
	for i := range 300 {
		all = append(all, newOrder(account(i%5), i, noon.AddDate(0, 0, i%3), toDelivered[:i%6]...))
	}

	noError(t, a.Insert(t.Context(), batchOf(all...)))
	requireStored(t, a, noon, noon.AddDate(0, 0, 2), all...)
	for what, c := range map[string]struct {
		selection Selection
		want      int
	}{
		"a day":       {Selection{From: noon, To: noon}, 100},
		"two days":    {Selection{From: noon, To: noon.AddDate(0, 0, 1)}, 200},
		"an account":  {Selection{From: noon, To: noon.AddDate(0, 0, 2), Accounts: []delivery.AccountID{account(3)}}, 60},
		"two at once": {Selection{From: noon, To: noon, Accounts: []delivery.AccountID{account(3), account(0), account(99)}}, 40},
		"orders":      {Selection{From: noon, To: noon, Orders: []delivery.OrderID{all[0].ID, all[3].ID, all[1].ID}}, 2},
		"another day": {Selection{From: noon.AddDate(0, 1, 0), To: noon.AddDate(0, 1, 0)}, 0},
	} {
		got := stored(t, a, c.selection)
		if len(got) != c.want {
			t.Errorf("%s: %d orders, want %d", what, len(got), c.want)
		}
	}
}

func TestSummed_IsWhatTheRowSays(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	o := newOrder(account(1), 1, noon, toDelivered...)
	o.OrderAmount = delivery.Money{}
	noError(t, a.Insert(t.Context(), batchOf(o)))
	read := func() (*delivery.Order, error) { return stored(t, a, Selection{From: noon, To: noon})[0].Summed() }
	if got, err := read(); err != nil || got.Status != delivery.Delivered || got.OrderAmount != o.OrderAmount || got.Payment != o.Payment {
		t.Errorf("%+v %v", got, err)
	}

	noError(t, a.exec(t.Context(), "INSERT INTO orders SELECT * REPLACE(-1 AS order_amount, version + 1 AS version) FROM orders FINAL"))
	if got, err := read(); err == nil || !strings.Contains(err.Error(), o.ID.String()) {
		t.Errorf("%+v %v", got, err)
	}

	noError(t, a.exec(t.Context(), "DELETE FROM orders WHERE 1"))
	if got, err := read(); err == nil {
		t.Errorf("%+v", got)
	}
}

func TestStored_Refusals(t *testing.T) {
	t.Parallel()

	a := idleArchive(t)
	for want, s := range map[string]Selection{
		"no day is from 2026-11-21 to 2026-11-20": {From: noon, To: noon.AddDate(0, 0, -1)},
		"at most 10000 can":                       {From: noon, To: noon, Accounts: make([]delivery.AccountID, MaxListed+1)},
	} {
		if err := a.Stored(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}

	// The longest list fits.
	if got := stored(t, a, Selection{From: noon, To: noon, Accounts: make([]delivery.AccountID, MaxListed)}); len(got) != 0 {
		t.Errorf("%d orders", len(got))
	}
}

// A reader that has seen enough leaves no connection behind.
func TestStored_MayBeLeft(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	b := &Batch{}
	for i := range 1000 {
		o := newOrder(account(i%5), i, noon, delivery.Assigned)
		b.Orders, b.Events = append(b.Orders, OrderOf(o, kebap)), append(b.Events, EventsOf(o)...)
	}

	noError(t, a.Insert(t.Context(), b))
	ctx, cancel := context.WithTimeout(t.Context(), testserver.Timeout)
	defer cancel()
	for range 30 { // there are 24 connections
		enough := errors.New("enough")
		if err := a.Stored(ctx, Selection{From: noon, To: noon}, func(*Stored) error { return enough }); !errors.Is(err, enough) {
			t.Fatal(err)
		}
	}

	noError(t, a.Ping(ctx))
}

// Every column that derives from the order is compared: a row that was changed
// in it is found, with both values.
func TestDifferences_FindEveryColumn(t *testing.T) {
	t.Parallel()

	columns := map[string]string{ // besides the keys
		"version": "version + 1", "external_order_id": "'x'", "external_store_id": "'x'", "fleet_id": "toUUID('00000000-0000-0000-0000-000000000001')",
		"fleet_name": "'x'", "status": "'Nonsense'", "failure_reason": "'x'", "cancel_reason": "'x'", "created_at": "created_at + 1", "ordered_at": "NULL",
		"ready_at": "ready_at + 1", "assigned_at": "NULL", "picked_up_at": "picked_up_at + 1", "delivered_at": "NULL", "ended_at": "NULL",
		"updated_at": "updated_at + 1", "payment_type": "''", "order_amount": "NULL", "collection_amount": "collection_amount + 0.01",
		"without_courier": "not without_courier",
	}
	if want := len(orders.columns) - 6; len(columns) != want { // three keys, two of the store, and the courier
		t.Fatalf("%d columns are tried, there are %d", len(columns), want)
	}

	a := newArchive(t)
	wrong := map[delivery.OrderID]string{}
	var all []*delivery.Order
	var places []Place
	for column := range columns {
		o := newOrder(account(1), len(all), noon, toDelivered...)
		o.OrderedAt = noon.Add(-time.Minute)
		all, places, wrong[o.ID] = append(all, o), append(places, PlaceOf(o)), column
	}

	noError(t, a.Insert(t.Context(), batchOf(all...)))
	for id, column := range wrong {
		replaced := "version + 10 AS version"
		if column != "version" {
			replaced += ", " + columns[column] + " AS " + column
		}
		noError(t, a.exec(t.Context(), "INSERT INTO orders SELECT * REPLACE("+replaced+") FROM orders FINAL WHERE order_id = '"+id.String()+"'"))
	}

	found := map[delivery.OrderID]*Stored{}
	for _, s := range stored(t, a, Selection{From: noon, To: noon}) {
		found[s.Order] = s
	}

	for _, o := range all {
		column := wrong[o.ID]
		row := OrderOf(o, nil)
		differences := slices.DeleteFunc(found[o.ID].Differences(&row, EventsOf(o)),
			func(d string) bool { return column != "version" && strings.HasPrefix(d, "orders.version is ") })
		if len(differences) != 1 || !strings.HasPrefix(differences[0], "orders."+column+" is ") {
			t.Errorf("%s: %v", column, differences)
		}
	}

	// As reconciliation repairs: the wrong rows have the higher versions.
	noError(t, a.Remove(t.Context(), places))
	requireStored(t, a, noon, noon)
	noError(t, a.InsertAgain(t.Context(), batchOf(all...)))
	requireStored(t, a, noon, noon, all...)
}

func TestPlaces_MisplacedRowsAreFoundAndRemoved(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	var all []*delivery.Order
	var right []Place
	for i := range 50 {
		o := newOrder(account(i%5), i, noon.AddDate(0, 0, i%2), delivery.Assigned)
		all, right = append(all, o), append(right, PlaceOf(o))
	}

	noError(t, a.Insert(t.Context(), batchOf(all...)))
	wrong, err := a.Misplaced(t.Context(), right)
	if err != nil || len(wrong) != 0 {
		t.Fatalf("%v %v", wrong, err)
	}

	noError(t, a.exec(t.Context(), "INSERT INTO orders SELECT * REPLACE(business_day + 40 AS business_day) FROM orders FINAL WHERE external_order_id = 'YS-0000007'"))
	noError(t, a.exec(t.Context(), "INSERT INTO order_events SELECT * REPLACE(toUUID('00000000-0000-0000-0000-000000000001') AS account_id) FROM order_events FINAL WHERE order_id = '"+all[8].ID.String()+"'"))
	wrong, err = a.Misplaced(t.Context(), right)
	if err != nil || len(wrong) != 2 {
		t.Fatalf("%v %v", wrong, err)
	}

	for _, p := range wrong {
		if p.Order != all[7].ID && p.Order != all[8].ID {
			t.Errorf("%v is where it belongs", p)
		}
	}

	noError(t, a.Remove(t.Context(), wrong))
	noError(t, a.Remove(t.Context(), nil))
	wrong, err = a.Misplaced(t.Context(), right)
	if err != nil || len(wrong) != 0 {
		t.Errorf("%v %v", wrong, err)
	}

	requireStored(t, a, noon.AddDate(0, -1, 0), noon.AddDate(0, 3, 0), all...)
}

func TestAccountsOf_Counts(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	var all []*delivery.Order
	for i := range 30 {
		all = append(all, newOrder(account(i%3), i, noon.AddDate(0, 0, i%2), delivery.Assigned))
	}

	for range 2 {
		noError(t, a.InsertAgain(t.Context(), batchOf(all...)))
	}

	counts, err := a.AccountsOf(t.Context(), noon)
	noError(t, err)
	for n := range 3 {
		if c := counts[account(n)]; c != 5 {
			t.Errorf("account %d has %d orders", n, c)
		}
	}

	if len(counts) != 3 {
		t.Errorf("%d accounts", len(counts))
	}
}
