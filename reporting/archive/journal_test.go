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
