package closing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/deliver"
	"vendorapi/reporting/reports"
)

// bucket is an S3 server in this process, and a target there.
type bucket struct {
	client *minio.Client
	target *deliver.Target
	url    string // of the target

	isAway atomic.Bool            // every request of the target is answered 503
	refuse func(path string) bool // these, too; nil: none
	asked  atomic.Int64
}

func newBucket(t *testing.T, name string) *bucket {
	t.Helper()
	backend := s3mem.New()
	testenv.Must(t, backend.CreateBucket("books"))
	store := gofakes3.New(backend).Server()
	direct := httptest.NewServer(store)
	t.Cleanup(direct.Close)

	b := &bucket{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.asked.Add(1)
		if b.isAway.Load() || b.refuse != nil && b.refuse(r.URL.Path) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		store.ServeHTTP(w, r)
	}))

	t.Cleanup(server.Close)
	b.url = "s3://books/finance?endpoint=" + url.QueryEscape(server.URL)
	b.target = openTarget(t, name, b.url)

	var err error
	b.client, err = minio.New(strings.TrimPrefix(direct.URL, "http://"), &minio.Options{Creds: credentials.NewStaticV4("id", "secret", "")})
	testenv.Must(t, err)

	return b
}

func openTarget(t *testing.T, name, address string) *deliver.Target {
	t.Helper()
	variable := "DELIVER_" + strings.ToUpper(name)
	t.Setenv(variable+"_KEY_ID", "id")
	t.Setenv(variable+"_SECRET", "secret")
	target, err := deliver.Open(deliver.TargetSettings{Name: name, URL: address})
	testenv.Must(t, err)

	return target
}

// put puts a file there that nobody has delivered.
func (b *bucket) put(t *testing.T, name, content string) {
	t.Helper()
	_, err := b.client.PutObject(t.Context(), "books", "finance/"+name, strings.NewReader(content), int64(len(content)), minio.PutObjectOptions{})
	testenv.Must(t, err)
}

func (b *bucket) files(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for o := range b.client.ListObjectsIter(t.Context(), "books", minio.ListObjectsOptions{Recursive: true}) {
		testenv.Must(t, o.Err)
		object, err := b.client.GetObject(t.Context(), "books", o.Key, minio.GetObjectOptions{})
		testenv.Must(t, err)
		content, err := io.ReadAll(object)
		testenv.Must(t, err)
		files[strings.TrimPrefix(o.Key, "finance/")] = string(content)
	}

	return files
}

// sets are the folders that are whole: they have a manifest.
func (b *bucket) sets(t *testing.T) string {
	t.Helper()
	var whole []string
	for name := range b.files(t) {
		if folder, isManifest := strings.CutSuffix(name, "/"+manifestFile); isManifest {
			whole = append(whole, folder)
		}
	}

	slices.Sort(whole)
	return strings.Join(whole, " ")
}

// receiver is finance's own system behind the gateway, which knows a report by its ID.
type receiver struct {
	mu     sync.Mutex
	err    error                // that it answers
	refuse func(id string) bool // of which reports; nil: of all, if there is an error
	events []string             // as they were announced, each ID once
	asked  []string             // all that was asked, refused or repeated
}

func (r *receiver) announce(_ context.Context, report *delivery.AvailableReport) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := formatReport(report)
	r.asked = append(r.asked, text)
	if r.err != nil && (r.refuse == nil || r.refuse(report.ID)) {
		return r.err
	}

	isRepeated := slices.ContainsFunc(r.events, func(event string) bool { return idOf(event) == report.ID })
	if !isRepeated {
		r.events = append(r.events, text)
	}

	return nil
}

func idOf(event string) string {
	report, err := parseReport(event)
	if err != nil {
		return err.Error()
	}
	return report.ID
}

func (r *receiver) ids() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for _, event := range r.events {
		ids = append(ids, idOf(event))
	}

	slices.Sort(ids) // the order of announcements is nobody's business
	return strings.Join(ids, " ")
}

// newDeliverer delivers to buckets, daily at 07:00.
func (e *env) newDeliverer(r *receiver, buckets ...*bucket) *Deliverer {
	s := DelivererSettings{Daily: "07:00", Announce: r.announce, Registry: prometheus.NewRegistry()}
	for _, b := range buckets {
		s.Targets = append(s.Targets, b.target)
	}
	return NewDeliverer(e.books, s)
}

func (d *Deliverer) mustDeliver(t *testing.T) {
	t.Helper()
	testenv.Must(t, d.once(t.Context()))
}

// wantPending checks the gauges of the first target.
func (d *Deliverer) wantPending(t *testing.T, want int, since time.Time) {
	t.Helper()
	oldest := 0.0
	if !since.IsZero() {
		oldest = float64(since.Unix())
	}

	q := d.queues[0]
	if n, at := testenv.Value(t, q.pending), testenv.Value(t, q.oldest); n != float64(want) || at != oldest {
		t.Errorf("%v are pending since %v, want %d since %v", n, at, want, oldest)
	}
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func wantSets(t *testing.T, b *bucket, want ...string) {
	t.Helper()
	if got := b.sets(t); got != strings.Join(want, " ") {
		t.Errorf("whole are %q, want %q", got, want)
	}
}

func wantAnnounced(t *testing.T, r *receiver, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := r.ids(); got != strings.Join(want, " ") {
		t.Errorf("announced are %q, want %q", got, want)
	}
}

// A closing, a correction and a day's reports arrive once, and are announced once.
func TestDeliverer_DeliversEachSetOnce(t *testing.T) {
	e, b, r := newEnvWithReports(t), newBucket(t, "erp"), &receiver{}
	october := month("2025-10")
	failed := e.order(october.AddDate(0, 0, 5), delivery.Failed, 9900)
	e.store(e.order(october.AddDate(0, 0, 5), delivery.Delivered, 25000), failed)
	e.close(october)
	closedAt := e.clock
	d := e.newDeliverer(r, b)
	r.err = errors.New("the gateway does not answer")
	d.mustDeliver(t)
	wantAnnounced(t, r)

	e.reportLate(&failed, failed.EndedAt.Add(time.Hour))
	_, _, err := correct(t.Context(), e.books, Automatic, "")
	testenv.Must(t, err)
	e.clock = e.clock.Add(7 * time.Hour)
	d.mustDeliver(t)
	r.err = nil
	d = e.newDeliverer(r, b) // it knows of no failure, so what was delivered first is announced first
	d.mustDeliver(t)
	if len(r.events) == 0 || idOf(r.events[0]) != "2025-10-closing-000002@erp" {
		t.Errorf("announced in this order: %q", r.events)
	}

	files := b.files(t)
	l, err := e.books.Read(t.Context())
	testenv.Must(t, err)
	for i, folder := range map[int]string{1: "2025-10-closing-000002", 2: "2025-11-correction-000003"} {
		if manifest := files[folder+"/manifest.json"]; sumOf(manifest) != l.Entries[i].Seal {
			t.Errorf("the manifest in %s is not what was sealed: %q", folder, manifest)
		}
	}

	wantContains(t, "the manifest of the correction", files["2025-11-correction-000003/manifest.json"], `"order":"`+failed.ID.String()+`"`)
	for _, line := range l.Entries[1].Control {
		if line.SHA256 != "" && sumOf(files["2025-10-closing-000002/"+line.Line+".csv"]) != line.SHA256 {
			t.Errorf("%s is not what was sealed", line.Line)
		}
	}

	wantContains(t, "the corrections", files["2025-11-correction-000003/corrections.csv"], failed.ID.String()+",", ",2025-10,2025-11-03,late delivery,Failed,Failed,0.00,99.00,")
	wantContains(t, "the manifest of the day", files["2025-11-02-daily/manifest.json"], `"day":"2025-11-02"`, "as they were when they were delivered",
		`"order-ledger.csv":"`+sumOf(files["2025-11-02-daily/order-ledger.csv"])+`"`)
	if len(files) != 6+2+5 {
		t.Errorf("%d files", len(files))
	}

	var delivered []string
	for _, name := range []string{"2025-10-closing-000002/log.jsonl", "2025-10-closing-000002/manifest.json", "2025-11-correction-000003/manifest.json"} {
		manifests, err := ManifestsIn([]byte(files[name]))
		testenv.Must(t, err)
		delivered = append(delivered, manifests...)
	}

	for i := range l.Entries {
		if i >= len(delivered) || delivered[i] != l.Entries[i].JSON {
			t.Errorf("entry %d was not delivered as it is in the log: %q", i+1, delivered)
		}
	}

	wantAnnounced(t, r, "2025-10-closing-000002@erp", "2025-11-correction-000003@erp", "2025-11-02-daily@erp")
	for _, event := range r.events {
		deliveredAt := e.clock
		if strings.Contains(event, "closing") {
			deliveredAt = closedAt
		}
		wantContains(t, "the event", event, `"at":"`+delivery.FormatTime(deliveredAt)+`"`)
	}

	d.wantPending(t, 0, time.Time{})

	wrong, err := e.books.CheckDelivered(t.Context(), []*deliver.Target{b.target})
	testenv.Must(t, err)
	if len(wrong) > 0 {
		t.Error(wrong)
	}

	b.put(t, "2025-10-closing-000002/order-ledger.csv", "x")
	wrong, err = e.books.CheckDelivered(t.Context(), []*deliver.Target{b.target})
	if err != nil || len(wrong) != 1 || !strings.Contains(wrong[0], "order-ledger.csv") {
		t.Error(wrong, err)
	}

	testenv.Must(t, e.books.changeSet(t.Context(), "erp", "2025-11-correction-000003", func(row *archive.DeliverySet) bool {
		row.Manifest = sumOf("other")
		return true
	}))

	wrong, err = e.books.CheckDelivered(t.Context(), []*deliver.Target{b.target})
	if err != nil || len(wrong) != 2 || !strings.Contains(wrong[1], "sealed is "+l.Entries[2].Seal[:12]) {
		t.Error(wrong, err)
	}
}

// Without a target a closing is announced all the same, without files.
func TestDeliverer_AnnouncesWithoutTargets(t *testing.T) {
	t.Parallel()

	e, r, october := newEnv(t), &receiver{}, month("2025-10")
	e.store(e.order(october.AddDate(0, 0, 5), delivery.Delivered, 25000))
	e.close(october)
	e.clock = e.clock.Add(7 * time.Hour)
	d := e.newDeliverer(r)
	d.mustDeliver(t)
	d.mustDeliver(t)
	wantAnnounced(t, r, "2025-10-closing-000002")
	wantContains(t, "the event", r.events[0], `"kind":"closing","month":"2025-10","seal":{"sequence":2,`, `"files":[]`)
}

// Days without a process, also over the end of a month, are delivered when it is back, and no earlier ones.
func TestDeliverer_CatchesUpOnDaysWithoutAProcess(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{}
	october := month("2025-10")
	for day := range 40 {
		e.store(e.order(october.AddDate(0, 0, day).Add(12*time.Hour), delivery.Delivered, 25000))
	}

	e.clock = october.AddDate(0, 0, 28).Add(6 * time.Hour) // 29 October, before the time
	e.newDeliverer(r, b).mustDeliver(t)
	wantSets(t, b)

	e.clock = october.AddDate(0, 0, 34).Add(6 * time.Hour) // 4 November, before the time
	for range 2 {
		e.newDeliverer(r, b).mustDeliver(t)
		wantSets(t, b, "2025-10-28-daily", "2025-10-29-daily", "2025-10-30-daily", "2025-10-31-daily", "2025-11-01-daily", "2025-11-02-daily")
	}

	wantAnnounced(t, r, "2025-10-28-daily@erp", "2025-10-29-daily@erp", "2025-10-30-daily@erp", "2025-10-31-daily@erp", "2025-11-01-daily@erp", "2025-11-02-daily@erp")
	wantContains(t, "the ledger", b.files(t)["2025-10-31-daily/order-ledger.csv"], "2025-10-31T12:00:00", ",250.00,")

	other := newBucket(t, "other")
	e.newDeliverer(r, other).mustDeliver(t)
	wantSets(t, other)
	e.clock = e.clock.Add(time.Hour)
	e.newDeliverer(r, other).mustDeliver(t)
	wantSets(t, other, "2025-11-03-daily")
}

// After years the last 396 days come, some at each look.
func TestDeliverer_BoundsWhatItCatchesUpOn(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	day := month("2022-01").Time
	e.clock = month("2025-11").Add(8 * time.Hour)
	q := &targetQueue{books: e.books, target: &deliver.Target{}, daily: parseDaily("07:00")}
	due := q.dueDays(map[string]*archive.DeliverySet{dayName(day): {}})
	if len(due) != mostDays || due[mostDays-1].Name != "2025-10-31-daily" || due[0].Name != "2024-10-01-daily" {
		t.Errorf("%d are due, %s to %s", len(due), due[0].Name, due[len(due)-1].Name)
	}
	due = q.dueDays(nil)
	if len(due) != 1 || !due[0].DueAt.Equal(month("2025-11").Add(7*time.Hour)) {
		t.Errorf("of a new target are due: %+v", due)
	}
}

// A target that is away gets everything when it is back. Until then its gauges say since when it is owed what.
func TestDeliverer_CatchesUpOnATargetThatWasAway(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{}
	november := month("2025-11")
	e.store(e.order(november.Add(-12*time.Hour), delivery.Delivered, 100))
	e.close(month("2025-10"))
	closed := e.clock
	d := e.newDeliverer(r, b)
	b.isAway.Store(true)
	d.mustDeliver(t)
	d.wantPending(t, 1, closed)
	for day := 3; day <= 9; day++ {
		e.clock = november.AddDate(0, 0, day-1).Add(8 * time.Hour)
		asked := b.asked.Load()
		d.mustDeliver(t)
		d.wantPending(t, day-1, closed)
		if n := b.asked.Load() - asked; n > 3 {
			t.Errorf("a target that is away is asked %d times at a look", n)
		}
	}

	wantSets(t, b)
	if n := testenv.Value(t, d.announcer.pending); n != 0 {
		t.Errorf("%v are to be announced that are not there", n)
	}

	b.isAway.Store(false)
	d.mustDeliver(t)
	want := []string{"2025-10-closing-000002"}
	for day := 2; day <= 8; day++ {
		want = append(want, fmt.Sprintf("2025-11-%02d-daily", day))
	}

	wantSets(t, b, want...)
	d.wantPending(t, 0, time.Time{})
	if len(r.events) != len(want) {
		t.Errorf("%d are announced", len(r.events))
	}
}

// A set that cannot succeed holds up no other set and no other target, is counted, and is logged once for each reason.
func TestDeliverer_GoesOnPastWhatCannotSucceed(t *testing.T) {
	e, b, other, r := newEnv(t), newBucket(t, "erp"), newBucket(t, "other"), &receiver{}
	october := month("2025-10")
	e.store(e.order(october.Add(12*time.Hour), delivery.Delivered, 25000), e.order(october.Next().Add(12*time.Hour), delivery.Delivered, 100))
	e.close(october)
	e.close(october.Next())
	e.clock = e.clock.Add(8 * time.Hour)
	since := e.clock
	var log bytes.Buffer
	e.books.log = slog.New(slog.NewTextHandler(&log, nil))
	const foreign = "2025-10-closing-000002/order-ledger.csv"
	b.put(t, foreign, "somebody else's")
	d := e.newDeliverer(r, b, other)
	for range 5 {
		d.mustDeliver(t)
		e.clock = e.clock.Add(40 * time.Minute)
	}

	all := []string{"2025-10-closing-000002", "2025-11-closing-000004", "2025-12-02-daily"}
	wantSets(t, b, all[1:]...)
	wantSets(t, other, all...)
	d.wantPending(t, 1, since)
	if n := strings.Count(log.String(), "a delivery failed"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, &log)
	}

	row, err := e.books.archive.DeliverySet(t.Context(), "erp", all[0])
	testenv.Must(t, err)
	wantContains(t, "the error", row.Error, foreign, "other content")
	if wrong, err := e.books.CheckDelivered(t.Context(), []*deliver.Target{b.target, other.target}); err != nil || len(wrong) > 0 {
		t.Errorf("of what was not delivered is said %q, %v", wrong, err)
	}

	// Within an hour it is not read again; another reason is news.
	asked := b.asked.Load()
	e.clock = e.clock.Add(10 * time.Minute)
	d.mustDeliver(t)
	if n := b.asked.Load() - asked; n > 0 {
		t.Errorf("asked %d times", n)
	}

	e.clock = e.clock.Add(time.Hour)
	b.isAway.Store(true)
	d.mustDeliver(t)
	if n := strings.Count(log.String(), "a delivery failed"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, &log)
	}

	// A person moves it away.
	b.isAway.Store(false)
	testenv.Must(t, b.client.RemoveObject(t.Context(), "books", "finance/"+foreign, minio.RemoveObjectOptions{}))
	e.clock = e.clock.Add(time.Hour)
	testenv.Must(t, d.queues[0].once(t.Context())) // it is not announced yet
	wantSets(t, b, all...)
	row, err = e.books.archive.DeliverySet(t.Context(), "erp", all[0])
	if err != nil || row.Error != "" {
		t.Errorf("%+v, %v", row, err)
	}
}

// Sets that fail each time as if the target was away take no turn from another one.
func TestDeliverer_GoesOnPastWhatFailsForEver(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{}
	at := func(day int) time.Time { return month("2025-11").AddDate(0, 0, day-1).Add(8 * time.Hour) }
	b.refuse = func(path string) bool { return !strings.Contains(path, "2025-11-05-daily") }
	e.clock = at(2)
	d := e.newDeliverer(r, b)
	d.mustDeliver(t)
	e.clock = at(6)
	for range 2 {
		d.mustDeliver(t)
	}

	wantSets(t, b, "2025-11-05-daily")
	d.wantPending(t, 4, month("2025-11").AddDate(0, 0, 1).Add(7*time.Hour))
}

// A target that begins an answer and never ends it delays neither another target nor announcements.
func TestDeliverer_AHangingTargetDelaysNothingElse(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{}
	var asked atomic.Bool
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Last-Modified", "Mon, 30 Nov 2026 00:00:00 GMT")
		_ = http.NewResponseController(w).Flush() // the client gives up on headers that do not come within a minute
		asked.Store(true)
		<-release
	}))

	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(release) })
	stuck := &bucket{target: openTarget(t, "stuck", "s3://books?endpoint="+url.QueryEscape(hanging.URL))}

	e.store(e.order(month("2025-10").Add(12*time.Hour), delivery.Delivered, 25000))
	e.close(month("2025-10"))
	stuck.target.LongestPause = time.Hour // it hangs until the end of the test
	d := e.newDeliverer(r, stuck, b)
	d.interval = 10 * time.Millisecond

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { d.Run(ctx); close(ended) }()

	e.Await("the target hangs", asked.Load)
	e.Await("the other target has the set", func() bool { return b.sets(t) == "2025-10-closing-000002" })
	e.Await("its set is announced", func() bool { return r.ids() == "2025-10-closing-000002@erp" })

	cancel()
	<-ended
	row, err := e.books.archive.DeliverySet(t.Context(), "stuck", "2025-10-closing-000002")
	testenv.Must(t, err)
	if row.Error != "" {
		t.Errorf("the end of the process is recorded as a failure: %s", row.Error)
	}
}

// An announcement that fails holds up no file, and no other announcement.
func TestDeliverer_AnAnnouncementThatFailsHoldsUpNothing(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{err: errors.New("the gateway refuses the panel's ADMIN_KEY")}
	october := month("2025-10")
	e.store(e.order(october.Add(12*time.Hour), delivery.Delivered, 25000), e.order(october.Next().Add(12*time.Hour), delivery.Delivered, 100))
	e.close(october)
	e.close(october.Next())
	e.clock = e.clock.Add(8 * time.Hour)
	delivered := e.clock
	var log bytes.Buffer
	e.books.log = slog.New(slog.NewTextHandler(&log, nil))
	d := e.newDeliverer(r, b)
	for range 3 {
		d.mustDeliver(t)
		e.clock = e.clock.Add(time.Minute)
	}

	wantSets(t, b, "2025-10-closing-000002", "2025-11-closing-000004", "2025-12-02-daily")
	d.wantPending(t, 0, time.Time{})
	if n, at := testenv.Value(t, d.announcer.pending), testenv.Value(t, d.announcer.oldest); n != 3 || at != float64(delivered.Unix()) {
		t.Errorf("%v are to be announced, since %v", n, at)
	}
	if n := strings.Count(log.String(), "an announcement failed"); n != 3 {
		t.Errorf("logged %d times:\n%s", n, &log)
	}

	r.refuse = func(id string) bool { return id == "2025-10-closing-000002@erp" }
	for range 3 {
		d.mustDeliver(t)
	}

	wantAnnounced(t, r, "2025-11-closing-000004@erp", "2025-12-02-daily@erp")
	row, err := e.books.archive.DeliverySet(t.Context(), "erp", "2025-10-closing-000002")
	testenv.Must(t, err)
	wantContains(t, "the error", row.Error, "announce 2025-10-closing-000002@erp: ", "ADMIN_KEY")

	r.err = nil
	d.mustDeliver(t)
	if n := testenv.Value(t, d.announcer.pending); n != 0 || len(r.events) != 3 {
		t.Errorf("%v are to be announced, %d events", n, len(r.events))
	}
}

// Nobody is there to be notified: it counts as announced, and a receiver that is registered later gets what comes then.
func TestDeliverer_WithoutAReceiverNothingWaits(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{err: delivery.Refuse(delivery.CodeWebhookNotConfigured, "")}
	e.store(e.order(month("2025-10").Add(12*time.Hour), delivery.Delivered, 25000))
	e.close(month("2025-10"))
	d := e.newDeliverer(r, b)
	d.mustDeliver(t)
	r.err = nil
	e.clock = e.clock.Add(7 * time.Hour)
	d.mustDeliver(t)
	wantAnnounced(t, r, "2025-11-02-daily@erp")
}

// An announcement that is retried says what was delivered, though the reports have changed since, byte by byte.
func TestDeliverer_ARetriedAnnouncementSaysWhatWasDelivered(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{err: errors.New("the answer was lost")}
	day := month("2025-11").AddDate(0, 0, 1)
	o := e.order(day.Add(12*time.Hour), delivery.Delivered, 25000)
	e.store(o)
	e.clock = day.Add(32 * time.Hour) // the morning after
	b.put(t, "2025-11-02-daily/order-ledger.csv", "half of what it was")
	d := e.newDeliverer(r, b)
	d.mustDeliver(t)
	o.Collection.Minor, o.Version = 1, o.Version+1
	e.store(o)
	e.clock = e.clock.Add(time.Minute)
	d = e.newDeliverer(r, b)
	d.mustDeliver(t)
	r.err = nil
	d.mustDeliver(t)
	if len(r.asked) != 3 || r.asked[0] != r.asked[1] || r.asked[1] != r.asked[2] {
		t.Errorf("announced: %q", r.asked)
	}

	report, err := parseReport(r.events[0])
	testenv.Must(t, err)
	files := b.files(t)
	if report.ID != "2025-11-02-daily-2@erp" || report.Kind != delivery.ReportScheduled || len(report.Files) != 2 || formatReport(report) != r.events[0] {
		t.Errorf("%+v", report)
	}

	for _, f := range report.Files {
		if f.Target != "erp" || f.SHA256 != sumOf(files[f.Name]) {
			t.Errorf("%s at %s is not what was announced", f.Name, f.Target)
		}
	}
}

// A day's folder that holds something else stays as it is; another one has what is true now.
func TestDeliverer_BeginsADailySetAnew(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "daily"), &receiver{}
	day := month("2025-11").AddDate(0, 0, 1)
	e.store(e.order(day.Add(12*time.Hour), delivery.Delivered, 25000))
	e.clock = day.Add(32 * time.Hour)
	const cutOff = "half of what it was"
	b.put(t, "2025-11-02-daily/order-ledger.csv", cutOff)
	b.put(t, "2025-11-02-daily-2/manifest.json", cutOff)
	d := e.newDeliverer(r, b)
	d.mustDeliver(t)
	d.mustDeliver(t)
	files := b.files(t)
	if files["2025-11-02-daily/order-ledger.csv"] != cutOff || files["2025-11-02-daily-2/manifest.json"] != cutOff || len(files) != 1+2+2 {
		t.Errorf("%d files", len(files))
	}

	wantContains(t, "the ledger", files["2025-11-02-daily-3/order-ledger.csv"], ",moda,", ",250.00,")
	wantAnnounced(t, r, "2025-11-02-daily-3@daily")
}

// However many folders are taken, a later look goes on with the next number.
func TestDeliverer_FindsAFolderBehindManyThatAreTaken(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{}
	e.clock = month("2025-11").AddDate(0, 0, 2).Add(8 * time.Hour)
	for n := 1; n <= foldersAtOnce+3; n++ {
		folder := "2025-11-02-daily"
		if n > 1 {
			folder = fmt.Sprintf("%s-%d", folder, n)
		}
		b.put(t, folder+"/order-ledger.csv", "taken")
	}

	d := e.newDeliverer(r, b)
	d.mustDeliver(t)
	d.wantPending(t, 1, month("2025-11").AddDate(0, 0, 2).Add(7*time.Hour))
	e.clock = e.clock.Add(permanentPause)
	d.mustDeliver(t)
	wantSets(t, b, fmt.Sprintf("2025-11-02-daily-%d", foldersAtOnce+4))
	d.wantPending(t, 0, time.Time{})
}

// Reports change after an attempt that was cut off behind some step. Whatever of it arrived, there is one whole
// set, recorded and announced as it is.
func TestDeliverer_GoesOnAfterEachStepThoughReportsChanged(t *testing.T) {
	e := newEnv(t)
	e.reports.daily = reports.All()[:2]
	for i, step := range []string{"due", "planned", "delivered order-ledger.csv", "delivered expected-collections.csv", "delivered manifest.json",
		"set delivered", "recorded", "announced", "noted"} {
		// Each step has a day and a target of its own.
		name := fmt.Sprintf("erp%d", i)
		day := month("2025-11").AddDate(0, 0, i)
		e.books = e.newBooks()
		b, r := newBucket(t, name), &receiver{}
		o := e.order(day.Add(12*time.Hour), delivery.Delivered, 25000)
		e.store(o)
		e.clock = day.Add(32 * time.Hour)

		ctx, cancel := context.WithCancel(t.Context())
		e.books.step = func(name string) {
			if name == step {
				cancel()
			}
		}

		_ = e.newDeliverer(r, b).once(ctx)
		if ctx.Err() == nil {
			t.Fatalf("there was no step %s", step)
		}

		e.books = e.newBooks()
		o.Collection.Minor, o.Version = 1, o.Version+1
		e.store(o)
		d := e.newDeliverer(r, b)
		d.mustDeliver(t)
		d.mustDeliver(t)

		want := dayName(day)
		if strings.HasSuffix(step, ".csv") {
			want += "-2"
		}

		wantSets(t, b, want)
		wantAnnounced(t, r, want+"@"+name)
		report, err := parseReport(r.events[0])
		testenv.Must(t, err)
		for _, f := range report.Files {
			if f.SHA256 != sumOf(b.files(t)[f.Name]) {
				t.Errorf("%s: %s is not what was announced", step, f.Name)
			}
		}

		d.wantPending(t, 0, time.Time{})
		if t.Failed() {
			t.Fatalf("cut off behind %s", step)
		}
	}
}

// Processes that deliver at once send each file once and record the same.
func TestDeliverer_SeveralProcessesMakeOneSet(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{}
	october := month("2025-10")
	e.store(e.order(october.Add(12*time.Hour), delivery.Delivered, 25000))
	e.close(october)
	e.clock = e.clock.Add(8 * time.Hour)
	var together sync.WaitGroup
	for range 4 {
		d := e.newDeliverer(r, b)
		together.Go(func() {
			if err := d.once(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}

	together.Wait()
	d := e.newDeliverer(r, b)
	d.mustDeliver(t)
	wantSets(t, b, "2025-10-closing-000002", "2025-11-02-daily")
	if n := len(b.files(t)); n != 3+2 || len(r.events) != 2 {
		t.Errorf("%d files, announced %q", n, r.ids())
	}

	d.wantPending(t, 0, time.Time{})
}

// Two processes fill two folders of a day, since its reports changed between them: the higher number counts, whoever
// records first.
func TestDeliverer_OfTwoFoldersTheHigherNumberCounts(t *testing.T) {
	for _, isHigherFirst := range []bool{true, false} {
		e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{}
		day := month("2025-11").AddDate(0, 0, 1)
		e.clock = day.Add(32 * time.Hour)
		d := e.newDeliverer(r, b)
		q := d.queues[0]
		recorded := map[string]*archive.DeliverySet{}
		testenv.Must(t, q.recordNew(t.Context(), q.dueDays(recorded), recorded))
		s, err := e.books.daySet(t.Context(), day)
		testenv.Must(t, err)
		folders := []string{"2025-11-02-daily", "2025-11-02-daily-2"}
		if isHigherFirst {
			slices.Reverse(folders)
		}

		for _, folder := range folders {
			testenv.Must(t, q.recordDelivered(t.Context(), "2025-11-02-daily", folder, s.reportAt("erp", folder)))
			testenv.Must(t, d.announcer.once(t.Context()))
		}

		row, err := e.books.archive.DeliverySet(t.Context(), "erp", "2025-11-02-daily")
		testenv.Must(t, err)
		if row.Folder != "2025-11-02-daily-2" || !strings.Contains(r.ids(), "2025-11-02-daily-2@erp") {
			t.Errorf("%+v; announced are %s", row, r.ids())
		}
	}
}

// While a folder of a day is announced, another process delivers a later one: that one is announced, too.
func TestDeliverer_AnnouncesWhatIsDeliveredMeanwhile(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{}
	day := month("2025-11").AddDate(0, 0, 1)
	e.clock = day.Add(32 * time.Hour)
	d := e.newDeliverer(r, b)
	d.announcer.announce = func(ctx context.Context, report *delivery.AvailableReport) error {
		if len(r.asked) == 0 {
			s, err := e.books.daySet(ctx, day)
			testenv.Must(t, err)
			const folder = "2025-11-02-daily-2"
			testenv.Must(t, d.queues[0].recordDelivered(ctx, "2025-11-02-daily", folder, s.reportAt("erp", folder)))
		}
		return r.announce(ctx, report)
	}

	d.mustDeliver(t)
	d.mustDeliver(t)
	wantAnnounced(t, r, "2025-11-02-daily@erp", "2025-11-02-daily-2@erp")
}

// A clock that was a day ahead has delivered a day before it was over: it comes again, whole. One that is behind
// delivers nothing twice.
func TestDeliverer_AClockThatJumps(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{}
	november := month("2025-11")
	at := func(day, hour int) time.Time {
		return november.AddDate(0, 0, day-1).Add(time.Duration(hour) * time.Hour)
	}
	d := e.newDeliverer(r, b)
	look := func(now time.Time) {
		e.clock = now
		d.mustDeliver(t)
	}

	e.store(e.order(at(3, 7), delivery.Delivered, 100))
	look(at(3, 8))
	look(at(4, 8)) // it is the 3rd
	wantSets(t, b, "2025-11-02-daily", "2025-11-03-daily")

	look(at(3, 9))
	e.store(e.order(at(3, 12), delivery.Delivered, 200))
	look(at(3, 13))
	wantSets(t, b, "2025-11-02-daily", "2025-11-03-daily")
	look(at(4, 6))
	look(at(4, 7))
	wantSets(t, b, "2025-11-02-daily", "2025-11-03-daily", "2025-11-03-daily-2")
	wantContains(t, "the ledger", b.files(t)["2025-11-03-daily-2/order-ledger.csv"], ",1.00,", ",2.00,")

	look(at(3, 8)) // it is the 4th
	look(at(4, 8))
	wantSets(t, b, "2025-11-02-daily", "2025-11-03-daily", "2025-11-03-daily-2")
	wantAnnounced(t, r, "2025-11-02-daily@erp", "2025-11-03-daily@erp", "2025-11-03-daily-2@erp")

	// Another target is first seen by a clock that is far ahead.
	other := newBucket(t, "other")
	d = e.newDeliverer(r, other)
	look(at(400, 8))
	look(at(5, 8))
	wantSets(t, other, "2025-11-04-daily", "2026-12-04-daily")
}

// What a clock that was far ahead has recorded, or has put off, does not wait until then.
func TestDeliverer_NothingWaitsForAClockThatWasAhead(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{}
	october := month("2025-10")
	e.store(e.order(october.Add(12*time.Hour), delivery.Delivered, 25000))
	e.close(october)
	now := e.clock
	const foreign = "2025-10-closing-000002/manifest.json"
	b.put(t, foreign, "somebody else's")
	d := e.newDeliverer(r, b)
	e.clock = now.AddDate(1, 0, 0).Add(8 * time.Hour)
	d.mustDeliver(t)
	wantSets(t, b, "2025-10-closing-000002", "2026-11-02-daily")

	e.clock = now
	testenv.Must(t, b.client.RemoveObject(t.Context(), "books", "finance/"+foreign, minio.RemoveObjectOptions{}))
	b.isAway.Store(true)
	d.mustDeliver(t)
	d.wantPending(t, 1, now)
	b.isAway.Store(false)
	d.mustDeliver(t)
	wantSets(t, b, "2025-10-closing-000002", "2026-11-02-daily")
	d.wantPending(t, 0, time.Time{})
}

// While ClickHouse has less than was decided nothing is delivered, for a day's reports have the corrections
// that were booked on it. Nothing is lost: it comes once the log is whole.
func TestDeliverer_WaitsForAReadableLog(t *testing.T) {
	e, b, r := newEnv(t), newBucket(t, "erp"), &receiver{}
	october := month("2025-10")
	e.store(e.order(october.Add(12*time.Hour), delivery.Delivered, 25000))
	e.close(october)
	d := e.newDeliverer(r, b)
	b.isAway.Store(true)
	d.mustDeliver(t)
	b.isAway.Store(false)
	e.ClickHouse.Exec(t, "CREATE TABLE "+e.Database+".was_journal AS "+e.Database+".journal")
	e.ClickHouse.Exec(t, "INSERT INTO "+e.Database+".was_journal SELECT * FROM "+e.Database+".journal WHERE sequence = 1")
	e.ClickHouse.Exec(t, "DELETE FROM "+e.Database+".journal WHERE sequence = 1 SETTINGS lightweight_deletes_sync = 2")
	e.clock = e.clock.Add(8 * time.Hour)

	if err := d.once(t.Context()); err == nil {
		t.Error("the log could be read")
	}

	wantSets(t, b)
	wantAnnounced(t, r)

	e.ClickHouse.Exec(t, "INSERT INTO "+e.Database+".journal SELECT * FROM "+e.Database+".was_journal")
	e.clock = e.clock.Add(permanentPause + time.Minute)
	d.mustDeliver(t)
	wantSets(t, b, "2025-10-closing-000002", "2025-11-02-daily")
	d.wantPending(t, 0, time.Time{})
	wantAnnounced(t, r, "2025-10-closing-000002@erp", "2025-11-02-daily@erp")
}

// What fails each time is tried after what was never tried, and after what was tried longer ago.
func TestAttempts_FailuresTakeNoTurns(t *testing.T) {
	t.Parallel()

	a, now := newAttempts(), time.Now()
	keys := []string{"a", "b", "c"}
	for _, key := range []string{"a", "b", "a"} {
		a.begin(key)
	}

	if got := a.order(keys, now); !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Errorf("order: %v", got)
	}

	a.pause("c", now)
	if got := a.order(keys, now); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("order with a pause: %v", got)
	}

	a.succeeded("c")
	if got := a.order(keys, now); len(got) != 3 {
		t.Errorf("order after a success: %v", got)
	}

	const refused = "dial tcp 10.0.0.7:9000: connection refused"
	for i, c := range []struct {
		reason, recorded string
		want             bool
	}{
		{refused, "", true},
		{refused, "", false},
		{"read tcp 10.0.0.1:40001->10.0.0.7:9000: reset", "", true},
		{"read tcp 10.0.0.1:40002->10.0.0.7:9000: reset", "", false},
		{"write x.csv.part-ABCDEFGHIJKLMNOP234567: no room", "write x.csv.part-ZBCDEFGHIJKLMNOP234567: no room", false},
		{refused, "", false},
	} {
		if got := a.isNews("d", c.reason, c.recorded); got != c.want {
			t.Errorf("%d: %s is news: %v", i, c.reason, got)
		}
	}
}

func TestFolders_AreNumbered(t *testing.T) {
	t.Parallel()

	name := "2025-11-02-daily"
	folder := name
	for _, want := range []string{name + "-2", name + "-3"} {
		folder = nextFolder(name, folder)
		if folder != want {
			t.Errorf("%s, want %s", folder, want)
		}
	}

	for text, want := range map[string]bool{name: true, folder: false, "2025-10-closing-000002": false, "-daily": false, "2025-11-31-daily": false} {
		day, isDay := dayOf(text)
		if isDay != want || isDay && dayName(day) != text {
			t.Errorf("%s: %v, %v", text, day, isDay)
		}
	}
}
