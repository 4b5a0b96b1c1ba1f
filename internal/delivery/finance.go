package delivery

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// FinanceAccount owns the webhook endpoint of finance's own system. It has no record: no list of accounts
// has it, nobody logs in as it, and it has no orders. No vendor's id equals it, they are of version 4.
var FinanceAccount = AccountID{0: 0xf1, 6: 0x80, 8: 0x80, 15: 1}

// FinanceName is how FinanceAccount is shown.
const FinanceName = "Finance"

// ReportKind is why files of reports were delivered.
type ReportKind string

// The kinds.
const (
	ReportClosing    ReportKind = "closing"    // a month was closed
	ReportCorrection ReportKind = "correction" // of a month that is closed
	ReportScheduled  ReportKind = "scheduled"
)

// ParseReportKind reads a kind, case-sensitively.
func ParseReportKind(name string) (ReportKind, error) {
	kind := ReportKind(name)
	if !slices.Contains([]ReportKind{ReportClosing, ReportCorrection, ReportScheduled}, kind) {
		return "", fmt.Errorf("%q is not a kind of report", name)
	}
	return kind, nil
}

// AvailableReport says that files were delivered to finance (report.available).
type AvailableReport struct {
	ID    string // names what became available, 1 to 100 characters: one event for each
	Kind  ReportKind
	Month string // as 2026-10; only a scheduled report may have none
	Seal  Seal
	Files []DeliveredFile
	At    time.Time
}

// Seal is the entry of the chain of seals that has the files; none without a Sequence.
type Seal struct {
	Sequence int
	SHA256   string // 64 lower-case hexadecimal digits
}

// DeliveredFile is a file as it was delivered.
type DeliveredFile struct {
	Target string // the name of where it was put
	Name   string
	SHA256 string // as a Seal's
}

// AppendReportAvailable appends the data of report.available, which is also the body of the request
// of the admin API that announces it.
func AppendReportAvailable(dst []byte, r *AvailableReport) []byte {
	dst = AppendString(append(dst, `{"id":`...), r.ID)
	dst = appendText(dst, "kind", string(r.Kind))
	if r.Month != "" {
		dst = appendText(dst, "month", r.Month)
	}

	if r.Seal.Sequence != 0 {
		dst = strconv.AppendInt(append(dst, `,"seal":{"sequence":`...), int64(r.Seal.Sequence), 10)
		dst = append(appendText(dst, "sha256", r.Seal.SHA256), '}')
	}

	dst = append(dst, `,"files":[`...)
	for i, f := range r.Files {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(append(dst, `{"target":`...), f.Target)
		dst = appendText(dst, "name", f.Name)
		dst = append(appendText(dst, "sha256", f.SHA256), '}')
	}

	return append(appendTimeField(append(dst, ']'), "at", r.At), '}')
}
