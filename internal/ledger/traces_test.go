package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
)

func envsEverywhere(t *testing.T, l *Ledger) []*env {
	t.Helper()
	fleet := newFleet(t, l)
	vendors := make([]*env, len(l.core.Partitions))
	for missing := len(vendors); missing > 0; {
		id := delivery.NewAccountID()
		if i := core.PartitionNumber(id, len(l.core.Partitions)); vendors[i] == nil {
			must(t, l.Accounts.Create(t.Context(), &delivery.Account{ID: id, Name: "Vendor", Limits: plenty(), CreatedAt: time.Now()}, testHash))
			vendors[i] = &env{Ledger: l, account: id, fleet: fleet}
			newStore(t, l, id, fleet)
			missing--
		}
	}

	return vendors
}

// wantListsBounded expects a list to refuse lengths that are out of range, and
// to report when Redis is unavailable.
func wantListsBounded(t *testing.T, list func(ctx context.Context, l *Ledger, limit int) error) {
	t.Helper()
	l := openTest(t)
	for _, limit := range []int{-1, 0, 1001} {
		check(t, list(t.Context(), l, limit) != nil, "a list of %d is answered", limit)
	}

	must(t, list(t.Context(), l, 1000))
	err := list(overContext(t), l, 1)
	check(t, errors.Is(err, delivery.ErrUnavailable), "got %v", err)
}

func TestRefusedUpdates_NewestFirstOverAllPartitions(t *testing.T) {
	l, began := openTest(t), time.Now().Truncate(time.Millisecond)
	vendors := envsEverywhere(t, l)
	var updates []delivery.Update
	for n := range 8 {
		s := vendors[n%len(vendors)]
		o := s.create(t, fmt.Sprint("X-", n))
		u := delivery.Update{Order: o.ID, Fleet: s.fleet.ID, Kind: delivery.KindStatus, Status: delivery.Failed,
			At: time.Now().UTC().Truncate(time.Millisecond), Failure: delivery.StoreClosed,
			Location: delivery.Location{Point: taksim, At: time.Now().UTC().Truncate(time.Millisecond)}}
		get(s.Orders.Report(t.Context(), u, time.Now()))(t)
		updates = append(updates, u)
	}

	for n, u := range updates {
		vendors[0].step(t, u.Order.Partition(), func(step *partitions.Step) { step.Refuse(&u, delivery.Searching, "illegal_move", n == 7) })
		vendors[0].tick(t) // ids of different partitions are compared by their milliseconds
	}

	got := get(l.Monitor.RefusedUpdates(t.Context(), 5))(t)
	require(t, len(got) == 5, "%d refused updates", len(got))
	for i, r := range got {
		n := 7 - i
		want := operations.RefusedUpdate{At: r.At, Account: vendors[n%len(vendors)].account, Update: updates[n],
			Status: delivery.Searching, Reason: "illegal_move", Late: n == 7}
		want.Update.Location = delivery.Location{} // it may be the recipient's door, and nothing ends the entry
		check(t, r == want, "%d: %+v, want %+v", i, r, want)
		check(t, !r.At.Before(began) && !r.At.After(time.Now()), "%d at %s", i, r.At)
	}
}

func TestRefusedUpdates_ShowsWhatItCan(t *testing.T) {
	l := openTest(t)
	gone := delivery.Update{Order: delivery.MakeOrderID(1, 20000, [12]byte{1}), Kind: delivery.KindSwap, At: time.Now().UTC().Truncate(time.Millisecond)}
	strange := gone
	strange.Order = delivery.MakeOrderID(999, 20000, [12]byte{1}) // no partition of this ledger
	for _, values := range [][]any{
		{"u", core.EncodeUpdate(&gone), "status", byte(delivery.Delivered), "reason", "swap\x00after the end"},
		{"u", core.EncodeUpdate(&strange), "status", byte(delivery.Delivered), "reason", "r"},
		{"u", "\x01\x02", "status", byte(delivery.Delivered), "reason", "r"},
		{"reason", "r"},
		{"u", core.EncodeUpdate(&gone), "reason", "r"},
	} {
		must(t, l.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: l.core.Partitions[1].Key(core.KindRefused), Values: values}).Err())
	}

	got := get(l.Monitor.RefusedUpdates(t.Context(), 10))(t)
	require(t, len(got) == 5, "%+v", got)
	for i := range 3 {
		check(t, strings.HasPrefix(got[i].Reason, "unreadable: ") && got[i].Update.Order.IsZero() && !got[i].At.IsZero(), "%+v", got[i])
	}

	check(t, got[3].Update == strange && got[3].Account.IsZero(), "%+v", got[3])
	check(t, got[4].Update == gone && got[4].Account.IsZero() && got[4].Status == delivery.Delivered && !got[4].Late && got[4].Reason == fmt.Sprintf("0x%x", "swap\x00after the end"),
		"%+v", got[4])
}

func TestRefusedUpdates_Bounds(t *testing.T) {
	wantListsBounded(t, func(ctx context.Context, l *Ledger, limit int) error {
		found, err := l.Monitor.RefusedUpdates(ctx, limit)
		check(t, len(found) <= 0, "%+v", found)
		return err
	})
}

func TestDeadLetters_ShowTheEntryWhileItIsThere(t *testing.T) {
	l, began := openTest(t), time.Now().Truncate(time.Millisecond)
	s := envsEverywhere(t, l)[2]
	r := l.core.Partitions[2]
	o := s.create(t, "X-1")
	s.report(t, o.ID, delivery.Assigned)
	reader := partitions.NewFeedReader(l.core, &partitions.Feed{Role: core.RoleStatus, Consumer: "c", Log: func(string, ...any) {}}, l.core.Partitions)
	must(t, makeGroups(t.Context(), reader))
	must(t, l.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindEvents), Values: []any{"e", "\x09nonsense", "other", strings.Repeat("ş", 600)}}).Err())
	deadLetter := func(kind byte, reason string) string {
		t.Helper()
		messages, err := l.core.Redis.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: string(core.RoleStatus), Consumer: "c",
			Streams: []string{r.Key(kind), ">"}, Count: 1}).Result()
		must(t, err)
		id := messages[0].Messages[0].ID
		must(t, reader.DeadLetter(t.Context(), partitions.StreamRef{Partition: r, Key: r.Key(kind)}, id, reason))
		s.tick(t)

		return id
	}

	ids := []string{deadLetter(core.KindEvents, "a defect"), deadLetter(core.KindUpdates, "another"), deadLetter(core.KindEvents, "unreadable")}
	want := []struct{ stream, reason, order string }{{"events", "unreadable", ""}, {"updates", "another", o.ID.String()}, {"events", "a defect", o.ID.String()}}
	got := get(l.Monitor.DeadLetters(t.Context(), 10))(t)
	require(t, len(got) == 3, "%+v", got)
	for i, d := range got {
		check(t, d.Partition == 2 && d.Stream == want[i].stream && d.EntryID == ids[2-i] && d.Role == "status" && d.Reason == want[i].reason && d.Fields["order"] == want[i].order && !d.At.Before(began),
			"%d: %+v", i, d)
	}

	f := got[0].Fields
	check(t, f["e"] == "0x096e6f6e73656e7365" && f["other"] == strings.Repeat("ş", 256)+"…", "fields %q", f)
	must(t, l.core.Redis.XTrimMaxLen(t.Context(), r.Key(core.KindEvents), 0).Err())
	if got, err := l.Monitor.DeadLetters(t.Context(), 1); err != nil || len(got) != 1 || got[0].Fields != nil || got[0].EntryID != ids[2] {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDeadLetters_DamagedOnesHideNoOther(t *testing.T) {
	s := newEnv(t)
	r := s.core.PartitionOf(s.account)
	for _, values := range [][]any{
		{"stream", r.Account(s.account), "entry", "1-1", "role", "status", "reason", "not a stream"},
		{"stream", r.Key(core.KindEvents), "entry", "nonsense", "role", "status", "reason", "not an entry"},
		{"other", "field"},
	} {
		must(t, s.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: r.Key(core.KindDeadLetters), Values: values}).Err())
	}

	got := get(s.Monitor.DeadLetters(t.Context(), 10))(t)
	check(t, len(got) == 3 && got[0].Reason == "" && got[1].Reason == "not an entry" && got[1].EntryID == "nonsense" && got[2].Reason == "not a stream" && strings.HasPrefix(got[2].Stream, "0x") && got[2].Fields == nil,
		"%+v", got)
}

func TestDeadLetters_Bounds(t *testing.T) {
	wantListsBounded(t, func(ctx context.Context, l *Ledger, limit int) error {
		found, err := l.Monitor.DeadLetters(ctx, limit)
		check(t, len(found) <= 0, "%+v", found)
		return err
	})
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		"Beyoğlu 1-2":                      "Beyoğlu 1-2",
		"a\nb":                             "0x610a62",
		"\xff":                             "0xff",
		strings.Repeat("a", 512):           strings.Repeat("a", 512),
		strings.Repeat("a", 511) + "şş":    strings.Repeat("a", 511) + "…",
		strings.Repeat("\x80", 600):        "0x" + strings.Repeat("80", 256) + "…",
		strings.Repeat("a", 600) + "\x00":  strings.Repeat("a", 512) + "…",
		"\x00" + strings.Repeat("a", 300):  "0x00" + strings.Repeat("61", 255) + "…",
		"\x00" + strings.Repeat("\xc5", 1): "0x00c5",
	} {
		got := operations.Printable(text)
		check(t, got == want, "%.20q: %q, want %q", text, got, want)
	}
}

func FuzzPrintable(f *testing.F) {
	for _, seed := range []string{"Beyoğlu", "a\x00b", "\xff\xfe", strings.Repeat("ş", 400), strings.Repeat("\x80", 600)} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		shown := operations.Printable(text)
		check(t, utf8.ValidString(shown) && len(shown) <= operations.MostPrintable+len("0x…") && (shown == "") == (text == "") && !strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }),
			"%q is shown as %q", text, shown)
	})
}

// Of thousands of refused updates, those are found that report a late delivery of an order.
func TestLateReports_AreFoundAmongAllThatWasRefused(t *testing.T) {
	l := openTest(t)
	at := time.Now().UTC().Truncate(time.Millisecond)
	late := delivery.Update{Order: delivery.MakeOrderID(1, 20000, [12]byte{1}), Kind: delivery.KindStatus, Status: delivery.Delivered, At: at}
	other := late
	other.Order = delivery.MakeOrderID(1, 20000, [12]byte{2})
	refuse := func(u *delivery.Update, more ...any) {
		values := append([]any{"u", core.EncodeUpdate(u), "status", byte(delivery.Failed), "reason", "r"}, more...)
		must(t, l.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: l.core.Partitions[1].Key(core.KindRefused), Values: values}).Err())
	}

	for range 1500 {
		refuse(&other, "late", "1")
	}

	refuse(&late)
	late.At = at.Add(time.Second)
	refuse(&late, "late", "1")
	must(t, l.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: l.core.Partitions[1].Key(core.KindRefused), Values: []any{"u", "nonsense"}}).Err())
	late.At = at.Add(time.Minute)
	refuse(&late, "late", "1")

	elsewhere := delivery.MakeOrderID(0, 20000, [12]byte{3})
	strange := delivery.MakeOrderID(999, 20000, [12]byte{4}) // no partition of this ledger
	reports := get(l.Monitor.LateReportsOf(t.Context(), []delivery.OrderID{late.Order, elsewhere, strange}))(t)

	var found []time.Duration
	for order, reported := range reports.All() {
		check(t, order == late.Order, "a report of %s", order)
		found = append(found, reported.Sub(at).Truncate(time.Second))
	}

	check(t, slices.Equal(found, []time.Duration{time.Second, time.Minute}), "%v", found)
	check(t, reports.Has(late.Order, at.Add(time.Second)) && !reports.Has(late.Order, at) && !reports.Has(other.Order, at), "Has is wrong: %v", found)
	check(t, !reports.MayBeDropped(late.Order, at.AddDate(-1, 0, 0)), "nothing was dropped")
}

// A report that is not kept proves nothing where older ones were dropped.
func TestLateReports_SayWhatMayBeDropped(t *testing.T) {
	l := openTest(t)
	now := time.Now()
	full := delivery.MakeOrderID(1, delivery.DayOf(now), [12]byte{1})
	other := delivery.MakeOrderID(2, delivery.DayOf(now), [12]byte{2})
	pipe := l.core.Redis.Pipeline()
	for range orders.RefusedKept {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: l.core.Partitions[1].Key(core.KindRefused), Values: []any{"u", "nonsense"}})
	}

	_, err := pipe.Exec(t.Context())
	must(t, err)

	reports := get(l.Monitor.LateReportsOfDays(t.Context(), now, now))(t)

	check(t, reports.MayBeDropped(full, now), "the partition may have dropped a report of today")
	check(t, !reports.MayBeDropped(full, now.Add(2*operations.LateReportMargin)), "nothing later was dropped")
	check(t, !reports.MayBeDropped(other, now.AddDate(-1, 0, 0)), "the other partition has dropped nothing")
}

func TestLateReportsOfDays_AreOfOrdersByTheDayOfTheirCreation(t *testing.T) {
	l := openTest(t)
	day := time.Date(2026, 11, 3, 0, 0, 0, 0, delivery.Istanbul)
	ids := map[string]delivery.OrderID{}
	for i, created := range []time.Time{day.Add(-25 * time.Hour), day, day.Add(24*time.Hour - 1), day.Add(72 * time.Hour)} {
		id := delivery.MakeOrderID(1, delivery.DayOf(created), [12]byte{byte(i)})
		ids[created.String()] = id
		u := delivery.Update{Order: id, Kind: delivery.KindStatus, Status: delivery.Delivered, At: day}
		values := []any{"u", core.EncodeUpdate(&u), "status", byte(delivery.Failed), "reason", "r", "late", "1"}
		must(t, l.core.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: l.core.Partitions[1].Key(core.KindRefused), Values: values}).Err())
	}

	reports := get(l.Monitor.LateReportsOfDays(t.Context(), day, day))(t)

	check(t, reports.Has(ids[day.String()], day) && reports.Has(ids[day.Add(24*time.Hour-1).String()], day), "the day's own are missing")
	check(t, !reports.Has(ids[day.Add(-25*time.Hour).String()], day) && !reports.Has(ids[day.Add(72*time.Hour).String()], day), "others are there")
}
