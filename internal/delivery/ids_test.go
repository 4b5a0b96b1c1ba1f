package delivery

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestOrderID_CarriesItsParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partition := rapid.IntRange(0, MaxPartitions-1).Draw(t, "partition")
		day := rapid.Uint16().Draw(t, "day")
		digest := OrderDigest(NewAccountID(), rapid.String().Draw(t, "external id"))
		id := MakeOrderID(partition, day, digest)
		require(t, id.Partition() == partition && id.Day() == day && id.Digest() == digest,
			"%s holds %d, %d, %x; want %d, %d, %x", id, id.Partition(), id.Day(), id.Digest(), partition, day, digest)
		again, err := ParseOrderID(id.String())
		require(t, err == nil && again == id, "%s becomes %s, %v", id, again, err)
	})
}

//rule:order-creation-request/externalOrderId decisions/duplicate-order
func TestOrderDigest_TellsOrdersApart(t *testing.T) {
	a, b := NewAccountID(), NewAccountID()
	long := strings.Repeat("x", 300)
	seen := map[[OrderDigestSize]byte]string{}
	for name, d := range map[string][OrderDigestSize]byte{
		"a/1": OrderDigest(a, "1"), "b/1": OrderDigest(b, "1"), "a/2": OrderDigest(a, "2"), "a/": OrderDigest(a, ""),
		"a/long": OrderDigest(a, long), "a/longer": OrderDigest(a, long+"x"),
	} {
		other, twice := seen[d]
		check(t, !twice, "%s and %s have one digest", name, other)
		seen[d] = name
	}
}

func TestParseIDs_RefuseOtherSpellings(t *testing.T) {
	for _, s := range []string{
		"", "x", "00000000-0000-0000-0000-00000000000", "00000000-0000-0000-0000-0000000000000", "{0000000-0000-0000-0000-000000000000}",
		"00000000000000000000000000000000", "urn:uuid:00000000-0000-8000-8000-000000000000", "0000000g-0000-8000-8000-000000000000",
		"00000000+0000-8000-8000-000000000000",
	} {
		if _, err := ParseOrderID(s); err == nil {
			t.Errorf("order id %q was accepted", s)
		}
		if _, err := ParseFleetID(s); err == nil {
			t.Errorf("fleet id %q was accepted", s)
		}
		if _, err := ParseAccountID(s); err == nil {
			t.Errorf("account id %q was accepted", s)
		}
	}

	if _, err := ParseOrderID("7c9e6679-7425-40de-944b-e07fc1f90ae7"); err == nil {
		t.Error("a UUID of version 4 was accepted as an order id")
	}
}

func TestIDs_SurviveTheirText(t *testing.T) {
	account, fleet := NewAccountID(), NewFleetID()
	if got, err := ParseAccountID(account.String()); err != nil || got != account || got.IsZero() {
		t.Errorf("account: %v, %v", got, err)
	}
	if got, err := ParseFleetID(fleet.String()); err != nil || got != fleet || got.IsZero() {
		t.Errorf("fleet: %v, %v", got, err)
	}

	check(t, DayOf(time.Date(1970, 1, 11, 23, 59, 59, 0, time.UTC)) == 10, "the tenth day is not 10")
}

func FuzzParseOrderID(f *testing.F) {
	f.Add("00000000-0000-8000-8000-000000000000")
	f.Add(MakeOrderID(1023, 20778, OrderDigest(AccountID{}, "x")).String())
	f.Add("7c9e6679-7425-40de-944b-e07fc1f90ae7")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseOrderID(s)
		if err != nil {
			return
		}
		check(t, id.String() == strings.ToLower(s), "%q is read as %s", s, id)
		check(t, MakeOrderID(id.Partition(), id.Day(), id.Digest()) == id, "%s is more than its parts", id)
	})
}

func FuzzParseEventID(f *testing.F) {
	f.Add(EventID(MakeOrderID(7, 20778, OrderDigest(AccountID{}, "x")), 1<<32|5))
	f.Add("evt_")
	f.Add("evt_" + strings.Repeat("0", 48))
	f.Fuzz(func(t *testing.T, s string) {
		id, version, err := ParseEventID(s)
		check(t, err != nil || EventID(id, version) == "evt_"+strings.ToLower(s[4:]), "%q is read as %s version %d", s, id, version)
	})
}

func TestEventID_NamesOneVersion(t *testing.T) {
	id := MakeOrderID(7, 20778, OrderDigest(NewAccountID(), "x"))
	for _, version := range []uint64{0, 1, 1<<32 | 1, 1<<64 - 1} {
		got, v, err := ParseEventID(EventID(id, version))
		check(t, err == nil && got == id && v == version, "version %d becomes %v, %d, %v", version, got, v, err)
	}
}

// Without LogValue a JSON log would hold arrays of numbers, which nobody finds an
// order by.
func TestLogValue_IsReadableInEveryFormat(t *testing.T) {
	t.Parallel()

	account, fleet := NewAccountID(), NewFleetID()
	order := OrderID(account)
	for _, handler := range []func(*bytes.Buffer) slog.Handler{
		func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var b bytes.Buffer
		slog.New(handler(&b)).Info("line", "account", account, "fleet", fleet, "order", order, "status", Delivered)
		for _, want := range []string{account.String(), fleet.String(), order.String(), "Delivered"} {
			check(t, strings.Contains(b.String(), want), "%s is missing in %s", want, &b)
		}
	}
}
