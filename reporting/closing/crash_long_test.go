//go:build long

package closing

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/deliver"
)

// What a child process is told, see TestCrash_Child.
const (
	childMonth = "CLOSING_CHILD_MONTH" // that it closes; empty: it corrects
	childOrder = "CLOSING_CHILD_ORDER" // that it corrects
	childStep  = "CLOSING_CHILD_STEP"  // behind which it kills itself
	childNow   = "CLOSING_CHILD_NOW"
	childRedis = "CLOSING_CHILD_REDIS"
	childStore = "CLOSING_CHILD_CLICKHOUSE"
	childBase  = "CLOSING_CHILD_DATABASE"
	childURL   = "CLOSING_CHILD_TARGET" // to which it delivers instead
	childFiles = "CLOSING_CHILD_FILES"  // a file with manifests from which it recovers instead
)

// TestCrash_Child is the process that is killed. Without its variables it is no test.
func TestCrash_Child(t *testing.T) {
	step := os.Getenv(childStep)
	if step == "" {
		return
	}
	now, err := time.Parse(time.RFC3339, os.Getenv(childNow))
	testenv.Must(t, err)
	l, err := ledger.Open(t.Context(), ledger.Config{URL: os.Getenv(childRedis), Environment: "sandbox", Partitions: testenv.Partitions,
		Secrets: ledger.SecretKeys{Current: "k", Keys: map[string][]byte{"k": make([]byte, 32)}}})
	testenv.Must(t, err)
	a, err := archive.Open(archive.Settings{URL: os.Getenv(childStore), Database: os.Getenv(childBase), BooksKeys: testenv.BooksKeys})
	testenv.Must(t, err)
	b := New(l, a, testenv.BooksKeys, slog.New(slog.DiscardHandler))
	b.now = func() time.Time { return now }
	b.step = func(name string) {
		if name == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	if target := os.Getenv(childURL); target != "" {
		var to *deliver.Target
		to, err = deliver.Open(deliver.TargetSettings{Name: "crash", URL: target})
		testenv.Must(t, err)
		err = NewDeliverer(b, DelivererSettings{Targets: []*deliver.Target{to}, Daily: "07:00", Announce: announceAloud,
			Registry: prometheus.NewRegistry()}).once(t.Context())
	} else if name := os.Getenv(childFiles); name != "" {
		var manifests []byte
		manifests, err = os.ReadFile(name)
		testenv.Must(t, err)
		_, err = b.Recover(t.Context(), Recovery{Manifests: strings.Split(string(manifests), "\n"), TakeNewer: true}, func(string) {})
	} else if m := os.Getenv(childMonth); m != "" {
		err = decide(t.Context(), b, KindClose, month(m), "ece", "")
	} else {
		id, wrong := delivery.ParseOrderID(os.Getenv(childOrder))
		testenv.Must(t, wrong)
		_, _, err = correct(t.Context(), b, "ece", "", id)
	}
	t.Fatalf("it went on behind %s: %v", step, err)
}

func announceAloud(_ context.Context, r *delivery.AvailableReport) error {
	fmt.Println("announced", formatReport(r))
	return nil
}

type crash struct {
	*env
	redis *stack.Redis
}

// killed runs the child with these variables until it kills itself behind a step, and returns what it printed.
func (e *env) killed(step string, variables ...string) string {
	e.T.Helper()
	self, err := os.Executable()
	testenv.Must(e.T, err)
	cmd := exec.Command(self, "-test.run", "^TestCrash_Child$")
	cmd.Env = append(append(os.Environ(), childStep+"="+step, childNow+"="+e.clock.Format(time.RFC3339), childRedis+"="+e.ConfigFor(stack.OperatorUser).URL,
		childStore+"="+e.ClickHouse.URL, childBase+"="+e.Database), variables...)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(err.Error(), "killed") {
		e.T.Fatalf("the child ended with %v\n%s", err, out)
	}
	return string(out)
}

// Whatever is killed after whatever step: a month is closed with all its rows or not at all, and can be closed then; a correction
// is booked once.
func TestCrash_AfterEachStepNothingIsLostOrTwice(t *testing.T) {
	c := &crash{env: &env{}, redis: testserver.DedicatedRedis(t, stack.RedisOptions{})}
	c.ArchiveEnv = testenv.NewArchiveOn(testenv.NewOn(t, c.redis), testserver.DedicatedClickHouse(t))
	c.books = c.newBooks()
	m := month("2023-01")
	o := c.order(m.Add(12*time.Hour), delivery.Delivered, 100)
	c.store(o)
	c.close(m)
	closings, corrections := 1, 0
	for _, what := range []string{"process", "ClickHouse", "Redis"} {
		// after runs what is to be done in a process that dies, or while a server dies, and starts that again.
		after := func(step string, child func(), do func(b *Books) error) {
			t.Helper()
			if what == "process" {
				child()
				return
			}
			b := c.newBooks()
			died := false
			b.step = func(name string) {
				switch {
				case name != step || died:
				case what == "Redis":
					c.redis.Kill()
				default:
					c.ClickHouse.Kill(t)
				}
				died = died || name == step
			}
			err := do(b)
			if !died {
				t.Fatalf("%s: there was no step %s: %v", what, step, err)
			}
			if what == "Redis" {
				testenv.Must(t, c.redis.Start(t.Context()))
			} else {
				c.ClickHouse.Start(t)
			}
			c.books = c.newBooks() // as a new process
		}
		for _, step := range []string{"calculated", "rows stored", "added up", "decided", "stored"} {
			m = m.Next()
			c.store(c.order(m.Add(12*time.Hour), delivery.Delivered, 100), c.order(m.Next().Add(-time.Millisecond), delivery.Failed, 100))
			c.hold(m)
			before := c.csv("fleet-statement", m, "booked", "")
			closing := func(b *Books) error {
				err := decide(t.Context(), b, KindClose, m, "ece", "")
				return err
			}
			after(step, func() { c.killed(step, childMonth+"="+m.String()) }, closing)
			decided := c.log().Closed(m)
			// Without Redis nothing is decided, whatever step it died behind.
			if want := step == "decided" || step == "stored"; decided != want && what != "ClickHouse" || want && !decided {
				t.Errorf("%s died behind %s, closed: %v", what, step, decided)
			}
			if !decided {
				testenv.Must(t, closing(c.books))
			}
			closings++
			c.requireLog(closings, corrections)
			if now := c.csv("fleet-statement", m, "booked", ""); now != before {
				t.Errorf("%s died behind %s: the statement was\n%s\nand is\n%s", what, step, before, now)
			}
		}
		for _, step := range []string{"rows stored", "added up", "decided", "stored"} {
			o.Collection.Minor++
			c.store(o)
			correcting := func(b *Books) error {
				_, left, err := correct(t.Context(), b, "ece", "", o.ID)
				if err == nil && len(left) > 0 {
					t.Errorf("%v are left", left)
				}
				return err
			}
			after(step, func() { c.killed(step, childOrder+"="+o.ID.String()) }, correcting)
			testenv.Must(t, correcting(c.books))
			corrections++
			c.requireLog(closings, corrections)
		}
		if v := c.verify(); len(v.Findings)+len(v.Pending) > 0 {
			t.Errorf("%s: %+v", what, v)
		}
		t.Logf("%s was killed behind each step: %d closings, %d corrections", what, closings, corrections)
	}
}

// Whoever delivers is killed behind each step, again and again: the next one goes on. In the end each set is there once, and
// whatever was announced, perhaps twice, is what is there.
func TestCrash_BehindEachStepDeliveryGoesOn(t *testing.T) {
	e, b := newEnv(t), newBucket(t, "crash")
	october := month("2025-10")
	o := e.order(october.Add(12*time.Hour), delivery.Delivered, 100)
	e.store(o)
	e.close(october)
	o.Collection.Minor++
	e.store(o)
	e.correct(1, 0, o.ID)
	e.clock = e.clock.Add(7 * time.Hour)

	reportFiles := []string{"order-ledger.csv", "expected-collections.csv", "fleet-statement.csv", "exceptions.csv", ManifestFile}
	closingFiles := slices.Insert(slices.Clone(reportFiles), 4, betweenFile)
	steps := []string{"due"}
	for i, files := range [][]string{closingFiles, {correctionsFile, ManifestFile}, reportFiles} {
		isDay := i == 2
		if isDay {
			steps = append(steps, "planned")
		}
		for _, file := range files {
			steps = append(steps, "delivered "+file)
		}
		steps = append(steps, "set delivered", "recorded")
	}
	steps = append(steps, "announced", "noted")

	var announced []string
	delivered := 0
	for _, step := range steps {
		out := e.killed(step, childURL+"="+b.url)
		for _, line := range regexp.MustCompile("(?m)^announced (.*)$").FindAllStringSubmatch(out, -1) {
			announced = append(announced, line[1])
		}
		n := len(b.files(t))
		if n < delivered {
			t.Errorf("killed behind %s, %d files are there, before %d", step, n, delivered)
		}
		delivered = n
	}

	r := &receiver{}
	for _, event := range announced {
		report, err := parseReport(event)
		testenv.Must(t, err)
		testenv.Must(t, r.announce(t.Context(), report))
	}
	d := e.newDeliverer(r, b)
	d.mustDeliver(t)
	d.mustDeliver(t)
	wantSets(t, b, "2025-10-closing-000002", "2025-11-02-daily", "2025-11-correction-000003")
	files := b.files(t)
	correctionFiles := 2
	if len(files) != len(closingFiles)+correctionFiles+len(reportFiles) || len(r.events) != 3 {
		t.Errorf("%d files, announced are %s", len(files), r.ids())
	}
	for _, event := range r.asked {
		report, err := parseReport(event)
		testenv.Must(t, err)
		for _, f := range report.Files {
			if f.SHA256 != sumOf(files[f.Name]) {
				t.Errorf("%s is not what was announced", f.Name)
			}
		}
	}
	wrong, err := e.books.CheckDelivered(t.Context(), []*deliver.Target{b.target})
	testenv.Must(t, err)
	if len(wrong) > 0 {
		t.Error(wrong)
	}
}

// Whoever recovers is killed behind each step: the same command, once more, completes it.
func TestCrash_BehindEachStepRecoveryGoesOn(t *testing.T) {
	e, _ := twoMonths(t)
	log := e.log().Entries
	rows := e.closedRows()
	name := filepath.Join(t.TempDir(), "manifests")
	testenv.Must(t, os.WriteFile(name, []byte(strings.Join(manifestsOf(log), "\n")), 0o600))

	for what, older := range map[string]func(){
		"ClickHouse was restored": func() {},
		"both were restored":      func() { e.Do("SET", headKey, log[0].signed.Head()) },
	} {
		older()
		e.lose("journal", "sequence > 1")
		e.loseRows(&log[1])
		e.loseRows(&log[3])
		for _, step := range []string{"rows tried", "rows removed", "rows made again", "recovered"} {
			e.killed(step, childFiles+"="+name)
			e.Do("DEL", "books:{sg}claim:recover") // which ends by itself 30 seconds later
		}
		e.wantRecovered(what, Recovery{Manifests: manifestsOf(log), TakeNewer: true}, "34")
		if got := e.closedRows(); got != rows {
			t.Errorf("%s: rows are\n%s\nwere\n%s", what, got, rows)
		}
	}
}
