package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

// faults says how much happens: a little in every run of the tests, more with
// FAULTS=long.
type faults struct {
	orders, exporterKills, engineKills int
	pause                              time.Duration // about, between two kills of the exporter
}

func faultsWanted() faults {
	if os.Getenv("FAULTS") == "long" {
		return faults{orders: 50_000, exporterKills: 30, engineKills: 10, pause: 3 * time.Second}
	}
	return faults{orders: 2_500, exporterKills: 8, engineKills: 3, pause: 800 * time.Millisecond}
}

// Whatever crashes, repeats or arrives late: the reports are what the orders say,
// to the kuruş, and reconcile proves it, and finds and repairs a single
// corrupted row.
//
//rule:finance/database-delivery-tables-orders-and
func TestExactness_SurvivesKillsAndReplays(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f := faultsWanted()
	s := newSurvival(t, f)
	began := time.Now()
	s.underFire(f, func() { s.play.make(t, f.orders, seed) })
	s.play.reportLate(t)
	s.refuseLate()
	s.awaitExported()
	t.Logf("%d orders made and exported in %s, with %d kills of the exporter and %d of ClickHouse",
		f.orders, time.Since(began).Round(time.Second), f.exporterKills, f.engineKills)
	s.replayEverything()
	s.awaitExported()

	s.compareReports()
	s.reconcile(true)
	// An order that is exported once more would mend what is spoiled now.
	s.killExporter()
	s.corrupt()
	s.compareReports()
}

// survival is a play, its exporter and its ClickHouse.
type survival struct {
	t      *testing.T
	play   *play
	engine *testserver.ClickHouse
	config string
	env    []string

	mu       sync.Mutex
	exporter *exec.Cmd
	log      bytes.Buffer
}

func newSurvival(t *testing.T, f faults) *survival {
	s := &survival{t: t, play: newPlay(t), engine: testserver.DedicatedClickHouse(t)}
	root, err := stack.ModuleDir()
	if err != nil {
		t.Fatal(err)
	}
	settings, err := os.ReadFile(filepath.Join(root, "configs", "reporting.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// Small batches, so that many are cut off, for the number of orders.
	text := strings.Replace(string(settings), "interval: 1s", "interval: 100ms", 1)
	text = strings.Replace(text, "batch: 1000", fmt.Sprint("batch: ", max(40, f.orders/200)), 1)
	s.config = filepath.Join(t.TempDir(), "reporting.yaml")
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.env = []string{
		"ENVIRONMENT=sandbox", "REDIS_URL=" + s.play.bed.RedisURL, fmt.Sprint("PARTITIONS=", testenv.Partitions),
		"CLICKHOUSE_URL=" + s.engine.URL, "CLICKHOUSE_DATABASE=exactness",
		"REPORTING_INSTANCE=x1", "REPORTING_OPS_ADDR=127.0.0.1:0", "LOG_LEVEL=warn",
	}
	s.startExporter()
	t.Cleanup(func() {
		s.killExporter()
		if t.Failed() {
			t.Logf("the exporter's log ends:\n%s", s.log.Bytes()[max(0, s.log.Len()-4000):])
		}
	})
	return s
}

func (s *survival) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append(args, "--config", s.config)...)
	cmd.Env = append(append(os.Environ(), programVariable+"=1"), s.env...)
	return cmd
}

func (s *survival) startExporter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exporter = s.command("export")
	s.exporter.Stderr = &s.log
	if err := s.exporter.Start(); err != nil {
		s.t.Error(err)
	}
}

func (s *survival) killExporter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.exporter.Process.Kill() // one that is dead is dead enough
	_ = s.exporter.Wait()
}

// underFire works while exporter and engine are killed again and again.
func (s *survival) underFire(f faults, work func()) {
	var all sync.WaitGroup
	all.Go(work)
	all.Go(func() {
		for range f.exporterKills {
			time.Sleep(f.pause/4 + rand.N(f.pause*3/2))
			s.killExporter()
			s.startExporter()
		}
	})
	all.Go(func() {
		for range f.engineKills {
			time.Sleep(f.pause/2 + rand.N(f.pause*4))
			s.engine.Kill(s.t)
			time.Sleep(rand.N(500 * time.Millisecond))
			s.engine.Start(s.t)
		}
	})
	all.Wait()
}

// refuseLate does with the late reports what the status role does.
func (s *survival) refuseLate() {
	s.t.Helper()
	l := s.play.bed.Ledger
	stop := s.play.bed.Start(func(ctx context.Context) error {
		err := l.RunFeed(ctx, ledger.Feed{Role: ledger.RoleStatus, Consumer: "scene", Handle: func(ctx context.Context, _ int, batch []ledger.Entry) error {
			for _, e := range batch {
				if e.Update == nil {
					continue
				}
				if err := l.RefuseUpdate(ctx, e, 0, "late_delivery", true); err != nil {
					return err
				}
			}
			return l.Ack(ctx, ledger.RoleStatus, batch...)
		}})
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	s.play.bed.AwaitSettled(ledger.RoleStatus)
	stop()
}

func (s *survival) awaitExported() {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		lag, err := s.play.bed.Ledger.Lag(s.t.Context(), ledger.RoleExport)
		if err != nil {
			s.t.Fatal(err)
		}
		if lag.Entries == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%d entries are not exported", lag.Entries)
		}
	}
}

// replayEverything sets the consumer group back to its beginning.
func (s *survival) replayEverything() {
	s.t.Helper()
	s.play.bed.EachKey("e", "redis.call('XGROUP', 'SETID', k, 'export', '0')")
}

// report reads one as JSON; cells picks the columns of a row, in order.
func (s *survival) report(name string, columns ...string) (rows []string) {
	s.t.Helper()
	cmd := exec.Command(os.Args[0], "report", name, "--format", "json", "--database", "exactness",
		"--from", firstDay.Format(time.DateOnly), "--to", firstDay.AddDate(0, 0, playedDays+1).Format(time.DateOnly))
	cmd.Env = append(append(os.Environ(), programVariable+"=1"), s.env...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		s.t.Fatal(name, err)
	}
	var answer struct {
		Data struct {
			Rows []map[string]any `json:"rows"`
		} `json:"data"`
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	decoder.UseNumber()
	if err := decoder.Decode(&answer); err != nil {
		s.t.Fatal(name, err)
	}
	for _, r := range answer.Data.Rows {
		cells := make([]any, len(columns))
		for i, c := range columns {
			if cells[i] = r[c]; r[c] == nil {
				cells[i] = "null"
			}
		}
		rows = append(rows, row(cells...))
	}
	return rows
}

func (s *survival) compareReports() {
	s.t.Helper()
	s.same("order-ledger", s.play.ledgerRows(), s.report("order-ledger", "orderId", "externalOrderId", "externalStoreId", "storeName",
		"taxNumber", "fleetId", "fleetName", "status", "failureReason", "createdAt", "orderedAt", "pickedUpAt", "deliveredAt", "endedAt",
		"paymentType", "orderAmount", "collectionAmount", "expectedCollection", "currency"))
	s.same("expected-collections", s.play.collectionRows(), s.report("expected-collections", "day", "accountId", "fleetId", "fleetName",
		"externalStoreId", "storeName", "deliveredCount", "cashCount", "cashExpected", "cardCount", "cardExpected", "prepaidCount", "prepaidAmount"))
	s.same("fleet-statement", s.play.statementRows(), s.report("fleet-statement", "month", "accountId", "fleetId", "fleetName",
		"externalStoreId", "storeName", "created", "delivered", "failed", "cancelled", "orderAmountDelivered", "cashExpected", "cardExpected"))
	exceptions := s.report("exceptions", "kind", "orderId")
	slices.Sort(exceptions)
	s.same("exceptions", s.play.exceptionRows(), exceptions)
	for _, line := range s.report("control-totals", "line", "ties") {
		if strings.HasSuffix(line, "|no") {
			s.t.Errorf("control totals: %s", line)
		}
	}
}

// same tells the first rows that differ.
func (s *survival) same(name string, want, have []string) {
	s.t.Helper()
	if len(want) != len(have) {
		s.t.Errorf("%s has %d rows, should have %d", name, len(have), len(want))
	}
	shown := 0
	for i := range min(len(want), len(have)) {
		if want[i] != have[i] && shown < 3 {
			shown++
			s.t.Errorf("%s, row %d:\nwant %s\nhave %s", name, i, want[i], have[i])
		}
	}
}

// reconcile runs the command and wants it to find all tied, or not.
func (s *survival) reconcile(tied bool, args ...string) string {
	s.t.Helper()
	args = append([]string{"reconcile", "--from", firstDay.Format(time.DateOnly),
		"--to", firstDay.AddDate(0, 0, playedDays+1).Format(time.DateOnly)}, args...)
	cmd := s.command(args...)
	out, err := cmd.CombinedOutput()
	if (err == nil) != tied {
		s.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// corrupt changes one amount by a kuruş, which reconcile must find and mend. A
// plain 0.01 would be a Float64, whose sum is cut: some amounts would stay the same.
func (s *survival) corrupt() {
	s.t.Helper()
	i := slices.IndexFunc(s.play.orders, func(o *played) bool { return o.expected() > 0 })
	o := s.play.orders[i]
	s.engine.Exec(s.t, fmt.Sprintf("ALTER TABLE exactness.orders UPDATE collection_amount = collection_amount + toDecimal64('0.01', 2) WHERE order_id = '%s' SETTINGS mutations_sync = 2", o.id))
	out := s.reconcile(false)
	if strings.Count(out, " order ") != 1 || !strings.Contains(out, o.id.String()) || !strings.Contains(out, "collection_amount") {
		s.t.Errorf("reconcile found\n%s", out)
	}
	if out := s.reconcile(true, "--fix"); !strings.Contains(out, "(fixed)") {
		s.t.Errorf("reconcile --fix said\n%s", out)
	}
	s.reconcile(true)
}
