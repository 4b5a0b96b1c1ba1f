package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/journal"
)

// Entries that somebody removed from the end are noticed by what is reported, because Redis has the head; while
// Redis is away, by the head that was read last.
func TestJournal_EndsWithTheHead(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	a.books = journal.NewKeys("sandbox", "k1", map[string][]byte{"k1": bytes.Repeat([]byte{1}, 32)})
	var all []journal.Entry
	previous := ""
	for sequence := 1; sequence <= 3; sequence++ {
		e, err := a.books.Sign(fmt.Sprintf(`{"sequence":%d,"previous":%q}`, sequence, previous))
		noError(t, err)
		all = append(all, e)
		previous = e.Seal()
	}

	noError(t, a.InsertEntry(t.Context(), &all[0]))

	head, away := "", error(nil)
	read := func(want int, wantErr error) {
		t.Helper()
		entries, err := a.Journal(t.Context())
		if len(entries) != want || !errors.Is(err, wantErr) {
			t.Errorf("%d entries, %v", len(entries), err)
		}
	}

	read(1, nil) // Redis is not asked

	a.UseHead(func(context.Context) (string, error) { return head, away })
	head = all[0].Head()
	read(1, nil)
	head = all[1].Head() // just decided, or its row was removed
	read(0, delivery.ErrUnavailable)
	away = delivery.ErrUnavailable
	read(0, delivery.ErrUnavailable)

	away, head = nil, all[2].Head()
	missing := &journal.MissingError{}
	if _, err := a.Journal(t.Context()); !errors.As(err, &missing) || missing.From != 2 {
		t.Error(err)
	}

	away = errors.New("another error")
	read(0, away)

	a.UseHead(func(context.Context) (string, error) { return "", delivery.ErrUnavailable })
	read(1, nil) // no head was ever read
}

// What was verified is not verified again while its rows and the head are the same, and whatever is changed
// is seen.
func TestJournal_IsVerifiedAgainWhenARowHasChanged(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	keys := journal.NewKeys("sandbox", "k1", map[string][]byte{"k1": bytes.Repeat([]byte{1}, 32)})
	a.books = keys
	var all []journal.Entry
	previous := ""
	for sequence := 1; sequence <= 3; sequence++ {
		e, err := keys.Sign(fmt.Sprintf(`{"sequence":%d,"previous":%q}`, sequence, previous))
		noError(t, err)
		all = append(all, e)
		previous = e.Seal()
		noError(t, a.InsertEntry(t.Context(), &e))
	}

	read := func() error {
		entries, err := a.Journal(t.Context())
		if err == nil && len(entries) != 3 {
			t.Errorf("%d entries", len(entries))
		}
		return err
	}

	noError(t, read())

	a.books = journal.Keys{} // nothing can be verified any more
	noError(t, read())
	noError(t, a.InsertEntry(t.Context(), &all[1])) // there twice
	noError(t, read())

	for what, change := range map[string]string{
		"a row is added":   "INSERT INTO journal (text, key_id, signature) VALUES ('x', 'k1', 'y')",
		"a row is changed": "ALTER TABLE journal UPDATE signature = 'y' WHERE sequence = 2 SETTINGS mutations_sync = 2",
		"a row is removed": "ALTER TABLE journal DELETE WHERE sequence = 3 SETTINGS mutations_sync = 2",
	} {
		noError(t, a.exec(t.Context(), change))
		if err := read(); !errors.Is(err, journal.ErrNoKeys) {
			t.Errorf("%s: %v", what, err)
		}

		noError(t, a.exec(t.Context(), "TRUNCATE TABLE journal"))
		for i := range all {
			noError(t, a.InsertEntry(t.Context(), &all[i]))
		}

		noError(t, read())
	}

	a.UseHead(func(context.Context) (string, error) { return all[2].Head(), nil })
	if err := read(); !errors.Is(err, journal.ErrNoKeys) {
		t.Errorf("a head is known: %v", err)
	}

	a.books = keys
	noError(t, read())
}
