package main

import (
	"errors"
	"regexp"
	"time"

	"vendorapi/gateway/strictjson"
	"vendorapi/internal/delivery"
)

// What a report may have.
const (
	maxReportID    = 100
	maxReportFiles = 500
	maxFileName    = 255
	maxExact       = 1<<53 - 1 // every reader of JSON has it exactly
)

type reportForm struct {
	*form `json:"-"`
	ID    delivery.Text `json:"id"`
	Kind  delivery.Text `json:"kind"`
	Month delivery.Text `json:"month"`
	Seal  struct {
		Sequence delivery.Number `json:"sequence"`
		SHA256   delivery.Text   `json:"sha256"`
	} `json:"seal"`
	Files strictjson.Raw `json:"files"`
	At    delivery.Text  `json:"at"`
}

type fileForm struct {
	Target delivery.Text `json:"target"`
	Name   delivery.Text `json:"name"`
	SHA256 delivery.Text `json:"sha256"`
}

// announceReport is POST /finance/reports/available: finance's own system gets one event for each id,
// however often it is announced.
func (g *gateway) announceReport(x *requestContext) error {
	f := new(reportForm)
	f.form = x.form(f)
	report := f.read()
	if err := f.err(); err != nil {
		return err
	}
	if err := g.audit(x, "report announced", nil, map[string]any{"id": report.ID, "kind": report.Kind, "month": report.Month}); err != nil {
		return err
	}

	return show(x, viewQueued)(x.ledger.Webhooks.AnnounceReport(g.work, report, x.now))
}

func (f *reportForm) read() *delivery.AvailableReport {
	r := &delivery.AvailableReport{
		ID:   f.Faults.ID("id", f.ID, true, maxReportID),
		Kind: delivery.Parse(&f.Faults, "kind", f.Kind, true, "must be closing, correction or scheduled", delivery.ParseReportKind),
	}

	r.Month = delivery.Parse(&f.Faults, "month", f.Month, r.Kind != delivery.ReportScheduled, "must be a month such as 2026-10", readMonth)
	if f.Seal.Sequence.Set || f.Seal.SHA256.Set {
		f.Require("seal.sequence", f.Seal.Sequence.Set)
		r.Seal = delivery.Seal{Sequence: f.Whole("seal.sequence", f.Seal.Sequence, 1, maxExact), SHA256: f.digest("seal.sha256", f.Seal.SHA256)}
	}

	r.Files = f.files()
	f.Require("at", f.At.Set)
	r.At = f.Time("at", f.At)

	return r
}

func (f *reportForm) files() (files []delivery.DeliveredFile) {
	if !f.Require("files", f.Files.Text != "") {
		return nil
	}

	if f.Files.Text[0] != '[' {
		f.Invalid("files", "must be an array")
		return nil
	}

	readElements(f.form, f.Files.Text, "files", maxReportFiles, "must have at most %d elements", func(path string, given fileForm) {
		files = append(files, delivery.DeliveredFile{
			Target: f.Line(path+".target", given.Target, true, 1, maxName), Name: f.Line(path+".name", given.Name, true, 1, maxFileName),
			SHA256: f.digest(path+".sha256", given.SHA256),
		})
	})

	return files
}

func (f *form) digest(path string, t delivery.Text) string {
	return delivery.Parse(&f.Faults, path, t, true, "must have 64 hexadecimal digits in lower case", readDigest)
}

var digests = regexp.MustCompile(`^[0-9a-f]{64}$`)

func readDigest(s string) (string, error) {
	if !digests.MatchString(s) {
		return "", errors.New("is no SHA-256")
	}
	return s, nil
}

func readMonth(s string) (string, error) {
	_, err := time.Parse("2006-01", s)
	return s, err
}
