package ledger

import (
	"fmt"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/audit"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
)

func auditEntry(account delivery.AccountID) *audit.Entry {
	return &audit.Entry{At: time.UnixMilli(1_795_000_000_123), ID: audit.NewID(), Version: 1, Actor: "ayşe", Credential: "admin key", Address: "2001:db8::1",
		RequestID: "00112233aabbccdd", Action: "account changed", Account: account, Fleet: delivery.FleetID{2}, Order: delivery.OrderID{3}, Store: "moda",
		Old: `{"a":1}`, New: `{"a":2}`, Outcome: "INTERNAL_ERROR"}
}

func TestAudit_IsHandedToTheExporterAndKeptUntilItIsExported(t *testing.T) {
	s := newEnv(t)
	must(t, makeGroups(t.Context(), partitions.NewFeedReader(s.core, &partitions.Feed{Role: core.RoleExport, Consumer: "x"}, s.core.Partitions)))
	before, entry := s.lag(t).Entries, auditEntry(s.account)
	r := s.core.PartitionOf(s.account)
	must(t, s.Audit.Append(t.Context(), entry))
	must(t, s.Audit.Append(t.Context(), auditEntry(delivery.AccountID{})))
	equal(t, s.lag(t).Entries, before+2, "entries that are not exported")

	entries := func(r core.Partition) int64 {
		return get(s.core.Redis.XLen(t.Context(), r.Key(core.KindAudit)).Result())(t)
	}
	first := s.core.Partitions[0]
	if r.Number == first.Number {
		equal(t, entries(first), 2, "entries in the account's partition, which is the first")
	} else {
		equal(t, entries(r), 1, "entries in the account's partition")
		equal(t, entries(first), 1, "entries in the first partition")
	}

	trim := func() {
		t.Helper()
		for n := range s.core.Partitions {
			get(s.Streams.Trim(t.Context(), n, -time.Hour))(t)
		}
	}

	trim()
	var got []partitions.Entry
	for _, e := range collect(t, s.Ledger, core.RoleExport, "x", int(before)+2) {
		if e.Audit != nil {
			got = append(got, e)
		}
	}

	require(t, len(got) == 2, "%d entries were handed out after trimming", len(got))
	for _, e := range got {
		if e.Audit.ID == entry.ID {
			e.Audit.At = e.Audit.At.In(entry.At.Location())
			equal(t, *e.Audit, *entry, "entry")
		}
		equal(t, e.Kind(), byte(core.KindAudit), "stream")
	}

	trim()
	equal(t, s.core.Redis.XLen(t.Context(), r.Key(core.KindAudit)).Val() > 0, true, "kept while it is being exported")
	must(t, s.Streams.Ack(t.Context(), core.RoleExport, got...))
	equal(t, s.lag(t).Entries, before, "entries that are not exported")
	must(t, s.Audit.Append(t.Context(), auditEntry(s.account)))
	must(t, s.Streams.Ack(t.Context(), core.RoleExport, collect(t, s.Ledger, core.RoleExport, "x", 1)...))
	trim()
	equal(t, s.core.Redis.XLen(t.Context(), r.Key(core.KindAudit)).Val(), 1, "the last one read stays as the mark")
}

func TestAudit_UnreadableEntryIsSetAside(t *testing.T) {
	s := newEnv(t)
	must(t, makeGroups(t.Context(), partitions.NewFeedReader(s.core, &partitions.Feed{Role: core.RoleExport, Consumer: "x"}, s.core.Partitions)))
	key := s.core.Partitions[0].Key(core.KindAudit)
	for _, record := range []string{"", "\x01", "\xff", "text"} {
		must(t, s.core.Redis.Do(t.Context(), "XADD", key, "*", "w", record).Err())
	}

	must(t, s.Audit.Append(t.Context(), auditEntry(delivery.AccountID{})))
	for _, e := range collect(t, s.Ledger, core.RoleExport, "x", 1) {
		check(t, e.Audit == nil || e.Audit.Actor == "ayşe", "handed out %+v", e.Audit)
	}

	letters := get(s.Monitor.DeadLetters(t.Context(), 10))(t)
	check(t, len(letters) == 4 && letters[0].Stream == "audit", "dead letters %+v", letters)
}

// The same of the same about the same within the time is one entry; anything else is another.
func TestAudit_AppendUnlessNotesOnceWithinATime(t *testing.T) {
	s := newEnv(t)
	at := time.UnixMilli(1_795_000_000_000)
	key := s.core.Partitions[0].Key(core.KindAudit)
	for i, c := range []struct {
		change func(*audit.Entry)
		within time.Duration
		added  int64
	}{
		{func(*audit.Entry) {}, time.Hour, 1},
		{func(*audit.Entry) {}, time.Hour, 0},
		{func(e *audit.Entry) { e.At = at.Add(time.Hour - 1) }, time.Hour, 0},
		{func(e *audit.Entry) { e.At = at.Add(time.Hour) }, time.Hour, 1},
		{func(e *audit.Entry) { e.At = at.Add(2*time.Hour - 1) }, time.Hour, 0},
		{func(*audit.Entry) {}, 0, 1},
		{func(e *audit.Entry) { e.Actor = "deniz" }, time.Hour, 1},
		{func(e *audit.Entry) { e.Address = "192.0.2.1" }, time.Hour, 1},
		{func(e *audit.Entry) { e.Order[0]++ }, time.Hour, 1},
		{func(e *audit.Entry) { e.Fleet[0]++ }, time.Hour, 1},
		{func(e *audit.Entry) { e.Action = "another" }, time.Hour, 1},
	} {
		e := auditEntry(delivery.AccountID{})
		e.At = at
		c.change(e)
		before := s.core.Redis.XLen(t.Context(), key).Val()
		must(t, s.Audit.AppendUnless(t.Context(), e, c.within))
		equal(t, s.core.Redis.XLen(t.Context(), key).Val()-before, c.added, fmt.Sprint("entries of case ", i))
	}

	must(t, s.core.Redis.Set(t.Context(), key, "no stream", 0).Err())
	e := auditEntry(delivery.AccountID{})
	e.Actor = "ece"
	check(t, s.Audit.AppendUnless(t.Context(), e, time.Hour) != nil, "what was not stored is no error")
	must(t, s.core.Redis.Del(t.Context(), key).Err())
	must(t, s.Audit.AppendUnless(t.Context(), e, time.Hour))
	equal(t, s.core.Redis.XLen(t.Context(), key).Val(), 1, "what was not stored is remembered: entries")
}
