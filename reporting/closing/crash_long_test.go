//go:build long

package closing

import (
	"bytes"
	"context"
	"errors"
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
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/deliver"
)

// What a child process is told, see TestCrash_Child.
const (
	childMonth = "CLOSING_CHILD_MONTH" // that it closes; empty: it corrects
	childOrder = "CLOSING_CHILD_ORDER" // that it corrects
	childStep  = "CLOSING_CHILD_STEP"  // behind which it kills itself
	childPause = "CLOSING_CHILD_PAUSE" // not empty: it stops itself instead, and closes as a task
	childNow   = "CLOSING_CHILD_NOW"
	childRedis = "CLOSING_CHILD_REDIS"
	childStore = "CLOSING_CHILD_CLICKHOUSE"
	childBase  = "CLOSING_CHILD_DATABASE"
	childURL   = "CLOSING_CHILD_TARGET" // to which it delivers instead
	childFiles = "CLOSING_CHILD_FILES"  // a file with manifests from which it recovers instead
)

// TestCrash_Child is the process that is killed or stopped. Without its variables it is no test.
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
	a, err := archive.Open(archive.Settings{URL: os.Getenv(childStore), Database: os.Getenv(childBase), BooksKeys: archiveenv.BooksKeys})
	testenv.Must(t, err)
	b := New(l, a, archiveenv.BooksKeys, slog.New(slog.DiscardHandler))
	b.now = func() time.Time { return now }

	isPaused := os.Getenv(childPause) != ""
	b.step = func(name string) {
		switch {
		case name != step:
		case isPaused:
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		default:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}

	if isPaused {
		tasks := NewTasks(b)
		go tasks.Run(t.Context())
		_, err = tasks.Start(t.Context(), Person{Name: "ece"}, Decision{Kind: KindClose, Month: month(os.Getenv(childMonth)), By: "ece"})
		fmt.Println("ended with", err)
		return
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

// crash is an env whose databases can be killed.
type crash struct {
	*env
	redis *stack.Redis
}

func newCrash(t *testing.T) *crash {
	t.Helper()
	c := &crash{env: &env{reports: everyReport}, redis: testserver.DedicatedRedis(t, stack.RedisOptions{})}
	c.System = archiveenv.NewOn(testenv.NewOn(t, c.redis), testserver.DedicatedClickHouse(t))
	c.books = c.newBooks()
	return c
}

// whileDies does something while ClickHouse or Redis is killed behind a step, when that is reached for the nth
// time, and starts it again. What do returns is logged: it may have noticed or not.
func (c *crash) whileDies(what, step string, nth int, do func(b *Books) error) {
	c.T.Helper()
	b := c.newBooks()
	reached := 0
	b.step = func(name string) {
		if name == step {
			reached++
		}

		if name != step || reached != nth {
			return
		}

		if what == "Redis" {
			c.redis.Kill()
		} else {
			c.ClickHouse.Kill(c.T)
		}
	}

	err := do(b)

	if reached < nth {
		c.T.Fatalf("%s: there was no step %s (%d): %v", what, step, nth, err)
	}

	c.T.Logf("%s was killed behind %s (%d): %v", what, step, nth, err)
	if what == "Redis" {
		testenv.Must(c.T, c.redis.Start(c.T.Context()))
		c.Await("the ledger sees that Redis is back", func() bool {
			_, err := c.Ledger.Books.Head(c.T.Context())
			return err == nil
		})
	} else {
		c.ClickHouse.Start(c.T)
	}

	c.books = c.newBooks() // as a new process
}

// child returns the child with these variables.
func (e *env) child(step string, variables ...string) *exec.Cmd {
	e.T.Helper()
	self, err := os.Executable()
	testenv.Must(e.T, err)
	cmd := exec.Command(self, "-test.run", "^TestCrash_Child$")
	cmd.Env = append(append(os.Environ(), childStep+"="+step, childNow+"="+e.clock.Format(time.RFC3339), childRedis+"="+e.ConfigFor(stack.OperatorUser).URL,
		childStore+"="+e.ClickHouse.URL, childBase+"="+e.Database), variables...)

	return cmd
}

// killed runs the child with these variables until it kills itself behind a step, and returns what it printed.
func (e *env) killed(step string, variables ...string) string {
	e.T.Helper()
	out, err := e.child(step, variables...).CombinedOutput()
	if err == nil || !strings.Contains(err.Error(), "killed") {
		e.T.Fatalf("the child ended with %v\n%s", err, out)
	}
	return string(out)
}

// Whatever is killed after whatever step: a month is closed with all its rows or not at all, and can be closed then; a correction
// is booked once.
func TestCrash_AfterEachStepNothingIsLostOrTwice(t *testing.T) {
	c := newCrash(t)
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
			c.whileDies(what, step, 1, do)
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
	e, b := newEnvWithReports(t), newBucket(t, "crash")
	october := month("2025-10")
	o := e.order(october.Add(12*time.Hour), delivery.Delivered, 100)
	e.store(o)
	e.close(october)
	o.Collection.Minor++
	e.store(o)
	e.correct(1, 0, o.ID)
	e.clock = e.clock.Add(7 * time.Hour)

	reportFiles := []string{"order-ledger.csv", "expected-collections.csv", "fleet-statement.csv", "exceptions.csv", manifestFile}
	closingFiles := slices.Insert(slices.Clone(reportFiles), 4, betweenFile)
	steps := []string{"due"}
	for i, files := range [][]string{closingFiles, {correctionsFile, manifestFile}, reportFiles} {
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

// ClickHouse or Redis is killed behind each step of delivering a correction and a day, and of announcing them: the
// next look goes on. Each set is there once, no file ever changes, and whatever was announced, perhaps twice, is
// what is there.
func TestCrash_BehindEachStepADatabaseDiesAndDeliveryGoesOn(t *testing.T) {
	c, b, r := newCrash(t), newBucket(t, "crash"), &receiver{}
	october := month("2025-10")
	o := c.order(october.Add(12*time.Hour), delivery.Delivered, 100)
	c.store(o)
	c.close(october)
	c.clock = c.clock.Add(8 * time.Hour)
	deliverBy := func(books *Books) *Deliverer {
		return NewDeliverer(books, DelivererSettings{Targets: []*deliver.Target{b.target}, Daily: "07:00", Announce: r.announce,
			Registry: prometheus.NewRegistry()})
	}

	deliverBy(c.books).mustDeliver(t)

	want := []string{"2025-10-closing-000002", "2025-11-02-daily"}
	files := map[string]string{}
	for _, what := range []string{"Redis", "ClickHouse"} {
		for _, at := range []struct {
			step string
			nth  int // the correction's is the first, the day's the second
		}{
			{"due", 1},
			{"delivered " + correctionsFile, 1}, {"delivered " + manifestFile, 1}, {"set delivered", 1}, {"recorded", 1},
			{"planned", 1}, {"delivered order-ledger.csv", 1}, {"set delivered", 2},
			{"announced", 1}, {"noted", 1},
		} {
			name := fmt.Sprintf("%s behind %s (%d)", what, at.step, at.nth)
			c.clock = c.clock.AddDate(0, 0, 1)
			o.Collection.Minor++
			c.store(o)
			c.correct(1, 0, o.ID)
			log := c.log().Entries
			want = append(want, log[len(log)-1].folder(), dayName(c.books.today().AddDate(0, 0, -1)))

			c.whileDies(what, at.step, at.nth, func(books *Books) error { return deliverBy(books).once(t.Context()) })
			d := deliverBy(c.books)
			d.mustDeliver(t)
			d.wantPending(t, 0, time.Time{})
			if n := testenv.Value(t, d.announcer.pending); n != 0 {
				t.Errorf("%s: %v are to be announced", name, n)
			}

			slices.Sort(want)
			wantSets(t, b, want...)
			now := b.files(t)
			for file, content := range files {
				if now[file] != content {
					t.Errorf("%s: %s has changed", name, file)
				}
			}

			files = now
			c.wantAnnouncedAsDelivered(name, r, files, len(want))
			if t.Failed() {
				return
			}
		}
	}

	wrong, err := c.books.CheckDelivered(t.Context(), []*deliver.Target{b.target})
	testenv.Must(t, err)
	if len(wrong) > 0 {
		t.Error(wrong)
	}
}

// wantAnnouncedAsDelivered wants so many reports announced. What was announced repeatedly is the same text, and
// lists files that are there with these digests.
func (c *crash) wantAnnouncedAsDelivered(what string, r *receiver, files map[string]string, reports int) {
	c.T.Helper()
	texts := map[string]string{} // by the report's ID
	for _, event := range r.asked {
		report, err := parseReport(event)
		testenv.Must(c.T, err)
		text, isRepeated := texts[report.ID]
		if isRepeated && text != event {
			c.T.Errorf("%s: %s was announced as\n%s\nand as\n%s", what, report.ID, text, event)
		}

		texts[report.ID] = event
		for _, f := range report.Files {
			if f.SHA256 != sumOf(files[f.Name]) {
				c.T.Errorf("%s: %s is not what was announced", what, f.Name)
			}
		}
	}

	if len(texts) != reports {
		c.T.Errorf("%s: %d reports were announced, want %d: %s", what, len(texts), reports, r.ids())
	}
}

// ClickHouse or Redis is killed behind each step of recovering: the same command, once more, completes it.
func TestCrash_BehindEachStepADatabaseDiesAndRecoveryGoesOn(t *testing.T) {
	c := newCrash(t)
	october := month("2025-10")
	for _, m := range []Month{october, october.Next()} {
		c.store(c.order(m.Add(12*time.Hour), delivery.Delivered, 100))
		c.close(m)
	}

	log := c.log().Entries
	rows := c.closedRows()
	from := Recovery{Manifests: manifestsOf(log), TakeNewer: true}

	for _, what := range []string{"Redis", "ClickHouse"} {
		for _, isRedisOlder := range []bool{false, true} {
			for _, step := range []string{"rows tried", "rows removed", "rows made again", "recovered"} {
				if isRedisOlder {
					c.Do("SET", headKey, log[0].signed.Head())
				}

				c.lose("journal", "sequence > 1")
				c.loseRows(&log[1])
				c.loseRows(&log[3])

				c.whileDies(what, step, 1, func(b *Books) error {
					_, err := b.Recover(t.Context(), from, func(string) {})
					return err
				})

				c.Do("DEL", "books:{sg}claim:recover") // which ends by itself 30 seconds later
				_, err := c.recover(from)
				testenv.Must(t, err)

				if got := c.closedRows(); got != rows {
					t.Fatalf("%s died behind %s: rows are\n%s\nwere\n%s", what, step, got, rows)
				}
				if v := c.verify(); len(v.Findings)+len(v.Pending) > 0 || v.Head != log[3].Seal {
					t.Fatalf("%s died behind %s: %+v", what, step, v)
				}
			}
		}
	}
}

// A process is stopped behind each step of a closing until its claim has ended and somebody else has closed the
// month. When it goes on, it closes nothing once more, and says so.
func TestCrash_APausedProcessDecidesNothingOnceMore(t *testing.T) {
	e, m := newEnvWithReports(t), month("2025-10")
	closings := 0
	for _, step := range []string{"calculated", "rows stored", "added up", "decided", "stored"} {
		e.store(e.order(m.Add(12*time.Hour), delivery.Delivered, 100))
		e.hold(m)
		before := e.csv("fleet-statement", m, "booked", "")

		child := e.paused(step, childMonth+"="+m.String())
		e.Do("DEL", "books:{sg}claim:decision") // which ends by itself 30 seconds later
		task, err := e.tasksOf(e.newBooks()).Start(t.Context(), somebody, Decision{Kind: KindClose, Month: m, By: "efe"})
		isDecidedByChild := step == "decided" || step == "stored"
		if isDecidedByChild != errors.Is(err, ErrRefused) || !isDecidedByChild && err != nil {
			t.Errorf("%s: the other one's closing: %v", step, err)
		}

		said := child.goOn(t)

		closings++
		e.requireLog(closings, 0)
		by := e.log().Closing(m).By
		if isDecidedByChild && by != "ece" || !isDecidedByChild && by != "efe" {
			t.Errorf("%s: %s has closed it; the child said %s", step, by, said)
		}
		if !isDecidedByChild && strings.Contains(said, "ended with <nil>") {
			t.Errorf("%s: the child said %s", step, said)
		}

		last, err := e.books.LastTask(t.Context())
		testenv.Must(t, err)
		if last.ID != task.ID || !last.HasEnded() {
			t.Errorf("%s: the last task is %+v, want %+v", step, last, task)
		}
		if now := e.csv("fleet-statement", m, "booked", ""); now != before {
			t.Errorf("%s: the statement was\n%s\nand is\n%s", step, before, now)
		}
		if v := e.verify(); len(v.Findings)+len(v.Pending) > 0 {
			t.Errorf("%s: %+v", step, v)
		}

		t.Logf("stopped behind %s, the child %s", step, said)
		m = m.Next()
	}
}

// pausedChild is a process that has stopped itself.
type pausedChild struct {
	cmd *exec.Cmd
	out *bytes.Buffer
}

// paused runs the child with these variables until it has stopped itself behind a step.
func (e *env) paused(step string, variables ...string) *pausedChild {
	e.T.Helper()
	child := &pausedChild{cmd: e.child(step, append(variables, childPause+"=true")...), out: &bytes.Buffer{}}
	child.cmd.Stdout, child.cmd.Stderr = child.out, child.out
	testenv.Must(e.T, child.cmd.Start())
	e.T.Cleanup(func() { _ = child.cmd.Process.Kill() }) // it has ended, unless the test has failed

	var status syscall.WaitStatus
	_, err := syscall.Wait4(child.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	testenv.Must(e.T, err)
	if !status.Stopped() {
		e.T.Fatalf("the child has not stopped behind %s: %v", step, status)
	}

	return child
}

// goOn lets the child go on, and returns what it says of its end.
func (c *pausedChild) goOn(t *testing.T) string {
	t.Helper()
	testenv.Must(t, c.cmd.Process.Signal(syscall.SIGCONT))
	if err := c.cmd.Wait(); err != nil {
		t.Fatalf("the child: %v\n%s", err, c.out)
	}

	said := regexp.MustCompile("(?m)^ended with .*$").FindString(c.out.String())
	if said == "" {
		t.Fatalf("the child has not said how it ended:\n%s", c.out)
	}

	return said
}
