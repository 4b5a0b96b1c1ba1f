package ledger

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
)

// What an entry or a record holds may be quoted where it is said why it cannot be read or decided:
// in dead letters, attempts and refused updates, which are kept and shown.
func TestReasons_AreShortAndPrintableWhateverTheyQuote(t *testing.T) {
	foreign := strings.Repeat("x\xff\x00\r\nş", 10_000)
	entry := &partitions.Entry{Update: &delivery.Update{Order: delivery.MakeOrderID(0, 1, delivery.Digest{})}}
	for name, reason := range map[string]string{
		"unreadable": partitions.UnreadableReason(errors.New(foreign)),
		"undecided":  entry.Undecided(foreign).Reason,
	} {
		hidden := strings.ContainsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) })
		n := utf8.RuneCountInString(reason)
		if n > delivery.MaxForeignError || hidden || !utf8.ValidString(reason) {
			t.Errorf("%s: %d characters: %q", name, n, reason)
		}
	}
}

// An owner's dead letter of an entry that it could not decide, or read, is as short.
func TestDeadLetters_KeepShortReasons(t *testing.T) {
	s := newWebhookEnv(t)
	foreign := strings.Repeat("x\xff\x00\r\n", 12_000)
	entry := &partitions.Entry{ID: "1-1", Update: &delivery.Update{Order: delivery.MakeOrderID(0, 1, delivery.Digest{})}}
	s.owns(t, func(step *partitions.Step) { step.DeadLetter(entry.Undecided(foreign), core.RoleStatus) })

	letters := get(s.core.Redis.XRange(t.Context(), s.core.Partitions[0].Key(core.KindDeadLetters), "-", "+").Result())(t)
	require(t, len(letters) == 1, "%d dead letters", len(letters))
	reason := core.Text(letters[0].Values["reason"])
	check(t, reason != "" && utf8.RuneCountInString(reason) <= delivery.MaxForeignError && !strings.ContainsAny(reason, "\r\n\x00"), "%d bytes: %q", len(reason), reason)
	check(t, letters[0].Values[partitions.FieldPrefix+"u"] != nil, "the entry's own field is lost: %v", letters[0].Values)
}
