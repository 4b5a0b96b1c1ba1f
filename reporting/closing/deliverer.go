package closing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/deliver"
	"vendorapi/reporting/reports"
)

// ManifestFile is the last of each set: once it is there, the set is whole.
const ManifestFile = "manifest.json"

const (
	correctionsFile = "corrections.csv"
	announced       = "announced" // in the place of a file
	deliverEvery    = time.Minute
	mostDailySets   = 9
)

// set is what is delivered together.
type set struct {
	files []deliver.File           // the manifest last
	about delivery.AvailableReport // its ID is the folder
}

// Deliverer takes closings, corrections and each day's reports to the targets. Any number of them
// may run: what is there is not sent again.
type Deliverer struct {
	books    *Books
	targets  []*deliver.Target
	daily    string // 07:00, local time; empty: no daily reports
	announce func(context.Context, *delivery.AvailableReport) error

	pending *prometheus.GaugeVec
	sets    *prometheus.CounterVec
}

// NewDeliverer prepares it. announce tells finance's own system of a delivery; it may be called again for the same.
func NewDeliverer(b *Books, targets []*deliver.Target, daily string, announce func(context.Context, *delivery.AvailableReport) error, reg prometheus.Registerer) *Deliverer {
	m := service.NewMetrics(reg, nil)
	d := &Deliverer{books: b, targets: targets, daily: daily, announce: announce,
		pending: m.NewGaugeVec(prometheus.GaugeOpts{Name: "reporting_deliveries_pending",
			Help: "Sets of files that a target does not have yet, at the last look."}, []string{"target"}),
		sets: m.NewCounterVec(prometheus.CounterOpts{Name: "reporting_deliveries_total",
			Help: "Sets of files by target and what became of them."}, []string{"target", "result"}),
	}
	if len(targets) == 0 { // closings are announced all the same: the files are there for download
		d.targets = []*deliver.Target{{}}
	}
	return d
}

// Run delivers until ctx ends.
func (d *Deliverer) Run(ctx context.Context) {
	service.Repeat(ctx, d.books.log, deliverEvery, "deliveries cannot be looked at", "deliveries are looked at again", d.Once)
}

// Once delivers what is pending. What fails is logged, and tried again the next time.
func (d *Deliverer) Once(ctx context.Context) error {
	l, err := d.books.Read(ctx)
	if err != nil {
		return err
	}
	all, err := d.books.archive.Deliveries(ctx)
	if err != nil {
		return err
	}
	done := map[archive.Delivered]bool{} // by target, folder and file
	for _, one := range all {
		done[archive.Delivered{Target: one.Target, Folder: one.Folder, File: one.File}] = true
	}
	for _, t := range d.targets {
		left := 0
		var failed error
		one := func(build func() (*set, error), folder string) {
			switch is := func(file string) bool { return done[archive.Delivered{Target: t.Name, Folder: folder, File: file}] }; {
			case is(announced):
			case failed != nil: // in order: a manifest follows those before it
				left++
			default:
				if failed = d.deliver(ctx, t, build, is(ManifestFile)); failed != nil {
					left++
					d.books.log.Error("a delivery failed and will be tried again", "target", t.Name, "folder", folder, "error", failed)
				}
				d.sets.WithLabelValues(t.Name, map[bool]string{true: "delivered", false: "failed"}[failed == nil]).Inc()
			}
		}
		for i := range l.Entries {
			if e := &l.Entries[i]; e.Kind == KindClose || e.Kind == KindCorrection {
				one(func() (*set, error) { return d.books.setOf(e) }, e.folder())
			}
		}
		if day, due := d.due(); due && t.Name != "" {
			one(func() (*set, error) { return d.books.daySet(ctx, day) }, dayFolder(day))
		}
		d.pending.WithLabelValues(t.Name).Set(float64(left))
	}
	return nil
}

// deliver takes a set to a target, if it is one, and announces it. there: only the announcement is missing.
func (d *Deliverer) deliver(ctx context.Context, t *deliver.Target, build func() (*set, error), there bool) error {
	s, err := build()
	if err != nil {
		return err
	}
	noted, folder := s.about.ID, s.about.ID
	note := func(file, sum string) error {
		return d.books.archive.NoteDelivery(ctx, &archive.Delivered{Target: t.Name, Folder: noted, File: file, SHA256: sum, At: d.books.now()})
	}
	if t.Name != "" && !there {
		var lost error
		for n := 2; ; n++ {
			err = t.Deliver(ctx, folder, s.files, func(f deliver.File, _ bool) {
				lost = errors.Join(lost, note(f.Name, f.SHA256))
				d.books.step("delivered " + f.Name)
			})
			// An attempt that was cut off has begun a day's set, whose orders have changed since.
			if s.about.Kind != delivery.ReportScheduled || !errors.Is(err, deliver.ErrDiffers) || n > mostDailySets {
				break
			}
			folder = fmt.Sprintf("%s-%d", noted, n)
		}
		if err := errors.Join(err, lost); err != nil {
			return err
		}
	}
	if t.Name != "" {
		s.about.ID += "@" + t.Name
		for _, f := range s.files {
			s.about.Files = append(s.about.Files, delivery.DeliveredFile{Target: t.Name, Name: folder + "/" + f.Name, SHA256: f.SHA256})
		}
	}
	if err := d.announce(ctx, &s.about); err != nil && delivery.CodeOf(err) != delivery.CodeWebhookNotConfigured {
		return fmt.Errorf("announce %s: %w", s.about.ID, err)
	}
	return note(announced, "")
}

func (e *Entry) folder() string {
	kind := map[string]string{KindClose: "closing", KindCorrection: "correction"}[e.Kind]
	return fmt.Sprintf("%s-%s-%06d", e.Month, kind, e.Sequence)
}

// setOf are the files of an entry. The manifest is the entry itself: its SHA-256 is the seal.
func (b *Books) setOf(e *Entry) (*set, error) {
	s := &set{about: delivery.AvailableReport{ID: e.folder(), Kind: delivery.ReportCorrection, Month: e.Month.String(),
		Seal: delivery.Seal{Sequence: e.Sequence, SHA256: e.Seal}, At: e.At}}
	if e.Kind == KindClose {
		s.about.Kind = delivery.ReportClosing
		for _, line := range e.Control {
			if r, is := reports.Find(line.Line); is {
				s.files = append(s.files, b.reportFile(r, params(e.Month), line.SHA256))
			}
		}
	} else {
		content, err := e.correctionsCSV()
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, fileOf(correctionsFile, content))
	}
	s.files = append(s.files, fileOf(ManifestFile, []byte(e.JSON)))
	return s, nil
}

func (b *Books) reportFile(r *reports.Report, p reports.Params, sum string) deliver.File {
	return deliver.File{Name: r.Name + ".csv", SHA256: sum, Write: func(ctx context.Context, to io.Writer) error {
		_, err := r.Run(ctx, b.archive, p, reports.CSVPlain.Sink(to), nil)
		return err
	}}
}

func fileOf(name string, content []byte) deliver.File {
	sum := sha256.Sum256(content)
	return deliver.File{Name: name, SHA256: hex.EncodeToString(sum[:]), Write: func(_ context.Context, to io.Writer) error {
		_, err := to.Write(content)
		return err
	}}
}

// correctionsCSV is made of the manifest alone, so it is the same whenever it is made.
func (e *Entry) correctionsCSV() ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	_ = w.Write([]string{"orderId", "accountId", "correctionOf", "bookedOn", "cause", "from", "to", "expected", "possiblyCollected", "reportedAt"})
	for _, c := range e.Corrections {
		reported := ""
		if c.ReportedAt != 0 {
			reported = string(delivery.AppendTime(nil, time.UnixMilli(c.ReportedAt)))
		}
		_ = w.Write([]string{c.Order.String(), c.Account.String(), c.Month.String(), e.Posted, c.Cause, c.From, c.To, money(c.Expected), money(c.PossiblyCollected), reported})
	}
	w.Flush()
	return out.Bytes(), w.Error()
}

// due is the day whose reports are delivered now: yesterday, from the time of the settings on.
func (d *Deliverer) due() (day time.Time, due bool) {
	clock, err := time.Parse("15:04", d.daily)
	today := d.books.today()
	return today.AddDate(0, 0, -1), err == nil && !d.books.now().Before(today.Add(time.Duration(clock.Hour())*time.Hour+time.Duration(clock.Minute())*time.Minute))
}

func dayFolder(day time.Time) string { return day.Format(time.DateOnly) + "-daily" }

// daySet are a day's reports as they are now.
func (b *Books) daySet(ctx context.Context, day time.Time) (*set, error) {
	s := &set{about: delivery.AvailableReport{ID: dayFolder(day), Kind: delivery.ReportScheduled, At: b.now()}}
	p := reports.Params{From: reports.DayOf(day), To: reports.DayOf(day), Basis: reports.Booked}
	manifest := struct {
		Format int               `json:"format"`
		Day    string            `json:"day"`
		Files  map[string]string `json:"files"` // their SHA-256
	}{format, day.Format(time.DateOnly), map[string]string{}}
	for _, r := range reports.All()[:4] {
		sum := sha256.New()
		if _, err := r.Run(ctx, b.archive, p, reports.CSVPlain.Sink(sum), nil); err != nil {
			return nil, err
		}
		f := b.reportFile(r, p, hex.EncodeToString(sum.Sum(nil)))
		s.files, manifest.Files[f.Name] = append(s.files, f), f.SHA256
	}
	content, err := json.Marshal(manifest)
	s.files = append(s.files, fileOf(ManifestFile, content))
	return s, err
}

// CheckDelivered compares what targets have of each closing and correction with what was sealed.
func (b *Books) CheckDelivered(ctx context.Context, targets []*deliver.Target) (wrong []string, err error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	all, err := b.archive.Deliveries(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range slices.Backward(all) { // oldest first
		t := slices.IndexFunc(targets, func(t *deliver.Target) bool { return t.Name == one.Target })
		e := slices.IndexFunc(l.Entries, func(e Entry) bool { return e.folder() == one.Folder })
		if one.File != ManifestFile || t < 0 || e < 0 {
			continue
		}
		s, err := b.setOf(&l.Entries[e])
		if err != nil {
			return wrong, err
		}
		found, err := targets[t].Check(ctx, s.about.ID, s.files)
		if wrong = append(wrong, found...); err != nil {
			return wrong, err
		}
	}
	return wrong, nil
}
