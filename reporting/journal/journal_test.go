package journal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var keys = NewKeys("sandbox", "k2", map[string][]byte{"k1": bytes.Repeat([]byte{1}, 32), "k2": bytes.Repeat([]byte{2}, 32)})

// entryAfter is the signed entry of a text that follows another one.
func entryAfter(before *Entry, sequence int, decision string) Entry {
	previous := ""
	if before != nil {
		previous = before.Seal()
	}

	e, err := keys.Sign(fmt.Sprintf(`{"sequence":%d,"previous":%q,"decision":%q}`, sequence, previous, decision))
	if err != nil {
		panic(err)
	}
	return e
}

// logOf is a log of so many entries.
func logOf(length int) []Entry {
	var all []Entry
	for i := range length {
		var before *Entry
		if i > 0 {
			before = &all[i-1]
		}
		all = append(all, entryAfter(before, i+1, "decision"))
	}
	return all
}

// rowsOf are the entries as rows of the table.
func rowsOf(k Keys, entries []Entry) *Rows {
	rows := k.NewRows()
	for i, e := range entries {
		size := len(e.Text) + len(e.KeyID) + len(e.Signature)
		rows.Add(Row{Entry: e, Digest: e.Digest(), Size: uint64(size), Block: uint64(i + 1)})
	}
	return rows
}

func follow(t *testing.T, rows []Entry, head *Entry) *Chain {
	t.Helper()
	chain, err := rowsOf(keys, rows).Follow(head)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

func requireChain(t *testing.T, chain *Chain, want []Entry, foreign int) {
	t.Helper()
	if !slices.Equal(chain.Entries, want) {
		t.Errorf("the log has %d entries, want %d: %v", len(chain.Entries), len(want), chain.Entries)
	}
	if len(chain.Foreign.First) != foreign {
		t.Errorf("%d foreign rows, want %d: %v", len(chain.Foreign.First), foreign, chain.Foreign)
	}
}

func TestFollow_FindsTheLogInAnyOrderAndWithRepetitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := logOf(rapid.IntRange(0, 8).Draw(t, "length"))
		repeated := rapid.SliceOfN(rapid.SampledFrom(append(all, entryAfter(nil, 1, "decision"))), 0, 5).Draw(t, "repeated")
		if len(all) == 0 {
			repeated = nil
		}

		rows := rapid.Permutation(append(slices.Clone(all), repeated...)).Draw(t, "rows")

		var head *Entry
		headAt := rapid.IntRange(0, len(all)).Draw(t, "head")
		if headAt > 0 {
			head = &all[headAt-1]
		}

		chain, err := rowsOf(keys, rows).Follow(head)
		if err != nil {
			t.Fatal(err)
		}

		if !slices.Equal(chain.Entries, all) || !chain.Foreign.AreNone() || chain.Ahead != len(all)-headAt || chain.Unstored {
			t.Fatalf("%+v", chain)
		}
	})
}

func TestFollow_TheHeadAloneIsTheLastEntry(t *testing.T) {
	for _, length := range []int{1, 2, 5} {
		all := logOf(length)

		chain := follow(t, all[:length-1], &all[length-1])

		requireChain(t, chain, all, 0)
		if !chain.Unstored {
			t.Error("the row of the head is missing, which is not said")
		}
	}
}

func TestFollow_NamesWhatIsMissing(t *testing.T) {
	all := logOf(7)
	without := func(from, to int) []Entry { return slices.Concat(all[:from-1], all[to:]) }
	for _, c := range []struct {
		what string
		rows []Entry
		want string
	}{
		{"everything but the last", all[6:], "entries 1 to 6 of the books' log are missing"},
		{"all rows", nil, "entries 1 to 6 of the books' log are missing"},
		{"the first", without(1, 1), "entry 1 of the books' log is missing"},
		{"one in the middle", without(4, 4), "entry 4 of the books' log is missing"},
		{"some in the middle", without(3, 5), "entries 3 to 5 of the books' log are missing"},
		{"the tail", all[:4], "entries 5 to 6 of the books' log are missing"},
		{"the one before the head", without(6, 6), "entry 6 of the books' log is missing"},
	} {
		_, err := rowsOf(keys, c.rows).Follow(&all[6])

		var missing *MissingError
		if !errors.As(err, &missing) || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.what, err, c.want)
		}
	}
}

func TestFollow_WhatIsNotSignedIsForeign(t *testing.T) {
	all := logOf(3)
	other := NewKeys("production", "k2", map[string][]byte{"k2": bytes.Repeat([]byte{2}, 32)})
	next := entryAfter(&all[2], 4, "decision")
	changed := func(change func(e *Entry)) Entry {
		e := next
		change(&e)
		return e
	}

	ofOther, err := other.Sign(next.Text)
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		what  string
		row   Entry
		wants string
	}{
		{"nonsense", Entry{Text: "nonsense", KeyID: "x", Signature: "x"}, "not in BOOKS_KEYS"},
		{"no signature", changed(func(e *Entry) { e.Signature = "" }), "signature is wrong"},
		{"a signature cut off", changed(func(e *Entry) { e.Signature = e.Signature[:32] }), "signature is wrong"},
		{"another text", changed(func(e *Entry) { e.Text = strings.Replace(e.Text, "decision", "Decision", 2) }), "signature is wrong"},
		{"another key", changed(func(e *Entry) { e.KeyID = "k1" }), "signature is wrong"},
		{"the key of another environment", ofOther, "signature is wrong"},
		{"empty", Entry{}, "not in BOOKS_KEYS"},
	} {
		for _, head := range []*Entry{nil, &all[2]} {
			chain := follow(t, append(slices.Clone(all), c.row), head)

			requireChain(t, chain, all, 1)
			if len(chain.Foreign.First) == 1 && !strings.Contains(chain.Foreign.First[0].Why, c.wants) {
				t.Errorf("%s: %s", c.what, chain.Foreign.First[0].Why)
			}
		}
	}
}

func TestFollow_OfTwoEntriesUnderOneNumberTheHeadDecides(t *testing.T) {
	all := logOf(3)
	fork := entryAfter(&all[1], 3, "another decision")
	rows := append(slices.Clone(all), fork)

	requireChain(t, follow(t, rows, &all[2]), all, 1)
	requireChain(t, follow(t, rows, &fork), append(slices.Clone(all[:2]), fork), 1)

	// Redis was restored from before both: nobody can know which was decided.
	requireChain(t, follow(t, rows, &all[1]), all[:2], 2)
	requireChain(t, follow(t, rows, nil), all[:2], 2)
}

func TestFollow_AForeignHeadIsNamed(t *testing.T) {
	all := logOf(3)

	chain := follow(t, all, &Entry{Text: "nonsense"})

	requireChain(t, chain, all, 1)
	if why := chain.Foreign.First[0].Why; !strings.HasPrefix(why, "the head in Redis: ") {
		t.Error(why)
	}
}

func TestFollow_AnOldKeyStillChecks(t *testing.T) {
	all := logOf(2)
	rotated := NewKeys("sandbox", "k3", map[string][]byte{"k2": bytes.Repeat([]byte{2}, 32), "k3": bytes.Repeat([]byte{3}, 32)})

	chain, err := rowsOf(rotated, all).Follow(&all[1])
	if err != nil {
		t.Fatal(err)
	}

	requireChain(t, chain, all, 0)
}

func TestFollow_WithoutKeysNothingIsBelieved(t *testing.T) {
	all := logOf(1)
	var none Keys

	if _, err := rowsOf(none, all).Follow(nil); !errors.Is(err, ErrNoKeys) {
		t.Error(err)
	}
	if _, err := rowsOf(none, nil).Follow(&all[0]); !errors.Is(err, ErrNoKeys) {
		t.Error(err)
	}
	if _, err := none.Sign("{}"); !errors.Is(err, ErrNoKeys) {
		t.Error(err)
	}
	if chain, err := rowsOf(none, nil).Follow(nil); err != nil || len(chain.Entries) > 0 {
		t.Error(chain, err)
	}
}

// Whoever can write to ClickHouse can add any number of rows of any size: few are kept, all are counted.
func TestFollow_KeepsLittleOfManyForeignRows(t *testing.T) {
	all := logOf(3)
	fork := entryAfter(&all[2], 5, "signed, but not the next one")
	garbage := func(from, to int) (rows []Entry) {
		for i := from; i < to; i++ {
			rows = append(rows, Entry{Text: strings.Repeat("x", 1000) + fmt.Sprint(i)})
		}
		return rows
	}

	foreignBeside := func(rows ...Entry) ForeignRows {
		chain := follow(t, append(slices.Clone(all), rows...), &all[2])
		if !slices.Equal(chain.Entries, all) {
			t.Fatalf("the log has %d entries", len(chain.Entries))
		}
		return chain.Foreign
	}

	many := foreignBeside(append(garbage(0, 5000), fork)...)
	if many.Count != 5001 || len(many.First) != MaxNamed || many.Unnamed() != 5001-MaxNamed || many.LastBlock != 5004 {
		t.Errorf("%d rows, %d named, %d not named, the last block is %d", many.Count, len(many.First), many.Unnamed(), many.LastBlock)
	}
	if first := many.First[0]; first.Digest != fork.Digest() || !strings.HasPrefix(first.Why, "it is signed") {
		t.Errorf("a signed row is hidden behind others: %+v", first)
	}

	for _, f := range many.First[1:] {
		if len(f.Text) != BeginningSize {
			t.Fatalf("%d bytes of a row are kept", len(f.Text))
		}
	}

	if named := many.Named(); len(named) != MaxNamed+1 || named[MaxNamed] != "and 4901 further rows" {
		t.Errorf("%d lines, the last is %s", len(named), named[len(named)-1])
	}
}

// Of a row that is longer than an entry can be only the beginning is read; it must not pass for an entry.
func TestFollow_ARowThatIsCutIsForeign(t *testing.T) {
	all := logOf(2)
	rows := rowsOf(keys, all[:1])
	cut := Row{Entry: all[1], Digest: strings.Repeat("f", 64), Size: 1 << 30, Block: 2}
	rows.Add(cut)

	chain, err := rows.Follow(&all[0])
	if err != nil {
		t.Fatal(err)
	}

	requireChain(t, chain, all[:1], 1)
	if why := chain.Foreign.First[0].Why; why != "it has 1073741824 bytes, which is more than an entry can have" {
		t.Error(why)
	}
}

func TestSign_RefusesWhatIsTooLong(t *testing.T) {
	if _, err := keys.Sign(strings.Repeat("x", MaxText)); err != nil {
		t.Error(err)
	}
	if _, err := keys.Sign(strings.Repeat("x", MaxText+1)); err == nil {
		t.Error("an entry is signed that nobody would read")
	}
}

// The rows of an entry that was signed again, with a newer key, are all of the log.
func TestFollow_KnowsAllRowsOfAnEntry(t *testing.T) {
	all := logOf(2)
	rotated := NewKeys("sandbox", "k3", map[string][]byte{"k2": bytes.Repeat([]byte{2}, 32), "k3": bytes.Repeat([]byte{3}, 32)})
	again, err := rotated.Sign(all[1].Text)
	if err != nil {
		t.Fatal(err)
	}

	chain, err := rowsOf(rotated, append(slices.Clone(all), again, again)).Follow(&all[1])
	if err != nil {
		t.Fatal(err)
	}

	requireChain(t, chain, all, 0)
	if want := []string{all[0].Digest(), all[1].Digest(), again.Digest()}; !slices.Equal(chain.Rows, want) {
		t.Errorf("the log's rows are %q, want %q", chain.Rows, want)
	}
}
