package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/export"
	"vendorapi/reporting/reconcile"
)

// erasing is `reporting erase` against an environment, with a list of its own.
type erasing struct {
	*archiveenv.System
	list string
}

func newErasing(t *testing.T) *erasing {
	t.Helper()
	return &erasing{archiveenv.New(t), filepath.Join(t.TempDir(), "erasures")}
}

// run wants an exit status and the words in what is said.
func (e *erasing) run(status int, words string, args ...string) {
	e.T.Helper()
	args = append([]string{"erase", "--config", settingsFile(e.T), "--record", e.list}, args...)
	cmd := program(e.T, append(variables(e.System), "REDIS_URL="+e.ConfigFor(stack.BackupUser).URL), args...)
	out, err := cmd.CombinedOutput()
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		e.T.Fatal(err)
	}

	if got != status || !strings.Contains(string(out), words) {
		e.T.Errorf("%v: exit status %d, want %d and %q\n%s", args[4:], got, status, words, out)
	}

	for _, personal := range []string{"Ali Veli", "5321234567", "Bahariye"} {
		if bytes.Contains(out, []byte(personal)) {
			e.T.Errorf("%v: it says %s", args[4:], personal)
		}
	}
}

func (e *erasing) recorded() int {
	text, err := os.ReadFile(e.list)
	testenv.Must(e.T, err)
	return strings.Count(string(text), "\n") - 1 // the list's own line
}

func TestErase_ByPhoneErasesWhatHasEnded(t *testing.T) {
	t.Parallel()

	e := newErasing(t)
	done, open := e.Delivered(time.Now()), e.Vendor.Order("", time.Now())
	e.Vendor.Edit = func(d *delivery.OrderDraft) { d.Recipient.Phone = "5329999999" }
	other := e.Delivered(time.Now())
	e.run(statusInProgress, "order "+open.ID.String()+" (order-2) is Searching", "--phone", "+905321234567")
	if o := e.Read(done.ID); o.ErasedAt.IsZero() || o.Recipient.Name != "" || e.recorded() != 1 {
		t.Errorf("%+v, %d in the list", o, e.recorded())
	}

	for _, o := range []*delivery.Order{open, other} {
		if o := e.Read(o.ID); !o.ErasedAt.IsZero() || o.Recipient.Name != "Ali Veli" {
			t.Errorf("it was not asked for: %+v", o)
		}
	}

	e.Move(open, delivery.Delivered, time.Now())
	e.run(0, "order "+open.ID.String()+": erased", "--phone", "05321234567")
	e.run(statusNothingFound, "nothing found", "--phone", "05321234567")
	e.run(0, "was erased before, on ", "--order", open.ID.String())
	if e.recorded() != 2 {
		t.Errorf("%d in the list", e.recorded())
	}
}

func TestErase_ByOrderFindsWhatHasLeftRedis(t *testing.T) {
	t.Parallel()

	e := newErasing(t)
	account := e.Vendor.Account.String()
	o := e.Vendor.Order("", time.Now())
	e.run(statusInProgress, "is Searching", "--account", account, "--external-order-id", o.ExternalOrderID)
	e.Move(o, delivery.Delivered, time.Now())
	e.run(0, o.ID.String()+": erased", "--account", account, "--external-order-id", o.ExternalOrderID)
	e.RetireAll(func() { e.Consume(ledger.RoleExport) })
	e.run(statusNothingFound, "name older orders by their ids", "--account", account, "--external-order-id", o.ExternalOrderID)
	e.run(0, "has left Redis before", "--order", o.ID.String())
	e.run(statusNothingFound, "nothing found", "--account", account, "--external-order-id", "another")
	e.run(statusNothingFound, "nothing found", "--order", e.MakeID("another").String())
	if e.recorded() != 1 {
		t.Errorf("%d in the list", e.recorded())
	}
}

// MakeID is the id of an order that there is not.
func (e *erasing) MakeID(externalID string) delivery.OrderID {
	return delivery.MakeOrderID(0, delivery.DayOf(time.Now()), delivery.OrderDigest(e.Vendor.Account, externalID))
}

func TestErase_RefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()

	e := newErasing(t)
	o := e.Delivered(time.Now())
	for words, args := range map[string][]string{
		"--phone: ":                    {"--phone", "0532 123 45 67"},
		"--order: ":                    {"--order", "5321234567 "},
		"--account: ":                  {"--account", "x", "--external-order-id", "y"},
		"at least one of the flags":    {},
		"[account order] were all set": {"--order", o.ID.String(), "--account", e.Vendor.Account.String(), "--external-order-id", "y"},
		"missing [external-order-id]":  {"--account", e.Vendor.Account.String()},
	} {
		e.run(1, words, args...)
	}

	e.EachRecord("o", `redis.call('APPEND', k, 'S')`)
	e.run(1, "ends early", "--phone", "5321234567")
	o = e.Delivered(time.Now())
	testenv.Must(t, os.WriteFile(e.list, []byte("?\n"), 0o600))
	e.run(1, "line 1", "--order", o.ID.String())
	testenv.Must(t, os.Remove(e.list))
	e.run(0, "erased", "--order", o.ID.String()) // the first of all makes it
	named, err := os.ReadFile(e.list)
	testenv.Must(t, err)
	id, _, _ := strings.Cut(string(named), "\n")
	o = e.Delivered(time.Now())
	for name, text := range map[string]string{"empty": "", "another": "list ABCDEFGHIJKLMNOPQRSTUVWXYZ\n"} {
		e.list = filepath.Join(t.TempDir(), name)
		testenv.Must(t, os.WriteFile(e.list, []byte(text), 0o600))
		e.run(1, "which has the line `"+id+"`", "--order", o.ID.String())
	}

	e.list = filepath.Join(t.TempDir(), "none")
	e.run(1, "which has the line `"+id+"`", "--order", o.ID.String())
	if _, err := os.Stat(e.list); err == nil || !e.Read(o.ID).ErasedAt.IsZero() {
		t.Errorf("a second list was made (%v), or the order was erased", err)
	}
}

// What is erased is in the list and in the audit stream before: what cannot be noted is not erased.
func TestErase_WaitsForItsAuditEntry(t *testing.T) {
	t.Parallel()

	e := newErasing(t)
	o := e.Delivered(time.Now())
	e.EachKey("U", `redis.call('SET', k, 'not a stream')`)
	e.run(1, "audit stream", "--order", o.ID.String())
	if o := e.Read(o.ID); !o.ErasedAt.IsZero() || o.Recipient.Name != "Ali Veli" || e.recorded() != 1 {
		t.Errorf("%+v, %d in the list", o, e.recorded())
	}

	e.EachKey("U", `redis.call('DEL', k)`)
	e.run(0, o.ID.String()+": erased", "--order", o.ID.String())
	if o := e.Read(o.ID); o.ErasedAt.IsZero() || o.Recipient.Name != "" || e.recorded() != 1 {
		t.Errorf("repeated: %+v, %d in the list", o, e.recorded())
	}
}

// After the first step of it the telephone number is gone, and the order's id ends what was begun.
func TestErase_CutShortIsRepeatedByOrder(t *testing.T) {
	t.Parallel()

	e := newErasing(t)
	o := e.Delivered(time.Now())
	attempts := func(lua string) {
		account := strings.Join(strings.Fields(strings.Trim(fmt.Sprintf("%d", o.Account[:]), "[]")), ",")
		e.EachRecord("o", "local log = string.sub(k, 1, #k - 13) .. 'g' .. string.char("+account+") "+lua)
	}

	attempts("redis.call('SET', log, 'no list')")
	e.run(1, "--order "+o.ID.String()+" repeats it", "--phone", "05321234567")
	e.run(statusNothingFound, "nothing found", "--phone", "05321234567")
	attempts("redis.call('DEL', log)")
	e.run(0, "was erased before", "--order", o.ID.String())
}

// Nothing of a recipient is ever exported, so an erasure leaves ClickHouse as it is: reports are the
// same, all orders still agree, and what is exported again changes nothing.
func TestErase_ReportsStayExact(t *testing.T) {
	t.Parallel()

	e := newErasing(t)
	edit := e.Vendor.Edit
	e.Vendor.Edit = func(d *delivery.OrderDraft) {
		edit(d)
		d.Dropoff.Note = "zil bozuk"
		d.PackageNote = "Kapıya bırakın"
	}

	done, cancelled := e.Delivered(time.Now()), e.Vendor.Order("", time.Now())
	_, _, err := e.Ledger.Orders.Cancel(t.Context(), e.Vendor.Account, cancelled.ID, delivery.CustomerRequest, "vazgeçti", time.Now())
	testenv.Must(t, err)
	x := export.New(e.Ledger, e.Archive, export.Settings{Batch: 1000, Interval: 100 * time.Millisecond, ClaimAfter: time.Second},
		"x", slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	e.Start(x.Run)
	e.AwaitExported()
	before := e.history()
	for _, personal := range []string{"Ali Veli", "5321234567", "Bahariye", "zil bozuk", "Kapıya", "vazgeçti", "40.99", "29.03"} {
		if strings.Contains(before, personal) {
			t.Errorf("ClickHouse holds %s", personal)
		}
	}

	e.run(0, done.ID.String()+": erased", "--phone", "05321234567", "--actor", "ayse")
	e.AwaitExported()
	e.Want("who erased", fmt.Sprintf("groupUniqArray(actor), groupUniqArray(action), countIf(account_id = '%s'), countIf(order_id = '%s') FROM %s.audit",
		e.Vendor.Account, done.ID, e.Database), "['ayse']\t['recipient erased']\t2\t1")
	_, err = export.Rebuild(t.Context(), e.Ledger, e.Archive, time.Now().AddDate(0, 0, -2), func(export.Rebuilt) {})
	testenv.Must(t, err)
	if after := e.history(); after != before || !strings.Contains(after, done.ID.String()) || !strings.Contains(after, "123.45") {
		t.Errorf("ClickHouse has\n%s\nand had\n%s", after, before)
	}

	today := time.Now()
	testenv.Must(t, reconcile.New(e.Ledger, e.Archive).Run(t.Context(), reconcile.Scope{From: today.AddDate(0, 0, -1), To: today.AddDate(0, 0, 1), Timeout: testserver.Timeout},
		func(d *reconcile.Day) {
			if !d.Balanced() || len(d.Totals) > 0 {
				t.Errorf("%+v", d)
			}
		}))
}

// history is all that the tables hold of orders.
func (e *erasing) history() (all string) {
	for table := range strings.FieldsSeq(e.Ask("name FROM system.tables WHERE database = '" + e.Database + "' AND engine LIKE '%MergeTree' ORDER BY name")) {
		if !slices.Contains([]string{"audit", "reconciliations", "schema_migrations"}, table) {
			all += e.Ask("* FROM " + e.Database + "." + table + " ORDER BY ALL")
		}
	}
	return all
}
