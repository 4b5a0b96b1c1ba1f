//go:build long

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"vendorapi/internal/testenv/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// One system, for a moment: what is sent is accepted, what is created is
// delivered, every webhook is verified, and what it cost is known.
func TestOrders_ShortRunCarriesThemTheWholeWay(t *testing.T) {
	t.Parallel()

	r := shortRun(t, "-only", "answers|delivery")
	for _, key := range []string{
		"wait_p50_xadd", "delivered_minute", "webhook_p99", "wait_p99_delivering", "created",
		// What loadtest/SIZING.md reckons with.
		"delivered_redis", "delivered_gateway", "delivered_worker", "delivered_file", "delivered_redis_in", "delivered_redis_out",
		"delivered_webhooks", "created_request", "created_answer",
	} {
		f := r.figure(key)
		if f == nil || f.Figure.Median <= 0 {
			t.Errorf("%s: %+v", key, f)
		}
	}
}

// Steps are due in order, at the rate and spacing, and only those of orders that go the whole way.
func TestTimetable(t *testing.T) {
	t.Parallel()

	table := timetable{start: time.Now().Add(-time.Hour), rate: 100, orders: 50, every: 4}
	last, due := time.Time{}, map[int]int{}
	table.run(t.Context(), func(order, step int) {
		at := table.at(order, step)
		late := at.Sub(table.start) - time.Duration(step)*spacing - time.Duration(order)*10*time.Millisecond
		if at.Before(last) || late < 0 || late > 10*time.Millisecond || step > 0 && order%4 != 0 {
			t.Errorf("step %d of order %d is due %v late, at %v after %v", step, order, late, at, last)
		}
		last = at
		due[step]++
	})

	if want := map[int]int{0: 50, 1: 13, 2: 13, 3: 13, 4: 13, 5: 13}; !maps.Equal(due, want) || table.whole() != 13 {
		t.Errorf("steps due: %v, want %v", due, want)
	}
}

// Every webhook is the order's next one, or the run fails.
func TestJourneys_TakeEachWebhookOnceAndInOrder(t *testing.T) {
	t.Parallel()

	j := &journeys{timetable: timetable{start: time.Now().Add(-time.Minute), rate: 1, orders: 2, every: 1}, announced: hdrhistogram.New(1, 1e9, 3),
		states: []journey{{id: "a"}, {id: "b"}}}
	webhook := func(id string, n int, status string) error {
		return j.seen(fmt.Appendf(nil, `{"data":{"orderId":"%s","externalOrderId":"POS-%016d","status":"%s"}}`, id, 7*ordersPerBatch+n, status), time.Now())
	}
	for i, c := range []struct {
		id     string
		n      int
		status string
		taken  bool
	}{
		{"a", 0, "PickingUp", false}, {"a", 0, "Assigned", true}, {"a", 0, "Assigned", false}, {"a", 0, "PickedUp", false},
		{"a", 0, "PickingUp", true}, {"b", 0, "PickedUp", false}, {"c", 2, "Assigned", false}, {"", 0, "", false},
		{"a", 0, "PickedUp", true}, {"a", 0, "Delivering", true}, {"a", 0, "Delivered", true}, {"a", 0, "Delivered", false}, {"b", 1, "Assigned", true},
	} {
		if err := webhook(c.id, c.n, c.status); (err == nil) != c.taken {
			t.Errorf("%d: %+v: %v", i, c, err)
		}
	}

	if j.inProgress() != 1 || j.announced.TotalCount() != 6 {
		t.Errorf("%d orders left, %d waits", j.inProgress(), j.announced.TotalCount())
	}
}

// shortRun takes the short form of a suite, with these arguments, and returns what it left.
func shortRun(t *testing.T, args ...string) *report {
	t.Helper()
	path := filepath.Join(t.TempDir(), "figures.json")
	var out bytes.Buffer
	err := run(t.Context(), append(args, "-short", "-json", path), &out)
	t.Logf("%s", out.String())
	if err != nil {
		t.Fatal(err)
	}

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	var r report
	err = json.Unmarshal(content, &r)
	if err != nil {
		t.Fatal(err)
	}

	return &r
}

// figure returns the one of a key; nil if it was not measured.
func (r *report) figure(key string) *figure {
	i := slices.IndexFunc(r.Figures, func(f *figure) bool { return f.Key == key })
	if i < 0 {
		return nil
	}
	return r.Figures[i]
}

// A worker, Redis, endpoints of every behaviour, a backlog that drains, kills.
// Everything that holds on any machine is checked.
func TestWebhooks_ShortRunLosesNothing(t *testing.T) {
	t.Parallel()

	r := shortRun(t, "-suite", "webhooks", "-seed", "7")
	keys := []string{"backlog.left", "backlog.late", "backlog.unrecorded", "throughput.duplicates", "latency.duplicates", "isolation.duplicates", "backlog.duplicates"}
	for _, measurement := range []string{"throughput", "latency", "isolation", "backlog", "kill"} {
		keys = append(keys, measurement+".lost", measurement+".invalid")
	}

	for _, key := range keys {
		f := r.figure(key)
		if f == nil || f.Result != resultOK {
			t.Errorf("%s: %+v", key, f)
		}
	}

	if f := r.figure("throughput"); f.Figure.Median <= 0 || f.Base.Median <= 0 || f.Result != "" {
		t.Errorf("a short run compares no rates: %+v", f)
	}
}

// Two workers among dead receivers, killed and restarted. Everything that holds on any machine is checked.
func TestReceivers_ShortRunLosesNothing(t *testing.T) {
	t.Parallel()

	r := shortRun(t, "-suite", "receivers")
	for _, measurement := range []string{"many", "more", "silence"} {
		for _, key := range []string{".lost", ".invalid", ".memory"} {
			f := r.figure(measurement + key)
			if f == nil || f.Result != resultOK {
				t.Errorf("%s: %+v", measurement+key, f)
			}
		}

		f := r.figure(measurement + ".p99")
		if f == nil || f.Figure.Median <= 0 || f.Base.Median <= 0 || f.Result != "" {
			t.Errorf("a short run compares no times: %s %+v", measurement, f)
		}
	}
}

// Orders through Redis into ClickHouse, every report over HTTP, downloads.
func TestReporting_ShortRunIsExact(t *testing.T) {
	t.Parallel()

	r := shortRun(t, "-suite", "reporting", "-orders", "1000", "-history", "10000")
	for _, key := range []string{
		"export.wrong", "export.left", "download.differs",
		"download.http.memory", "download.file.memory", "download.xlsx.memory", "closing.memory",
	} {
		f := r.figure(key)
		if f == nil || f.Result != resultOK {
			t.Errorf("%s: %+v", key, f)
		}
	}

	for _, key := range []string{
		"export.rows", "reports.account_month.order-ledger", "reports.year.fleet-statement", "reports.year.control-totals", "closing.close", "closing.nightly",
		"closing.year.sums",
	} {
		f := r.figure(key)
		if f == nil || f.Figure.Median <= 0 || f.Base.Median <= 0 || f.Result != "" {
			t.Errorf("a short run compares no times and rates: %s %+v", key, f)
		}
	}

	if f := r.figure("reports.year.order-ledger"); !strings.Contains(f.Note, "10 000 rows") || !r.Short || r.Orders != 1000 {
		t.Errorf("%+v, of %d orders", f, r.Orders)
	}
}

// A ledger that is filled with little, and everything measured once.
func TestGrowth_ShortRunMeasuresEverything(t *testing.T) {
	t.Parallel()

	r := shortRun(t, "-suite", "growth")
	for _, m := range growthSuite().measurements {
		for _, want := range m.figures {
			f := r.figure(want.Key)
			if f == nil || f.Figure.Median <= 0 {
				t.Errorf("%s: %+v", want.Key, f)
			}
		}
	}
}

// What is interrupted says so, and leaves nothing behind.
func TestRun_EndsWhenInterrupted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, args := range [][]string{{"-suite", "webhooks", "-only", "latency"}, {"-suite", "reporting", "-only", "reports"}} {
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, append(args, "-json", filepath.Join(dir, "figures.json")), io.Discard) }()
		left := func(below ...string) []string {
			found, _ := filepath.Glob(filepath.Join(append([]string{dir, "bench-*"}, below...)...)) // the pattern is well formed
			return found
		}

		testserver.Await(t, "its Redis runs", func() bool { return len(left("*", "redis", "appendonlydir")) > 0 })
		interrupt()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v: ended with %v", args, err)
		}
		if folders := left(); len(folders) > 0 {
			t.Errorf("%v: left %v", args, folders)
		}
	}
}

func TestRun_RefusesFlags(t *testing.T) {
	t.Parallel()

	for _, args := range [][]string{
		{"-suite", "scale"}, {"webhooks"}, {"-only", "nothing"}, {"-only", "("}, {"-rounds", "51"}, {"-orders", "1000"},
		{"-suite", "webhooks", "-only", "export"}, {"-suite", "reporting", "-only", "kill"}, {"-suite", "reporting", "-orders", "1"},
	} {
		err := run(t.Context(), args, io.Discard)
		if err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

// The help explains every suite: how long it takes, and what may be measured alone.
func TestRun_HelpExplainsEverySuite(t *testing.T) {
	t.Parallel()

	var out bytes.Buffer
	err := run(t.Context(), []string{"-help"}, &out)
	if !errors.Is(err, flag.ErrHelp) {
		t.Errorf("%v", err)
	}

	for _, s := range suites() {
		if !strings.Contains(out.String(), "Suite "+s.name+" ("+s.takes+")") {
			t.Errorf("the help does not say how long %s takes", s.name)
		}
	}
}

// Keys are what the JSON is read by, and every limit of a ratio has something to compare with.
func TestSuites_HaveFiguresThatCanBeCompared(t *testing.T) {
	t.Parallel()

	for _, s := range suites() {
		keys := make(map[string]bool)
		for _, m := range s.measurements {
			for _, f := range m.figures {
				if f.Key == "" || f.What == "" || keys[f.Key] {
					t.Errorf("%s, %s: %+v", s.name, m.name, f)
				}
				if f.Limit != nil && f.Limit.OfRatio && f.Baseline == "" {
					t.Errorf("%s, %s: the limit of %s has no baseline", s.name, m.name, f.Key)
				}
				keys[f.Key] = true
			}
		}
	}
}
