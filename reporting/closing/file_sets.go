package closing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/deliver"
	"vendorapi/reporting/reports"
)

// manifestFile is the last of each set: once it is there, the set is whole.
const manifestFile = "manifest.json"

const (
	correctionsFile = "corrections.csv"

	// betweenFile has the manifests since the closing or correction before, one in each line.
	betweenFile = "log.jsonl"
)

// fileSet is the files of a closing, a correction or a day, which are delivered together.
type fileSet struct {
	files  []deliver.File           // the manifest last
	report delivery.AvailableReport // without what depends on where and when it is delivered: ID, files and time
}

// reportAt is what is announced of the set once it is in a folder of a target. An empty target has no files.
func (s *fileSet) reportAt(target, folder string) *delivery.AvailableReport {
	report := s.report
	report.ID = reportID(target, folder)
	if target == "" {
		return &report
	}

	for _, f := range s.files {
		report.Files = append(report.Files, delivery.DeliveredFile{Target: target, Name: path.Join(folder, f.Name), SHA256: f.SHA256})
	}

	return &report
}

// reportID names a set in a folder of a target, which may be empty, for finance.
func reportID(target, folder string) string {
	if target == "" {
		return folder
	}
	return folder + "@" + target
}

// hasFilesOf reports whether the set has the files, by names and digests, that a report lists.
func (s *fileSet) hasFilesOf(report *delivery.AvailableReport) bool {
	if len(s.files) != len(report.Files) {
		return false
	}

	for i, f := range s.files {
		if path.Base(report.Files[i].Name) != f.Name || report.Files[i].SHA256 != f.SHA256 {
			return false
		}
	}
	return true
}

// filesOf are the files that a report lists, for a comparison with what is at the target.
func filesOf(report *delivery.AvailableReport) []deliver.File {
	files := make([]deliver.File, len(report.Files))
	for i, f := range report.Files {
		files[i] = deliver.File{Name: path.Base(f.Name), SHA256: f.SHA256}
	}
	return files
}

// manifestOf is the SHA-256 of the manifest that a report lists; empty: it has no files.
func manifestOf(report *delivery.AvailableReport) string {
	if len(report.Files) == 0 {
		return ""
	}
	return report.Files[len(report.Files)-1].SHA256
}

// formatReport writes a report as it is announced, and as it is recorded until then.
func formatReport(report *delivery.AvailableReport) string {
	return string(delivery.AppendReportAvailable(nil, report))
}

// parseReport reads what formatReport has written. Formatted again it is the same text. It returns nil for
// an empty text.
func parseReport(text string) (*delivery.AvailableReport, error) {
	if text == "" {
		return nil, nil
	}

	report := &delivery.AvailableReport{}
	err := json.Unmarshal([]byte(text), report)
	if err != nil {
		return nil, fmt.Errorf("a report as it was recorded cannot be read: %w", err)
	}
	return report, nil
}

// deliveredEntries returns the entries whose files are delivered: closings and corrections.
func (l *Log) deliveredEntries() []*Entry {
	var found []*Entry
	for i := range l.Entries {
		e := &l.Entries[i]
		if e.Kind == KindClose || e.Kind == KindCorrection {
			found = append(found, e)
		}
	}
	return found
}

// batches returns the batches of all closings and corrections.
func (l *Log) batches() []uuid.UUID {
	var all []uuid.UUID
	for _, e := range l.deliveredEntries() {
		all = append(all, e.Batch)
	}
	return all
}

// folder is the name of an entry's set, and of its folder at each target.
func (e *Entry) folder() string {
	kind := "closing"
	if e.Kind == KindCorrection {
		kind = "correction"
	}
	return fmt.Sprintf("%s-%s-%06d", e.Month, kind, e.Sequence)
}

// entrySet is the set of a closing or a correction. Its manifest is the entry itself: the manifest's SHA-256
// is the seal.
func (b *Books) entrySet(e *Entry) (*fileSet, error) {
	s := &fileSet{report: delivery.AvailableReport{
		Kind:  delivery.ReportCorrection,
		Month: e.Month.String(),
		Seal:  delivery.Seal{Sequence: e.Sequence, SHA256: e.Seal},
	}}

	if e.Kind == KindClose {
		s.report.Kind = delivery.ReportClosing
		for _, line := range e.Control {
			report, isReport := reports.Find(line.Line)
			if isReport {
				s.files = append(s.files, b.reportFile(report, params(e.Month), line.SHA256))
			}
		}
	} else {
		content, err := e.correctionsCSV()
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, fileOf(correctionsFile, content))
	}

	if len(e.between) > 0 {
		s.files = append(s.files, fileOf(betweenFile, []byte(strings.Join(e.between, "\n")+"\n")))
	}

	s.files = append(s.files, fileOf(manifestFile, []byte(e.JSON)))

	return s, nil
}

// correctionsCSV is made of the manifest alone, so it is the same whenever it is made.
func (e *Entry) correctionsCSV() ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	_ = w.Write([]string{"orderId", "accountId", "correctionOf", "bookedOn", "cause", "from", "to", "expected", "possiblyCollected", "reportedAt"})
	for _, c := range e.Corrections {
		reportedAt := ""
		if c.ReportedAt != 0 {
			reportedAt = delivery.FormatTime(time.UnixMilli(c.ReportedAt))
		}
		_ = w.Write([]string{
			c.Order.String(), c.Account.String(), c.Month.String(), e.Posted, c.Cause, c.From, c.To,
			money(c.Expected), money(c.PossiblyCollected), reportedAt,
		})
	}

	w.Flush()

	return out.Bytes(), w.Error()
}

const dayState = "the reports of the day as they were when they were delivered; orders that changed later are in later reports"

// daySet is the set of a day: its reports as they are now.
func (b *Books) daySet(ctx context.Context, day time.Time) (*fileSet, error) {
	s := &fileSet{report: delivery.AvailableReport{Kind: delivery.ReportScheduled}}
	sums := map[string]string{} // by file
	p := reports.Params{From: reports.DayOf(day), To: reports.DayOf(day), Basis: reports.Booked}

	for _, report := range b.reports.daily {
		sum := sha256.New()
		if _, err := report.Run(ctx, b.archive, p, reports.CSVPlain.Sink(sum), nil); err != nil {
			return nil, err
		}
		f := b.reportFile(report, p, hex.EncodeToString(sum.Sum(nil)))
		s.files = append(s.files, f)
		sums[f.Name] = f.SHA256
	}

	// The manifest has no time: as long as the reports do not change, it is the same whenever and by whomever it
	// is made.
	content, err := json.Marshal(struct {
		Format int               `json:"format"`
		Day    string            `json:"day"`
		State  string            `json:"state"`
		Files  map[string]string `json:"files"` // SHA-256 by name
	}{Format: format, Day: day.Format(time.DateOnly), State: dayState, Files: sums})
	if err != nil {
		return nil, err
	}

	s.files = append(s.files, fileOf(manifestFile, content))

	return s, nil
}

func (b *Books) reportFile(r *reports.Report, p reports.Params, sum string) deliver.File {
	write := func(ctx context.Context, to io.Writer) error {
		_, err := r.Run(ctx, b.archive, p, reports.CSVPlain.Sink(to), nil)
		return err
	}
	return deliver.File{Name: r.Name + ".csv", SHA256: sum, Write: write}
}

func fileOf(name string, content []byte) deliver.File {
	sum := sha256.Sum256(content)
	write := func(_ context.Context, to io.Writer) error {
		_, err := to.Write(content)
		return err
	}
	return deliver.File{Name: name, SHA256: hex.EncodeToString(sum[:]), Write: write}
}
