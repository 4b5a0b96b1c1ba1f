package archive

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"vendorapi/internal/testenv/testserver"
)

var (
	mine      = Owner{Environment: "production", Ledger: "MINE"}
	sandboxes = Owner{Environment: "sandbox", Ledger: "SANDBOXES"}
	second    = Owner{Environment: "production", Ledger: "SECOND"}
)

func TestOwner_OthersAreRefusedWithBothNames(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	if err := a.CheckOwner(t.Context(), mine); !errors.Is(err, ErrIncomplete) {
		t.Errorf("nobody's: %v", err)
	}

	for range 2 {
		noError(t, a.Claim(t.Context(), mine))
	}

	noError(t, a.CheckOwner(t.Context(), mine))

	for other, takesOver := range map[Owner]bool{sandboxes: false, second: true} {
		for name, err := range map[string]error{"check": a.CheckOwner(t.Context(), other), "claim": a.Claim(t.Context(), other)} {
			if !errors.Is(err, ErrOtherOwner) {
				t.Errorf("%s of %v: %v", name, other, err)
				continue
			}

			for _, want := range []string{a.database, mine.Ledger + " of production since 20", other.Ledger + " of " + other.Environment, "a database of its own"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s of %v: no %q in %v", name, other, want, err)
				}
			}

			if strings.Contains(err.Error(), "--take-over "+mine.Ledger) != takesOver {
				t.Errorf("%s of %v: %v", name, other, err)
			}
		}
	}

	noError(t, a.CheckOwner(t.Context(), mine))
}

func TestOwner_OneOfManyWins(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	database := newArchive(t).database
	owners := []Owner{mine, sandboxes, second}
	failures := make([]error, len(owners))
	var running sync.WaitGroup
	for i, o := range owners {
		a := open(t, e, database)
		running.Go(func() { failures[i] = a.Claim(t.Context(), o) })
	}

	running.Wait()
	a := open(t, e, database)
	owned := 0
	for i, o := range owners {
		err := a.CheckOwner(t.Context(), o)
		if err == nil {
			owned++
		}
		if err == nil && failures[i] != nil {
			t.Errorf("%v owns it, and was told %v", o, failures[i])
		}
	}

	if owned != 1 {
		t.Errorf("it belongs to %d: %v", owned, failures)
	}
}

func TestOwner_TakeOver(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	if taken, err := a.TakeOver(t.Context(), mine.Ledger, second); err == nil || taken {
		t.Errorf("nobody's: %t %v", taken, err)
	}

	noError(t, a.Claim(t.Context(), mine))
	for _, c := range []struct {
		from  string
		owner Owner
		want  error
		taken bool
	}{
		{"OTHER", second, ErrOtherOwner, false},
		{"", second, ErrOtherOwner, false},
		{mine.Ledger, sandboxes, ErrOtherOwner, false}, // of another environment
		{mine.Ledger, mine, nil, false},
		{mine.Ledger, second, nil, true},
		{mine.Ledger, second, nil, false}, // repeated
		{mine.Ledger, mine, ErrOtherOwner, false},
		{second.Ledger, mine, nil, true}, // and back
	} {
		taken, err := a.TakeOver(t.Context(), c.from, c.owner)
		if taken != c.taken || !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%+v: %t %v", c, taken, err)
		}
	}

	noError(t, a.CheckOwner(t.Context(), mine))
}

// A database that was restored has the owner of the one that was copied, whoever had claimed it first
// of the same ledger, and whatever it went through.
func TestOwner_TravelsWithTheRows(t *testing.T) {
	t.Parallel()

	from, to := newArchive(t), newArchive(t)
	noError(t, from.Claim(t.Context(), mine))
	_, err := from.TakeOver(t.Context(), mine.Ledger, second)
	noError(t, err)
	noError(t, to.Claim(t.Context(), second)) // by migrating, before it was loaded
	var file bytes.Buffer
	rows, err := from.Dump(t.Context(), Identity, &file, nobody)
	noError(t, err)
	noError(t, to.Load(t.Context(), Identity, &file, rows, nobody))
	noError(t, to.CheckOwner(t.Context(), second))
	if err := to.CheckOwner(t.Context(), mine); !errors.Is(err, ErrOtherOwner) {
		t.Error(err)
	}
}

func TestCheck_NamesWhatIsMissing(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	a := open(t, e, e.NewDatabase(t))
	s := ownOf(t, a)
	want := func(names ...string) {
		t.Helper()
		err := a.Check(t.Context())
		if !errors.Is(err, ErrIncomplete) || !strings.HasSuffix(err.Error(), "missing are "+strings.Join(names, ", ")) || !strings.Contains(err.Error(), "`reporting migrate`") {
			t.Error(err)
		}

		if !errors.Is(a.CheckOwner(t.Context(), mine), ErrIncomplete) {
			t.Error("it has an owner")
		}
	}

	var names []string
	for _, f := range s.files {
		names = append(names, f.name)
	}

	names = append(names, viewsName)
	want(names...)
	noError(t, a.makeDatabase(t.Context()))
	want(names...)
	_, err := a.migrate(t.Context(), firstFiles(s, 2))
	noError(t, err)
	want(names[2:]...)
	_, err = a.migrate(t.Context(), firstFiles(s, len(s.files)))
	noError(t, err)
	want(viewsName)
	_, err = a.Migrate(t.Context())
	noError(t, err)
	noError(t, a.Check(t.Context()))
}

// What people look at waits until it is known whose it is, and an administrator's trouble is no defect
// of a page.
func TestForPeople(t *testing.T) {
	t.Parallel()

	e := testserver.SharedClickHouse(t)
	ours := false
	a := newArchive(t).ForPeople(func() bool { return ours })
	if _, err := a.JournalRows(t.Context()); !isUnavailable(err) {
		t.Error(err)
	}
	if err := a.Ping(t.Context()); !isUnavailable(err) {
		t.Error(err)
	}

	ours = true
	_, err := a.JournalRows(t.Context())
	noError(t, err)
	noError(t, a.Ping(t.Context()))

	empty := open(t, e, e.NewDatabase(t))
	if _, err := empty.JournalRows(t.Context()); err == nil || isUnavailable(err) {
		t.Errorf("a program: %v", err)
	}
	if _, err := empty.ForPeople(func() bool { return true }).JournalRows(t.Context()); !isUnavailable(err) {
		t.Errorf("people: %v", err)
	}
}
