package closing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/journal"
	"vendorapi/reporting/reports"
)

// headKey is the head of the log in Redis.
const headKey = "books:{sg}head"

// falsified is an environment with two closed months and corrections, in which rows and entries can be changed
// and put back. Its log is hold, close of October, correction, hold, close of November.
type falsified struct {
	*env
	head                             string
	entries                          []Entry
	other, changed, failed, lastlate archive.Order
	added                            archive.Order
}

var spoilt = []string{"journal", "closed_orders", "closed_days"}

func newFalsified(t *testing.T) *falsified {
	t.Helper()
	f := &falsified{env: newEnvWithReports(t)}
	october := month("2025-10")
	at := october.AddDate(0, 0, 20).Add(12 * time.Hour)
	f.other, f.changed, f.failed = f.order(at, delivery.Delivered, 25000), f.order(at, delivery.Delivered, 700), f.order(at, delivery.Failed, 9900)
	f.lastlate = f.order(at, delivery.Failed, 100)
	f.other.OrderedAt, f.other.CourierName = at, "Mehmet Y."
	f.store(f.other, f.changed, f.failed, f.lastlate, f.order(october.Next().Add(time.Hour), delivery.Delivered, 50))
	f.reportLate(f.lastlate) // frozen with the month
	f.close(october)

	f.added = f.order(at, delivery.Delivered, 333)
	f.changed.Collection.Minor++
	f.store(f.changed, f.added)
	f.reportLate(f.failed)
	f.correct(3, 0, f.changed.ID, f.added.ID, f.failed.ID)
	f.close(october.Next())

	f.entries = f.log().Entries
	f.head = fmt.Sprint(f.Do("GET", headKey))
	for _, table := range spoilt {
		f.exec("CREATE TABLE %[1]s.was_%[2]s AS %[1]s.%[2]s", table)
		f.exec("INSERT INTO %[1]s.was_%[2]s SELECT * FROM %[1]s.%[2]s", table)
	}

	if len(f.entries) != 5 || !f.clean() {
		t.Fatalf("%d entries: %+v", len(f.entries), f.verifyPart(nil))
	}

	if !testserver.Long {
		f.books.reports.closeLines = f.sealedLines
	}

	return f
}

// sealedLines are the control totals of a month as they were sealed. In the gate they stand in for those that are
// calculated again, except where those are what is tested.
func (f *falsified) sealedLines(_ context.Context, _ *archive.Archive, month reports.Params) ([]reports.StoredLine, error) {
	for i := range f.entries {
		e := &f.entries[i]
		if e.Kind == KindClose && params(e.Month) == month {
			return e.Control, nil
		}
	}
	return nil, fmt.Errorf("no closing of %s", month.From)
}

func (f *falsified) reportLate(o archive.Order) {
	f.T.Helper()
	f.env.reportLate(&o, o.EndedAt.Add(time.Hour))
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
	f.Do("SET", headKey, f.head)
}

// insert adds a row to the journal.
func (f *falsified) insert(e journal.Entry) {
	f.T.Helper()
	testenv.Must(f.T, f.Archive.InsertEntry(f.T.Context(), &e))
}

// editEntry replaces the row of an entry with one in which one piece of text stands for another, under the
// signature that it had.
func (f *falsified) editEntry(number int, before, after string) {
	f.T.Helper()
	e := f.entries[number-1].signed
	e.Text = strings.Replace(e.Text, before, after, 1)
	if e.Text == f.entries[number-1].JSON || !json.Valid([]byte(e.Text)) {
		f.T.Fatalf("entry %d has no %s: %s", number, before, e.Text)
	}

	f.leave("journal", fmt.Sprint("sequence != ", number))
	f.insert(e)
}

// forged is an entry that could follow the last one, signed with what an attacker can have.
func (f *falsified) forged(keys journal.Keys, change func(m *Manifest)) journal.Entry {
	f.T.Helper()
	last := &f.entries[4]
	m := Manifest{Format: format, Sequence: 6, Previous: last.Seal, Kind: KindHold, Month: last.Month.Next(), At: f.clock, By: "ayse", Note: "forged"}
	change(&m)
	text, err := json.Marshal(m)
	testenv.Must(f.T, err)
	signed, err := keys.Sign(string(text))
	testenv.Must(f.T, err)

	return signed
}

// An attacker has no key of this environment.
var (
	attackersKeys   = journal.NewKeys("sandbox", "k1", map[string][]byte{"k1": bytes.Repeat([]byte{7}, 32)})
	productionsKeys = journal.NewKeys("production", "k1", map[string][]byte{"k1": []byte("0123456789abcdef0123456789abcdef")})
)

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

	t.Run("reports are those that were sealed", f.verifyComparesReports)
	t.Run("Read completes the log", f.readCompletes)
	t.Run("nothing is decided or reported beside foreign rows", f.foreignRowsStopEverything)
	t.Run("two people set foreign rows aside", f.twoPeopleSetRowsAside)
	t.Run("entries are recovered", f.recoverEntries)
	f.T = t
	f.books.reports = everyReport
	if v := f.verify(); len(v.Findings)+len(v.Pending) > 0 {
		t.Errorf("what was put back is not what it was: %+v", v)
	}
}

// verifyPart is Verify without the reports, which take longest, unless one of the findings is about them.
func (f *falsified) verifyPart(findings []string) *Verified {
	f.T.Helper()
	isAboutReports := func(text string) bool { return strings.HasPrefix(text, "2025-") }
	if slices.ContainsFunc(findings, isAboutReports) {
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

	testenv.Must(f.T, f.books.pending(f.T.Context(), l, v, func(string) {}))

	return v
}

// inGate are those of each kind.
var inGate = []string{"a kuruş more in a frozen row", "a frozen row removed", "a correction removed", "a correction changed",
	"an amount in an entry", "a closing by a made-up key", "the last entry removed", "nonsense in the head"}

// attack is what somebody does to the books.
type attack struct {
	do       func()
	findings []string         // of `month verify`
	pending  []*archive.Order // that `month verify` names beside rows that were changed
}

// sight is how an attack shows without anybody asking.
type sight string

const (
	asFinding    sight = "the nightly verification finds it"
	asUnreadable sight = "reporting_books_readable is 0"
	asCompleted  sight = "the next reading completes the log"
)

// atNight reads the books as Watch does, and verifies October as every night a month is.
func (f *falsified) atNight() sight {
	f.T.Helper()
	l, err := f.books.Read(f.T.Context())
	if err == nil {
		err = l.requireSettled()
	}

	if errors.Is(err, ErrBehind) || errors.Is(err, ErrTampered) {
		return asUnreadable
	}

	testenv.Must(f.T, err)

	f.Do("DEL", "books:{sg}review") // October is the next one then
	_, findings := f.verifyInTurn()
	if len(findings) > 0 {
		return asFinding
	}
	if !f.clean() {
		return ""
	}

	return asCompleted
}

// The attack suite: whatever is falsified is found, by the month or the entry and, where an order does not say any more
// what was known, by the order; and it is seen without anybody asking.
func (f *falsified) verifyFinds(t *testing.T) {
	for _, group := range []struct {
		by      string // whose password it takes
		night   sight
		attacks map[string]attack
	}{
		{"ClickHouse's", asFinding, f.attacksOnRows()},
		{"ClickHouse's", asUnreadable, f.attacksOnEntries()},
		{"ClickHouse's", asCompleted, map[string]attack{
			"the last entry removed": {func() { f.leave("journal", "sequence != 5") }, []string{"entry 5 is only in Redis"}, nil},
		}},
		{"reporting's of Redis", asUnreadable, f.attacksOnHead()},
		{"reporting's of Redis and ClickHouse's", asUnreadable, f.attacksOnBoth()},
	} {
		for name, c := range group.attacks {
			if !testserver.Long && !slices.Contains(inGate, name) {
				continue
			}

			t.Run(name, func(t *testing.T) {
				f.T = t
				defer f.restore()
				c.do()
				v := f.verifyPart(c.findings)
				findings, pending := strings.Join(v.Findings, "\n"), strings.Join(v.Pending, "\n")
				wantContains(t, "findings", findings, c.findings...)
				isAboutRows := strings.HasPrefix(c.findings[0], "close of") || strings.HasPrefix(c.findings[0], "correction of")
				if isAboutRows && len(v.Pending) != len(c.pending) {
					t.Errorf("%d pending, want %d: %s", len(v.Pending), len(c.pending), pending)
				}

				for _, o := range c.pending {
					if o != nil { // one whose id nobody knows
						wantContains(t, "pending", pending, "order "+o.ID.String()+" of 2025-10-21")
					}
				}

				if night := f.atNight(); night != group.night {
					t.Errorf("with the password of %s: at night it shows like this: %q, want %q", group.by, night, group.night)
				}
			})
		}
	}
}

const unsigned = "a row that does not belong to the log: its signature is wrong"

// attacksOnRows change what was frozen.
func (f *falsified) attacksOnRows() map[string]attack {
	row := func(o *archive.Order) string { return "order_id = '" + o.ID.String() + "'" }
	frozen, corrected := " AND correction_of = toDate(0)", " AND correction_of != toDate(0)"
	return map[string]attack{
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
		"a row moved to another batch": {func() {
			f.change("closed_orders", "batch", "toUUID('"+f.entries[4].Batch.String()+"')", row(&f.other))
		}, []string{"close of 2025-10, entry 2: 5 rows", "there are 4", "close of 2025-11, entry 5: 1 rows"}, nil},
	}
}

// attacksOnEntries change the log.
func (f *falsified) attacksOnEntries() map[string]attack {
	return map[string]attack{
		"an amount in an entry": {func() { f.editEntry(2, `"cashExpected":257`, `"cashExpected":258`) },
			[]string{"entry 2 of the books' log is missing", unsigned}, nil},
		"an amount in the last entry":        {func() { f.editEntry(5, `"created":2`, `"created":3`) }, []string{"entry 5 is only in Redis", unsigned}, nil},
		"a correction's amount in its entry": {func() { f.editEntry(3, `"expected":333`, `"expected":334`) }, []string{"entry 3 of the books' log is missing", unsigned}, nil},
		"another person in an entry":         {func() { f.editEntry(2, `"by":"ece"`, `"by":"efe"`) }, []string{"entry 2 of the books' log is missing", unsigned}, nil},
		"another time in an entry":           {func() { f.editEntry(2, `"at":"2025-11-03`, `"at":"2025-06-03`) }, []string{"entry 2 of the books' log is missing", unsigned}, nil},
		"another batch in an entry": {func() {
			f.editEntry(5, `"batch":"`+f.entries[4].Batch.String(), `"batch":"`+f.entries[1].Batch.String())
		}, []string{"entry 5 is only in Redis", unsigned}, nil},
		"another number in an entry":           {func() { f.editEntry(5, `"sequence":5`, `"sequence":6`) }, []string{"entry 5 is only in Redis", unsigned}, nil},
		"a correction's own time in its entry": {func() { f.editEntry(3, `"at":"2025-11`, `"at":"2025-10`) }, []string{"entry 3 of the books' log is missing", unsigned}, nil},
		"a note in an entry":                   {func() { f.editEntry(1, `"note":"seen"`, `"note":"not seen"`) }, []string{"entry 1 of the books' log is missing", unsigned}, nil},
		"a correction left out of its entry":   {func() { f.editEntry(3, `"order":"`+f.added.ID.String(), `"order":"`+f.failed.ID.String()) }, []string{"entry 3 of the books' log is missing", unsigned}, nil},
		"another signature": {func() {
			f.change("journal", "signature", "concat('0', substring(signature, 2))", "sequence = 2 AND NOT startsWith(signature, '0')")
			f.change("journal", "signature", "reverse(signature)", "sequence = 2")
		}, []string{"entry 2 of the books' log is missing", unsigned}, nil},
		"another key":             {func() { f.change("journal", "key_id", "'k9'", "sequence = 2") }, []string{"entry 2 of the books' log is missing", "a key \"k9\" that is not in BOOKS_KEYS"}, nil},
		"nonsense as an entry":    {func() { f.insert(journal.Entry{Text: "nonsense", KeyID: "k1", Signature: "x"}) }, []string{unsigned}, nil},
		"a hold by a made-up key": {func() { f.insert(f.forged(attackersKeys, func(*Manifest) {})) }, []string{unsigned}, nil},
		"a closing by a made-up key": {func() {
			f.insert(f.forged(attackersKeys, func(m *Manifest) { m.Kind, m.Batch = KindClose, uuid.New() }))
		}, []string{unsigned}, nil},
		"a correction by a made-up key": {func() {
			f.insert(f.forged(attackersKeys, func(m *Manifest) { m.Kind, m.Batch = KindCorrection, f.entries[2].Batch }))
		}, []string{unsigned}, nil},
		"a set-aside by a made-up key": {func() { f.insert(f.forged(attackersKeys, func(m *Manifest) { m.Kind = KindSetAside })) }, []string{unsigned}, nil},
		"an entry of production":       {func() { f.insert(f.forged(productionsKeys, func(*Manifest) {})) }, []string{unsigned}, nil},
		"an old signature under a text": {func() {
			f.insert(journal.Entry{Text: f.forged(attackersKeys, func(*Manifest) {}).Text, KeyID: "k1", Signature: f.entries[4].signed.Signature})
		}, []string{unsigned}, nil},
		"the first entry removed":      {func() { f.leave("journal", "sequence != 1") }, []string{"entry 1 of the books' log is missing"}, nil},
		"an entry removed":             {func() { f.leave("journal", "sequence != 3") }, []string{"entry 3 of the books' log is missing", "the entries before it are missing after number 2"}, nil},
		"the last two entries removed": {func() { f.leave("journal", "sequence < 4") }, []string{"entry 4 of the books' log is missing"}, nil},
		"all entries removed":          {func() { f.leave("journal", "false") }, []string{"entries 1 to 4 of the books' log are missing"}, nil},
		"two entries exchanged": {func() {
			f.editEntry(3, `"sequence":3`, `"sequence":4`)
			f.exec("INSERT INTO %[1]s.journal SELECT * REPLACE (replace(text, '\"sequence\":4', '\"sequence\":3') AS text) FROM %[1]s.was_journal WHERE sequence = 4")
		}, []string{"entry 3 of the books' log is missing", unsigned}, nil},
	}
}

// attacksOnHead change the head of the log.
func (f *falsified) attacksOnHead() map[string]attack {
	return map[string]attack{
		"nonsense in the head":    {func() { f.Do("SET", headKey, "nonsense") }, []string{"the head in Redis: it is signed with a key"}, nil},
		"a head by a made-up key": {func() { f.Do("SET", headKey, headText(f.forged(attackersKeys, func(*Manifest) {}))) }, []string{"the head in Redis: its signature is wrong"}, nil},
		"a head of production":    {func() { f.Do("SET", headKey, headText(f.forged(productionsKeys, func(*Manifest) {}))) }, []string{"the head in Redis: its signature is wrong"}, nil},
	}
}

// attacksOnBoth make the log and its head agree on an entry that nobody decided.
func (f *falsified) attacksOnBoth() map[string]attack {
	decide := func(keys journal.Keys, change func(m *Manifest)) func() {
		return func() {
			e := f.forged(keys, change)
			f.insert(e)
			f.Do("SET", headKey, e.Head())
		}
	}

	const head = "the head in Redis: its signature is wrong"
	return map[string]attack{
		"a closing in both, by a made-up key": {decide(attackersKeys, func(m *Manifest) { m.Kind, m.Batch = KindClose, uuid.New() }), []string{head, unsigned}, nil},
		"a release in both, of production":    {decide(productionsKeys, func(m *Manifest) { m.Kind = KindRelease }), []string{head, unsigned}, nil},
		"an entry changed in both": {func() {
			f.editEntry(5, `"by":"ece"`, `"by":"efe"`)
			e := f.entries[4].signed
			e.Text = strings.Replace(e.Text, `"by":"ece"`, `"by":"efe"`, 1)
			f.Do("SET", headKey, e.Head())
		}, []string{head, unsigned}, nil},
		"the head moved back, an entry removed before it": {func() {
			f.leave("journal", "sequence != 2 AND sequence < 5")
			f.Do("SET", headKey, f.entries[3].signed.Head())
		}, []string{"entry 2 of the books' log is missing"}, nil},
	}
}

func headText(e journal.Entry) string { return e.Head() }

// No column can be changed without another digest of the batch, or other sums.
func (f *falsified) verifyCoversEveryColumn(t *testing.T) {
	f.T = t
	closing := &f.log().Entries[1]
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
				whole, err := f.books.isWhole(t.Context(), closing)
				testenv.Must(t, err)
				if whole {
					t.Errorf("%s.%s can be changed to %s", table, name, to)
				}
			}
		}

		f.leave(table, "true")
	}
}

// The reports of a closed month are calculated again, and each line, figure and digest is compared with what was sealed.
func (f *falsified) verifyComparesReports(t *testing.T) {
	f.T = t
	before := f.books.reports
	defer func() { f.books.reports = before }()
	f.books.reports = everyReport
	closing := f.log().Entries[1]
	line := func(name string) *reports.StoredLine {
		i := slices.IndexFunc(closing.Control, func(l reports.StoredLine) bool { return l.Line == name })
		return &closing.Control[i]
	}

	verify := func() string {
		v := &Verified{}
		testenv.Must(t, f.books.verifyReports(t.Context(), v, &closing))
		return strings.Join(v.Findings, "\n")
	}

	line("order-ledger").Figures["created"]++
	line("expected-collections").SHA256 = "another"
	delete(line("fleet-statement").Figures, "created") // an older program did not store it
	last := len(closing.Control) - 1
	closing.Control = closing.Control[:last]
	findings := verify()
	if strings.Count(findings, "\n") != 2 {
		t.Errorf("three findings are wanted:\n%s", findings)
	}

	wantContains(t, "findings", findings, "2025-10: the sums of order-ledger are not", "2025-10: the report expected-collections is not", "2025-10: exceptions was not sealed")

	line("order-ledger").Figures["created"]--
	line("expected-collections").SHA256 = f.log().Entries[1].Control[4].SHA256
	closing.Control = append(closing.Control, f.log().Entries[1].Control[last], reports.StoredLine{Line: "profits"})
	if findings := verify(); findings != "2025-10: profits was sealed and is not calculated any more" {
		t.Errorf("a line that is gone:\n%s", findings)
	}
}

// What a crash or a restored Redis leaves is completed.
func (f *falsified) readCompletes(t *testing.T) {
	older := func(number int) func() {
		return func() { f.Do("SET", headKey, f.entries[number-1].signed.Head()) }
	}
	for name, spoil := range map[string]func(){
		"the last entry is in the head alone": func() { f.leave("journal", "sequence != 5") },
		"Redis has the head before":           older(4),
		"Redis has the first head":            older(1),
		"Redis has no head":                   func() { f.Do("DEL", headKey) },
		"each entry is there twice":           func() { f.exec("INSERT INTO %[1]s.journal SELECT * FROM %[1]s.was_journal") },
	} {
		t.Run(name, func(t *testing.T) {
			f.T = t
			defer f.restore()
			spoil()

			l := f.log()

			if len(l.Entries) != 5 || !l.Foreign.AreNone() || !l.Closed(month("2025-11")) || !f.clean() {
				t.Errorf("%d entries; %+v", len(l.Entries), f.verifyPart(nil))
			}
			if head := f.Do("GET", headKey); head != f.head {
				t.Errorf("the head is %v", head)
			}
			if rows := f.Ask("count(DISTINCT text) FROM " + f.Database + ".journal"); rows != "5\n" {
				t.Errorf("%s entries are stored", rows)
			}
		})
	}
}

// A row of an attacker must not become part of the books, nor of what is reported from them.
func (f *falsified) foreignRowsStopEverything(t *testing.T) {
	f.T = t
	defer f.restore()
	f.insert(f.forged(attackersKeys, func(m *Manifest) { m.Kind, m.Batch = KindClose, uuid.New() }))

	december := month("2025-12")
	for _, kind := range []string{KindHold, KindRelease, KindClose} {
		if err := decide(t.Context(), f.books, kind, december, "ece", "seen"); !errors.Is(err, ErrTampered) {
			t.Errorf("%s: %v", kind, err)
		}
	}

	if _, _, err := correct(t.Context(), f.books, "ece", "", f.other.ID); !errors.Is(err, ErrTampered) {
		t.Errorf("correction: %v", err)
	}

	foreign := &archive.ForeignRowsError{}
	for _, name := range append(slices.Clone(names), "control-totals") {
		r, _ := reports.Find(name)
		_, err := r.Run(t.Context(), f.Archive, params(month("2025-10")), reports.CSVPlain.Sink(&bytes.Buffer{}), nil)
		if !errors.As(err, &foreign) {
			t.Errorf("%s: %v", name, err)
		}
	}

	if l := f.log(); len(l.Entries) != 5 || l.Foreign.Count != 1 {
		t.Errorf("%d entries, foreign %v", len(l.Entries), l.Foreign)
	}
}

// One person says that rows are foreign, another removes them; the log keeps what they were.
func (f *falsified) twoPeopleSetRowsAside(t *testing.T) {
	f.T = t
	forged := f.forged(attackersKeys, func(m *Manifest) { m.Kind, m.Batch = KindClose, uuid.New() })
	refused := func(what string, err error, says string) {
		t.Helper()
		if !IsRefusal(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}

	settle := func(kind, by, note string) error { return decide(t.Context(), f.books, kind, Month{}, by, note) }

	refused("nothing is foreign", settle(KindDispute, "ayse", "x"), "every row belongs to the log")
	refused("nothing is disputed", settle(KindSetAside, "ece", ""), "nothing is disputed")

	f.insert(forged)
	f.insert(journal.Entry{Text: "nonsense"})
	refused("no note", settle(KindDispute, "ayse", ""), "a note")
	testenv.Must(t, settle(KindDispute, "ayse", "written by nobody here"))
	refused("the same rows again", settle(KindDispute, "ece", "written by nobody here"), "ayse disputes these rows already")
	refused("the same person", settle(KindSetAside, "ayse", ""), "somebody else")
	f.insert(journal.Entry{Text: "more nonsense"})
	refused("a further row", settle(KindSetAside, "ece", ""), "further rows")
	testenv.Must(t, settle(KindDispute, "ayse", "another one"))
	refused("a hold in between", decide(t.Context(), f.books, KindHold, month("2025-12"), "ece", "seen"), "ayse disputes 3 rows")
	testenv.Must(t, settle(KindSetAside, "ece", "seen"))

	l := f.log()
	if !l.Foreign.AreNone() || l.Disputed != nil || len(l.Entries) != 8 {
		t.Fatalf("foreign %v, disputed %v, %d entries", l.Foreign, l.Disputed, len(l.Entries))
	}

	last := &l.Entries[7]
	if last.By != "ece" || last.Rows.Count != 3 || !slices.ContainsFunc(last.Rows.First, func(r journal.Foreign) bool { return r.Digest == forged.Digest() && r.Text != "" }) {
		t.Errorf("%+v", last)
	}
	if rows := f.Ask("count() FROM " + f.Database + ".journal"); rows != "8\n" {
		t.Errorf("%s rows are left", rows)
	}

	// What was set aside stays so.
	f.insert(forged)
	if l := f.log(); !l.Foreign.AreNone() {
		t.Errorf("it is there again: %v", l.Foreign)
	}
	if !f.clean() {
		t.Errorf("%+v", f.verifyPart(nil))
	}

	// A head that is no entry is replaced by the dispute about it.
	f.Do("SET", headKey, "nonsense")
	testenv.Must(t, settle(KindDispute, "ece", "nobody knows"))
	testenv.Must(t, settle(KindSetAside, "ayse", ""))
	if !f.clean() {
		t.Errorf("%+v", f.verifyPart(nil))
	}

	f.entries = f.log().Entries
	f.head = fmt.Sprint(f.Do("GET", headKey))
	f.exec("TRUNCATE TABLE %[1]s.was_journal")
	f.exec("INSERT INTO %[1]s.was_journal SELECT * FROM %[1]s.journal")
}

// rowsOf are the rows of closed orders in a comparable form.
func (f *falsified) rowsOf() string {
	f.T.Helper()
	return f.ClickHouse.Exec(f.T, fmt.Sprintf("SELECT * FROM %s.closed_orders ORDER BY ALL", f.Database))
}

// ClickHouse was restored from a backup that is older than the head: entries are brought back from what was delivered, and
// their rows are made again when orders say the same, and only then.
func (f *falsified) recoverEntries(t *testing.T) {
	f.T = t
	defer f.restore()
	want := f.rowsOf()
	var manifests []string
	for i := range f.entries {
		manifests = append(manifests, f.entries[i].JSON)
	}

	recovered := func(manifests []string) (int, error) {
		entries, err := f.books.Recover(t.Context(), Recovery{Manifests: manifests}, func(string) {})
		return len(entries), err
	}

	for _, kept := range []int{2, 1} { // entries that the backup has
		f.leave("journal", fmt.Sprint("sequence <= ", kept))
		for _, table := range spoilt[1:] {
			f.leave(table, fmt.Sprintf("batch IN (SELECT batch FROM %s.journal)", f.Database))
		}

		if _, err := f.books.Read(t.Context()); !errors.Is(err, ErrBehind) {
			t.Fatalf("the backup has %d entries: %v", kept, err)
		}

		n, err := recovered(manifests[kept+1:])
		if !errors.Is(err, ErrRefused) || n > 0 || !strings.Contains(err.Error(), "is in none of the files") {
			t.Errorf("without one manifest: %v", err)
		}

		edited := slices.Clone(manifests)
		edited[kept] = strings.Replace(edited[kept], `"by":"`, `"by":"x`, 1)
		n, err = recovered(edited)
		if !errors.Is(err, ErrRefused) || n > 0 {
			t.Errorf("with an edited manifest: %v", err)
		}

		n, err = recovered(manifests)
		if kept == 1 { // October was closed before the corrections, which orders have now
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "the orders are not any more what was sealed") {
				t.Errorf("rows that cannot be made again: %v", err)
			}
			continue
		}

		testenv.Must(t, err)
		if n != len(manifests)-kept {
			t.Errorf("%d entries were recovered", n)
		}
		if got := f.rowsOf(); got != want {
			t.Errorf("the backup has %d entries: rows are\n%s\nwere\n%s", kept, got, want)
		}
		if !f.clean() {
			t.Errorf("the backup has %d entries: %+v", kept, f.verifyPart(nil))
		}
	}
}
