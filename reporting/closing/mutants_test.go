package closing

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
)

// falsified is an environment with two closed months and corrections, in which rows and entries can be changed
// and put back.
type falsified struct {
	*env
	key                              string   // of the log in Redis
	entries                          []string // of the log
	other, changed, failed, lastlate archive.Order
	added                            archive.Order
}

var spoilt = []string{"seals", "closed_orders", "closed_days"}

func newFalsified(t *testing.T) *falsified {
	t.Helper()
	f := &falsified{env: newEnv(t)}
	october := month("2025-10")
	at := october.AddDate(0, 0, 20).Add(12 * time.Hour)
	f.other, f.changed, f.failed = f.order(at, delivery.Delivered, 25000), f.order(at, delivery.Delivered, 700), f.order(at, delivery.Failed, 9900)
	f.lastlate = f.order(at, delivery.Failed, 100)
	f.other.OrderedAt, f.other.CourierName = at, "Mehmet Y."
	late := func(o archive.Order) {
		testenv.Must(t, f.Archive.InsertAgain(t.Context(), &archive.Batch{Late: []archive.LateDelivery{{Account: o.Account, CreatedAt: o.CreatedAt, Order: o.ID, ReportedAt: o.EndedAt.Add(time.Hour)}}}))
	}
	f.store(f.other, f.changed, f.failed, f.lastlate, f.order(october.Next().Add(time.Hour), delivery.Delivered, 50))
	late(f.lastlate) // frozen with the month
	f.close(october)
	f.added = f.order(at, delivery.Delivered, 333)
	f.changed.Collection.Minor++
	f.store(f.changed, f.added)
	late(f.failed)
	booked, _, err := f.books.Correct(t.Context(), "ece", "", f.changed.ID, f.added.ID)
	testenv.Must(t, err)
	if len(booked) != 3 {
		t.Fatal(booked)
	}
	f.close(october.Next())
	keys, _ := f.Do("KEYS", "*closings").([]any)
	f.key = fmt.Sprint(keys...)
	f.entries, err = f.Ledger.Closings.After(t.Context(), 0)
	testenv.Must(t, err)
	for _, table := range spoilt {
		f.exec("CREATE TABLE %[1]s.was_%[2]s AS %[1]s.%[2]s", table)
		f.exec("INSERT INTO %[1]s.was_%[2]s SELECT * FROM %[1]s.%[2]s", table)
	}
	if len(f.entries) != 5 || !f.clean() {
		t.Fatalf("%d entries: %v", len(f.entries), f.entries)
	}
	return f
}

// exec runs a statement in which %[1]s is the database.
func (f *falsified) exec(statement string, args ...any) {
	f.T.Helper()
	f.ClickHouse.Exec(f.T, fmt.Sprintf(statement, append([]any{f.Database}, args...)...))
}

// change changes a column of the rows of a table for which a condition holds.
func (f *falsified) change(table, column, expression, where string) {
	f.T.Helper()
	f.exec("TRUNCATE TABLE %[1]s.%[2]s", table)
	f.exec("INSERT INTO %[1]s.%[2]s SELECT * REPLACE (if("+where+", "+expression+", "+column+") AS "+column+") FROM %[1]s.was_%[2]s", table)
}

// leave leaves the rows of a table for which a condition holds.
func (f *falsified) leave(table, where string) {
	f.T.Helper()
	f.exec("TRUNCATE TABLE %[1]s.%[2]s", table)
	f.exec("INSERT INTO %[1]s.%[2]s SELECT * FROM %[1]s.was_%[2]s WHERE "+where, table)
}

// restore puts everything back.
func (f *falsified) restore() {
	f.T.Helper()
	for _, table := range spoilt {
		f.leave(table, "true")
	}
	f.Do("DEL", f.key)
	for i, text := range f.entries {
		f.redis(i+1, text)
	}
}

// redis puts an entry under a number in Redis.
func (f *falsified) redis(number int, text string) {
	f.T.Helper()
	f.Do("HSET", f.key, strconv.Itoa(number), text)
}

// copied puts it into ClickHouse, with its seal.
func (f *falsified) copied(number int, text string) {
	f.T.Helper()
	e, err := parse(text)
	testenv.Must(f.T, err)
	f.exec("ALTER TABLE %[1]s.seals DELETE WHERE sequence = %[2]d SETTINGS mutations_sync = 2", number)
	testenv.Must(f.T, f.Archive.InsertSeal(f.T.Context(), &archive.Seal{Sequence: number, Kind: e.Kind, Month: e.Month.Time, Batch: e.Batch, At: e.At, RecordedAt: e.At, Manifest: text, Seal: e.Seal}))
}

// edited is an entry in which one piece of text stands for another.
func (f *falsified) edited(number int, before, after string) string {
	f.T.Helper()
	text := strings.Replace(f.entries[number-1], before, after, 1)
	if text == f.entries[number-1] || !json.Valid([]byte(text)) {
		f.T.Fatalf("entry %d has no %s: %s", number, before, text)
	}
	return text
}

// clean reports whether nothing is found but for the reports, which take longest.
func (f *falsified) clean() bool {
	f.T.Helper()
	v := f.verifyPart(nil)
	return len(v.Findings)+len(v.Pending) == 0
}

// One environment serves all: what was falsified is put back.
func TestBooks_WhatWasFalsifiedOrLostIsFound(t *testing.T) {
	t.Parallel()
	f := newFalsified(t)
	t.Run("Verify names it", f.verifyFinds)
	if testserver.Long { // each of 52 columns
		t.Run("no column can be changed", f.verifyCoversEveryColumn)
	}
	t.Run("Read completes the log and refuses another", f.readCompletes)
	t.Run("Read makes rows again", f.readMakesRowsAgain)
	f.T = t
	if v := f.verify(); len(v.Findings)+len(v.Pending) > 0 {
		t.Errorf("what was put back is not what it was: %+v", v)
	}
}

// verifyPart is Verify without the reports, which take longest, unless one of the findings is about them.
func (f *falsified) verifyPart(findings []string) *Verified {
	f.T.Helper()
	if slices.ContainsFunc(findings, func(text string) bool { return strings.HasPrefix(text, "2025-") }) {
		return f.verify()
	}
	v := &Verified{}
	l, err := f.books.verifyLog(f.T.Context(), v)
	testenv.Must(f.T, err)
	for i := range l.Entries {
		if e := &l.Entries[i]; e.Batch != uuid.Nil {
			testenv.Must(f.T, f.books.verifyBatch(f.T.Context(), v, e))
		}
	}
	testenv.Must(f.T, f.books.pending(f.T.Context(), v))
	return v
}

// inGate are those of each kind.
var inGate = []string{"a kuruş more in a frozen row", "a frozen row removed", "a correction removed", "a correction changed", "two entries exchanged in both",
	"an amount in an entry in both, with its seal", "another month in a copy"}

// Whatever is falsified is found, by the month or the entry and, where an order does not say any more what was known, by the order.
func (f *falsified) verifyFinds(t *testing.T) {
	row := func(o *archive.Order) string { return "order_id = '" + o.ID.String() + "'" }
	frozen, corrected := " AND correction_of = toDate(0)", " AND correction_of != toDate(0)"
	both := func(number int, text string) { f.redis(number, text); f.copied(number, text) }
	swap := func(put func(int, string)) { put(3, f.entries[3]); put(4, f.entries[2]) }
	for name, c := range map[string]struct {
		spoil    func()
		findings []string
		pending  []*archive.Order
	}{
		"a kuruş more in a frozen row": {func() {
			f.exec("ALTER TABLE %[1]s.closed_orders UPDATE collection_amount = collection_amount + toDecimal64('0.01', 2) WHERE " + row(&f.other) + " SETTINGS mutations_sync = 2")
		}, []string{"close of 2025-10, entry 2: 5 rows", "the sums of 2025-10-21"}, []*archive.Order{&f.other}},
		"another status in a frozen row": {func() { f.change("closed_orders", "status", "'Failed'", row(&f.other)) },
			[]string{"close of 2025-10, entry 2: 5 rows", "the sums of 2025-10-21"}, []*archive.Order{&f.other}},
		"a kuruş more in closed_days": {func() {
			f.change("closed_days", "cash_expected", "cash_expected + toDecimal64('0.01', 2)", "day = '2025-10-21'"+frozen)
		}, []string{"close of 2025-10, entry 2: the sums of 2025-10-21", "2025-10: the sums of expected-collections"}, nil},
		"a store's name in a frozen row": {func() { f.change("closed_orders", "store_name", "'Modda'", row(&f.other)) },
			[]string{"close of 2025-10, entry 2: 5 rows"}, nil},
		"a store's name in closed_days": {func() { f.change("closed_days", "store_name", "'Modda'", "day = '2025-10-21'"+frozen) },
			[]string{"close of 2025-10, entry 2: the sums of 2025-10-21"}, nil},
		"a frozen row removed": {func() { f.leave("closed_orders", "NOT ("+row(&f.other)+")") },
			[]string{"close of 2025-10, entry 2: 5 rows", "there are 4"}, []*archive.Order{&f.other}},
		"a late delivery removed that was frozen": {func() { f.leave("closed_orders", "NOT (sign = 0 AND "+row(&f.lastlate)+")") },
			[]string{"close of 2025-10, entry 2: 5 rows"}, []*archive.Order{&f.lastlate}},
		"a row added": {func() {
			f.exec("INSERT INTO %[1]s.closed_orders SELECT * REPLACE (generateUUIDv4() AS order_id) FROM (SELECT * FROM %[1]s.was_closed_orders WHERE " + row(&f.other) + ")")
		}, []string{"close of 2025-10, entry 2: 5 rows", "there are 6"}, []*archive.Order{nil}},
		"a row twice": {func() {
			f.exec("INSERT INTO %[1]s.closed_orders SELECT * FROM %[1]s.was_closed_orders WHERE " + row(&f.other))
		}, []string{"close of 2025-10, entry 2: 5 rows", "there are 6"}, []*archive.Order{&f.other}},
		"the sums of a day twice": {func() {
			f.exec("INSERT INTO %[1]s.closed_days SELECT * FROM %[1]s.was_closed_days WHERE day = '2025-10-21'")
		}, []string{"close of 2025-10, entry 2: the sums of 2025-10-21"}, nil},
		"a correction removed": {func() { f.leave("closed_orders", "NOT ("+row(&f.changed)+corrected+")") },
			[]string{"correction of 2025-11, entry 3: 4 rows", "the correction of order " + f.changed.ID.String() + " of 2025-10 (changed, entry 3) is missing"}, []*archive.Order{&f.changed}},
		"a reversal removed": {func() { f.leave("closed_orders", "NOT ("+row(&f.changed)+" AND sign = -1)") },
			[]string{"correction of 2025-11, entry 3", "the correction of order " + f.changed.ID.String() + " of 2025-10 (changed, entry 3) was changed"}, []*archive.Order{&f.changed}},
		"a late delivery removed that was booked": {func() { f.leave("closed_orders", "NOT ("+row(&f.failed)+corrected+")") },
			[]string{"correction of 2025-11, entry 3", "the correction of order " + f.failed.ID.String() + " of 2025-10 (late delivery, entry 3) is missing"}, []*archive.Order{&f.failed}},
		"a correction changed": {func() {
			f.change("closed_orders", "collection_amount", "collection_amount + toDecimal64('0.01', 2)", row(&f.added)+" AND sign = 1")
		}, []string{"correction of 2025-11, entry 3", "the correction of order " + f.added.ID.String() + " of 2025-10 (added, entry 3) was changed"}, []*archive.Order{&f.added}},
		"a correction booked on another day": {func() { f.change("closed_orders", "posted_day", "toDate('2025-11-29')", row(&f.added)) },
			[]string{"correction of 2025-11, entry 3: 4 rows"}, nil},
		"two entries exchanged in Redis":      {func() { swap(f.redis) }, []string{"the log in Redis: entry 3 says that it is number 4", "entry 3 (", "entry 4 ("}, nil},
		"two entries exchanged in ClickHouse": {func() { swap(f.copied) }, []string{"entry 3 (correction of 2025-11) is not the same in ClickHouse"}, nil},
		"two entries exchanged in both":       {func() { swap(both) }, []string{"the log in Redis: entry 3 says that it is number 4"}, nil},
		"an amount in an entry in Redis": {func() { f.redis(2, f.edited(2, `"cashExpected":257`, `"cashExpected":258`)) },
			[]string{"the log in Redis: entry 3 (correction of 2025-11) does not follow the seal", "entry 2 (close of 2025-10) is not the same in ClickHouse"}, nil},
		"an amount in an entry in both, with its seal": {func() { both(2, f.edited(2, `"cashExpected":257`, `"cashExpected":258`)) },
			[]string{"the log in Redis: entry 3 (correction of 2025-11) does not follow the seal"}, nil},
		"an amount in the last entry in both, with its seal": {func() { both(5, f.edited(5, `"created":2`, `"created":3`)) },
			[]string{"2025-11: the sums of"}, nil},
		"a correction's amount in its entry in both, with its seal": {func() { both(3, f.edited(3, `"expected":333`, `"expected":334`)) },
			[]string{"the correction of order " + f.added.ID.String() + " of 2025-10 (added, entry 3) was changed", "entry 4 (hold of 2025-11) does not follow"}, nil},
		"the last entry removed from ClickHouse": {func() { f.leave("seals", "sequence != 5") }, []string{"Redis has 5 entries of the log, ClickHouse 4"}, nil},
		"an entry removed from ClickHouse":       {func() { f.leave("seals", "sequence != 2") }, []string{"Redis has 5 entries of the log, ClickHouse 4"}, nil},
		"the last entry removed from Redis":      {func() { f.Do("HDEL", f.key, "5") }, []string{"Redis has 4 entries of the log, ClickHouse 5"}, nil},
		"another entry under a number": {func() { f.redis(5, f.edited(5, `"by":"ece"`, `"by":"efe"`)) },
			[]string{"entry 5 (close of 2025-11) is not the same in ClickHouse"}, nil},
		"another month in a copy": {func() { f.change("seals", "month", "toDate('2025-12-01')", "sequence = 5") }, []string{"entry 5 (close of 2025-11) is not the same in ClickHouse"}, nil},
		"another kind in a copy":  {func() { f.change("seals", "kind", "'hold'", "sequence = 3") }, []string{"entry 3 (correction of 2025-11) is not the same in ClickHouse"}, nil},
		"another batch in a copy": {func() { f.change("seals", "batch", "generateUUIDv4()", "sequence = 5") }, []string{"entry 5 (close of 2025-11) is not the same in ClickHouse"}, nil},
		"a copy twice, with another month": {func() {
			f.exec("INSERT INTO %[1]s.seals SELECT * REPLACE (toDate('2026-01-01') AS month, recorded_at + 1 AS recorded_at) FROM %[1]s.was_seals WHERE sequence = 5")
		}, []string{"ClickHouse 6"}, nil},
		"no JSON in an entry": {func() { f.redis(5, "{") }, []string{"the log in Redis: unexpected end of JSON input"}, nil},
	} {
		if !testserver.Long && !slices.Contains(inGate, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			f.T = t
			defer f.restore()
			c.spoil()
			v := f.verifyPart(c.findings)
			findings, pending := strings.Join(v.Findings, "\n"), strings.Join(v.Pending, "\n")
			wantContains(t, "findings", findings, c.findings...)
			if aboutRows := strings.HasPrefix(c.findings[0], "c"); aboutRows && len(v.Pending) != len(c.pending) {
				t.Errorf("%d pending, want %d: %s", len(v.Pending), len(c.pending), pending)
			}
			for _, o := range c.pending {
				if o != nil { // one whose id nobody knows
					wantContains(t, "pending", pending, "order "+o.ID.String()+" of 2025-10-21")
				}
			}
		})
	}
}

// No column can be changed without another digest of the batch, or other sums.
func (f *falsified) verifyCoversEveryColumn(t *testing.T) {
	f.T = t
	closing, err := parse(f.entries[1])
	testenv.Must(t, err)
	for _, table := range spoilt[1:] {
		columns := f.ClickHouse.Exec(t, fmt.Sprintf("SELECT name, type FROM system.columns WHERE database = '%s' AND table = '%s' AND name != 'batch'", f.Database, table))
		for column := range strings.Lines(columns) {
			name, kind, _ := strings.Cut(strings.TrimSpace(column), "\t")
			other := name + " + 1"
			switch {
			case kind == "UUID":
				other = "generateUUIDv4()"
			case strings.Contains(kind, "String"):
				other = "concat(" + name + ", 'x')"
			case kind == "Bool":
				other = "NOT " + name
			case strings.Contains(kind, "DateTime64"):
				other = "ifNull(" + name + ", toDateTime64('2025-10-21 00:00:00', 3)) + toIntervalMillisecond(1)"
			case strings.Contains(kind, "Decimal"):
				other = "ifNull(" + name + ", 0) + toDecimal64('0.01', 2)"
			}
			where := "order_id = '" + f.other.ID.String() + "'"
			if table == "closed_days" {
				where = "day = '2025-10-21' AND correction_of = toDate(0)"
			}
			values := []string{other}
			if strings.HasPrefix(kind, "Nullable") && name != "reported_at" { // which is NULL
				values = append(values, "NULL")
			}
			for _, to := range values {
				f.change(table, name, to, where)
				whole, err := f.books.whole(t.Context(), &closing)
				testenv.Must(t, err)
				if whole {
					t.Errorf("%s.%s can be changed to %s", table, name, to)
				}
			}
		}
		f.leave(table, "true")
	}
}

// What one side of the log lacks at its end is copied from the other, and another log is refused.
func (f *falsified) readCompletes(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func()
		want  error
	}{
		"ClickHouse lacks the last":    {func() { f.leave("seals", "sequence != 5") }, nil},
		"ClickHouse lacks all":         {func() { f.leave("seals", "false") }, nil},
		"Redis lacks the last":         {func() { f.Do("HDEL", f.key, "5") }, nil},
		"Redis lacks one in between":   {func() { f.Do("HDEL", f.key, "2") }, nil},
		"Redis lacks all":              {func() { f.Do("DEL", f.key) }, nil},
		"a copy is there twice":        {func() { f.exec("INSERT INTO %[1]s.seals SELECT * FROM %[1]s.was_seals") }, nil},
		"another one is in Redis":      {func() { f.redis(5, f.edited(5, `"by":"ece"`, `"by":"efe"`)) }, ErrForked},
		"another one is in ClickHouse": {func() { f.copied(5, f.edited(5, `"by":"ece"`, `"by":"efe"`)) }, ErrForked},
	} {
		t.Run(name, func(t *testing.T) {
			f.T = t
			defer f.restore()
			c.spoil()
			l, err := f.books.Read(t.Context())
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if err != nil {
				return
			}
			if len(l.Entries) != 5 || !l.Closed(month("2025-11")) || !f.clean() {
				t.Errorf("%d entries; %+v", len(l.Entries), f.verifyPart(nil))
			}
		})
	}
}

// rowsOf are the rows of a batch in a comparable form.
func (f *falsified) rowsOf() string {
	f.T.Helper()
	return f.ClickHouse.Exec(f.T, fmt.Sprintf("SELECT * FROM %s.closed_orders ORDER BY ALL", f.Database))
}

// ClickHouse was restored from a backup that is older than the log in Redis: rows are made again when orders say the same,
// and only then.
func (f *falsified) readMakesRowsAgain(t *testing.T) {
	f.T = t
	want := f.rowsOf()
	for _, kept := range []int{0, 2, 4} { // entries that the backup has
		f.leave("seals", fmt.Sprint("sequence <= ", kept))
		for _, table := range spoilt[1:] {
			f.leave(table, fmt.Sprintf("batch IN (SELECT batch FROM %s.seals)", f.Database))
		}
		if kept == 0 { // the first closing was of what orders said before the correction
			before := f.changed
			before.Collection.Minor--
			f.store(before)
			f.exec("DELETE FROM %[1]s.orders WHERE order_id = '%[2]s' SETTINGS lightweight_deletes_sync = 2", f.added.ID)
			f.exec("DELETE FROM %[1]s.late_deliveries WHERE order_id = '%[2]s' SETTINGS lightweight_deletes_sync = 2", f.failed.ID)
			_, err := f.books.Read(t.Context())
			if err == nil || !strings.Contains(err.Error(), "entry 3 (correction of 2025-11): its rows are not in ClickHouse, and the orders there are not any more what was sealed") {
				t.Fatalf("rows of the correction cannot be made: %v", err)
			}
			f.store(f.changed, f.added)
			testenv.Must(t, f.Archive.InsertAgain(t.Context(), &archive.Batch{Late: []archive.LateDelivery{{Account: f.failed.Account,
				CreatedAt: f.failed.CreatedAt, Order: f.failed.ID, ReportedAt: f.failed.EndedAt.Add(time.Hour)}}}))
		}
		_, err := f.books.Read(t.Context())
		testenv.Must(t, err)
		if got := f.rowsOf(); got != want {
			t.Errorf("the backup has %d entries: rows are\n%s\nwere\n%s", kept, got, want)
		}
		if !f.clean() {
			t.Errorf("the backup has %d entries: %+v", kept, f.verifyPart(nil))
		}
	}
}
