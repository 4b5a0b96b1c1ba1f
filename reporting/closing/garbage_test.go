package closing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/testenv"
	"vendorapi/reporting/journal"
)

// garbage adds rows to the journal as somebody can who has ClickHouse's password: any number, of any size.
func (e *env) garbage(rows, size int) {
	e.T.Helper()
	e.ClickHouse.Exec(e.T, fmt.Sprintf("INSERT INTO %s.journal (text, key_id, signature) SELECT concat(toString(number), repeat('x', %d), repeat(repeat('x', 1000), %d)), 'k1', repeat('f', 64) FROM numbers(%d)",
		e.Database, size%1000, size/1000, rows))
}

// holdAMonth makes a log of one entry.
func (e *env) holdAMonth() {
	e.T.Helper()
	m := month("2025-10")
	e.clock = m.Next().Add(Grace + time.Hour)
	testenv.Must(e.T, decide(e.T.Context(), e.books, KindHold, m, "ayse", "seen"))
}

// However many rows somebody has written, the log stays small, and two people can set them aside: exactly
// those that were disputed.
func TestDispute_OfManyRowsIsSmallAndRemovesOnlyThose(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.holdAMonth()
	const many, large = 5000, 3
	e.garbage(many, 10)
	e.garbage(large, 2*journal.MaxText)

	l := e.log()
	if l.Foreign.Count != many+large || len(l.Foreign.First) != journal.MaxNamed || len(l.Entries) != 1 {
		t.Fatalf("%d foreign rows, %d named, %d entries", l.Foreign.Count, len(l.Foreign.First), len(l.Entries))
	}

	settle := func(kind, by string) error { return decide(t.Context(), e.books, kind, Month{}, by, "nobody here") }
	testenv.Must(t, settle(KindDispute, "ayse"))

	e.garbage(1, 20)
	if err := settle(KindSetAside, "ece"); !IsRefusal(err) || !strings.Contains(err.Error(), "further rows") {
		t.Errorf("a row that nobody disputed: %v", err)
	}

	testenv.Must(t, settle(KindDispute, "ayse"))
	dispute := e.log().Disputed
	if rows := &dispute.Rows; rows.Count != many+large+1 || len(rows.First) != journal.MaxNamed || rows.SHA256 == "" {
		t.Errorf("disputed are %d rows, %d named", rows.Count, len(rows.First))
	}
	if len(dispute.JSON) > journal.MaxText/2 {
		t.Errorf("the dispute has %d bytes", len(dispute.JSON))
	}

	// What is written between the decision and the removal stays, and is foreign by itself.
	e.books.step = func(name string) {
		if name == "set aside" {
			e.garbage(2, 30)
		}
	}

	testenv.Must(t, settle(KindSetAside, "ece"))
	e.books.step = func(string) {}
	if rows := e.Ask("count() FROM " + e.Database + ".journal"); rows != "6\n" {
		t.Errorf("%s rows are left, want 4 entries and 2 rows that came later", strings.TrimSpace(rows))
	}

	l = e.log()
	if l.Foreign.Count != 2 || len(l.Entries) != 4 {
		t.Errorf("%d foreign rows, %d entries", l.Foreign.Count, len(l.Entries))
	}
}

// A process dies between the decision and the removal: the next reading removes the rows.
func TestSetAside_IsCompletedByTheNextReading(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.holdAMonth()
	const many = 300
	e.garbage(many, 10)
	testenv.Must(t, decide(t.Context(), e.books, KindDispute, Month{}, "ayse", "nobody here"))

	l := e.log()
	_, err := e.books.append(t.Context(), l, &Manifest{Kind: KindSetAside, By: "ece", Rows: l.Disputed.Rows})
	testenv.Must(t, err)
	if rows := e.Ask("count() FROM " + e.Database + ".journal"); rows != fmt.Sprintln(many+3) {
		t.Fatalf("%s rows before", rows)
	}

	l = e.log()

	if !l.Foreign.AreNone() || len(l.Entries) != 3 {
		t.Errorf("%d foreign rows, %d entries", l.Foreign.Count, len(l.Entries))
	}
	if rows := e.Ask("count() FROM " + e.Database + ".journal"); rows != "3\n" {
		t.Errorf("%s rows after", rows)
	}
}
