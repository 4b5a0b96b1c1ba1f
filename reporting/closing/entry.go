package closing

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/journal"
	"vendorapi/reporting/reports"
)

// The kinds of entries in the log of the books.
const (
	KindHold       = "hold"
	KindRelease    = "release"
	KindClose      = "close"
	KindCorrection = "correction"

	// KindDispute and KindSetAside are how two people remove rows that do not belong to the log.
	KindDispute  = "dispute"
	KindSetAside = "set-aside"
)

// format is the form of a manifest.
const format = 1

// Manifest says what was decided. Its JSON, as it was stored, is what is sealed and signed.
type Manifest struct {
	Format   int    `json:"format"` // 1
	Sequence int    `json:"sequence"`
	Previous string `json:"previous"` // the seal of the entry before; empty in the first one
	Kind     string `json:"kind"`

	// Month is the month that was held, released or closed; of a correction, the month in which it is
	// booked. Zero in a dispute.
	Month Month     `json:"month,omitzero"`
	At    time.Time `json:"at"`
	By    string    `json:"by"` // a user of the panel; "reporting" when the nightly run, or the command without --order, booked a correction
	Note  string    `json:"note,omitempty"`

	// Checklist is that of a hold, as it was.
	Checklist []Check `json:"checklist,omitempty"`

	// Months are those that are held, in their order: Month alone, or, in the first hold, every month
	// since the oldest order. They are closed one by one.
	Months []HeldMonth `json:"months,omitempty"`

	// Batch has the rows of a closing or a correction, and Digest is theirs. Days are the digests of a
	// closing's days, of which Digest is the sum.
	Batch  uuid.UUID           `json:"batch,omitzero"`
	Digest archive.Digest      `json:"digest,omitzero"`
	Days   []archive.DayDigest `json:"days,omitempty"`

	// Control are a closed month's control totals, with the digests of its reports.
	Control []reports.StoredLine `json:"control,omitempty"`

	// Posted is the day on which Corrections are booked.
	Posted      string       `json:"posted,omitempty"`
	Corrections []Correction `json:"corrections,omitempty"`

	// Rows are those that a dispute is about, and that were set aside.
	Rows DisputedRows `json:"rows,omitzero"`
}

// HeldMonth is a month in a hold.
type HeldMonth struct {
	Month Month `json:"month"`

	// Digest is that of the rows that closing the month will freeze.
	Digest archive.Digest `json:"digest"`

	// Uncompared are the days that did not count as compared with Redis.
	Uncompared UncomparedDays `json:"uncompared,omitzero"`
}

// HeldDigest returns the digest that a hold notes of a month; it is zero if the hold does not cover the month.
func (m *Manifest) HeldDigest(month Month) archive.Digest {
	for i := range m.Months {
		if m.Months[i].Month == month {
			return m.Months[i].Digest
		}
	}
	return archive.Digest{}
}

// Correction is an order of a closed month in a manifest. Amounts are in kuruş.
type Correction struct {
	Order    delivery.OrderID   `json:"order"`
	Account  delivery.AccountID `json:"account"`
	Month    Month              `json:"month"` // the closed month
	Cause    string             `json:"cause"`
	From     string             `json:"from,omitempty"` // the order's status as it was booked; empty: the order was not there
	To       string             `json:"to,omitempty"`   // its status now; empty: the order is gone
	Expected int64              `json:"expected"`       // what the correction adds to the expected collections
	// ReportedAt is when a late delivery was reported, in milliseconds since 1970.
	ReportedAt int64 `json:"reportedAt,omitempty"`
	// PossiblyCollected is the amount that a courier may have collected on a late delivery. It is in no sum.
	PossiblyCollected int64 `json:"possiblyCollected,omitempty"`
}

// Entry is a manifest as it stands in the log.
type Entry struct {
	Manifest
	Seal string // SHA-256 of JSON
	JSON string // the manifest as it was stored

	signed journal.Entry

	// between are the manifests since the closing or correction before, such as a hold. They are delivered
	// with this entry, so that what was delivered is the whole log.
	between []string
}

// parse reads a signed entry.
func parse(signed journal.Entry) (Entry, error) {
	e := Entry{Seal: signed.Seal(), JSON: signed.Text, signed: signed}
	if err := json.Unmarshal([]byte(signed.Text), &e.Manifest); err != nil {
		return e, fmt.Errorf("entry with the seal %.12s: %w", e.Seal, err)
	}
	if e.Format != format {
		return e, fmt.Errorf("entry %d has the format %d, this program knows %d", e.Sequence, e.Format, format)
	}
	return e, nil
}
