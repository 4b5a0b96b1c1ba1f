//go:build long

package reconcile

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive/archiveenv"
)

// TestHistory_IsWhatHappened: whatever happens in whatever order, to orders, to
// Redis, to exporters and to ClickHouse: once all has been exported, ClickHouse
// says what happened, no more and no less, and reconcile finds nothing.
func TestHistory_IsWhatHappened(t *testing.T) {
	t.Parallel()

	for name, value := range map[string]string{"rapid.checks": "3", "rapid.steps": "40"} { // who asks for a number gets that
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			if err := f.Value.Set(value); err != nil {
				t.Fatal(err)
			}
		}
	}

	s := archiveenv.New(t)
	p := s.NewProxy("")
	rapid.Check(t, func(rt *rapid.T) {
		w := newMachine(rt, s, p)
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {}, "create": w.act(w.create), "create more": w.act(w.create), "move": w.act(w.move), "move on": w.act(w.move), "move again": w.act(w.move),
			"late": w.act(w.reportLate), "webhooks": w.act(w.tellWebhooks), "export": w.act(w.export), "export badly": w.act(w.exportBadly),
			"lose group": w.act(w.loseGroup), "trim": w.act(w.trim), "retire": w.act(w.retire), "back up": w.act(w.backUp),
			"restore": w.act(w.restore), "rebuild": w.act(w.rebuild), "reconcile": w.act(func() { w.reconcile(rapid.Bool().Draw(w.T, "fix")) }),
		})

		w.T = rt
		w.settle()
		w.isTrue()
	})
}

// reconcile compares while an exporter runs, and wants to find nothing but
// orders that were set back.
func (w *machine) reconcile(fix bool) {
	w.proxy.Guard(nil, nil)
	stop := w.s.Start(w.exporter("x4").Run)
	defer stop()
	for _, d := range w.differences(fix) {
		if !w.rolled[d.Order] {
			w.Errorf("differs: %s", d.String())
		}
		if fix && !d.Fixed {
			w.Errorf("not repaired: %s", d.String())
		}
	}

	if fix {
		clear(w.rolled)
	}
}

func (w *machine) differences(fix bool) (found []Difference) {
	scope := Scope{From: w.day.AddDate(0, 0, -1), To: w.day.AddDate(0, 0, 1), Account: w.vendor.Account, Fix: fix, Timeout: timeout}
	w.must(New(w.s.Ledger, w.proxy.Archive).Run(w.ctx(), scope, func(d *Day) {
		found = append(found, d.Differences...)
		for _, text := range d.Totals {
			w.Errorf("%s: %s", d.Day.Format(time.DateOnly), text)
		}
	}))
	return found
}

func (w *machine) settle() {
	w.consumeUpdates()
	w.tellWebhooks()
	w.export()
	w.reconcile(len(w.rolled) > 0)
}

// isTrue compares the tables with what the machine knows.
func (w *machine) isTrue() {
	var orders, events, late []string
	for _, o := range w.orders {
		orders = append(orders, o.orderRow())
		events = append(events, o.eventRows()...)
		for _, at := range o.late {
			late = append(late, line(o.id, o.created.In(delivery.Istanbul).Format(time.DateOnly), shownTime(at)))
		}
	}

	w.same("orders", orders, orderColumns)
	w.same("order_events", events, eventColumns)
	w.same("late_deliveries", late, "order_id, business_day, reported_at")
	if !w.restored {
		have := w.ask("count(), uniqExact(event_id), countIf(state = 'notSent')", "webhook_outcomes")
		if want := fmt.Sprintf("%[1]d %[1]d %[1]d", w.steps); len(have) != 1 || have[0] != want {
			w.Errorf("webhook_outcomes: %q, want %q", have, want)
		}
	}
}

func (w *machine) ask(columns, table string) []string {
	return lines(w.s.Ask(fmt.Sprintf("%s FROM %s.%s WHERE account_id = '%s'", columns, w.s.Database, table, w.vendor.Account)))
}

func (w *machine) same(table string, want []string, columns string) {
	w.Helper()
	slices.Sort(want)
	have := lines(w.s.ClickHouse.Exec(w.s.T, fmt.Sprintf("SELECT %s FROM %s.%s WHERE account_id = '%s' SETTINGS final = 1, output_format_decimal_trailing_zeros = 1",
		columns, w.s.Database, table, w.vendor.Account)))
	for _, row := range have {
		if !slices.Contains(want, row) {
			w.Errorf("%s has the row\n%s", table, row)
		}
	}

	for _, row := range want {
		if !slices.Contains(have, row) {
			w.Errorf("%s has not the row\n%s", table, row)
		}
	}

	if len(have) != len(want) {
		w.Errorf("%s has %d rows, want %d", table, len(have), len(want))
	}
}
