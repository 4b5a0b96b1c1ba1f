package reports

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"vendorapi/reporting/archive"
)

const (
	controlAttempts = 3
	// readsAtOnce is how many of the five queries run together; more would take memory.
	readsAtOnce = 3
)

// digest is what came of reading a report.
type digest struct {
	report  *Report
	summary Summary
	sha256  string
}

// readControl is Report.read for control totals: the view's lines, each with the SHA-256
// of its report as csv-plain.
//
// Orders may change between the queries. Where a report's totals are not those of its
// line, all is read again; a line that still differs then says "changing".
func readControl(ctx context.Context, a *archive.Archive, p *Params, take func([]Cell) error) error {
	for attempt := 1; ; attempt++ {
		lines, digests, err := readTogether(ctx, a, p)
		if err != nil {
			return err
		}
		steady := true
		for i := range digests {
			same, err := digests[i].note(lines)
			if err != nil {
				return err
			}
			steady = steady && same
		}
		if !steady && attempt < controlAttempts {
			continue
		}
		for _, line := range lines {
			if err := take(line); err != nil {
				return err
			}
		}
		return nil
	}
}

// readTogether reads the view and digests the other reports.
func readTogether(ctx context.Context, a *archive.Archive, p *Params) (lines [][]Cell, digests []digest, err error) {
	others := []*Report{ledger, collections, statement, exceptions}
	digests = make([]digest, len(others))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsAtOnce)
	group.Go(func() error {
		return control.read(ctx, a, p, func(cells []Cell) error {
			lines = append(lines, slices.Clone(cells))
			return nil
		})
	})
	for i, r := range others {
		group.Go(func() error {
			hash := sha256.New()
			s, err := r.Run(ctx, a, *p, NewSink(CSVPlain, hash), nil)
			digests[i] = digest{report: r, summary: s, sha256: hex.EncodeToString(hash.Sum(nil))}
			return err
		})
	}
	err = group.Wait()
	return lines, digests, err
}

// note writes the digest into its line and reports whether both saw the same orders.
func (d *digest) note(lines [][]Cell) (same bool, err error) {
	i := slices.IndexFunc(lines, func(line []Cell) bool { return line[control.Column("line")].Text == d.report.Name })
	if i < 0 {
		return false, fmt.Errorf("control totals have no line %s", d.report.Name)
	}
	lines[i][control.Column("sha256")].Text = d.sha256
	if same = d.agrees(lines[i]); !same {
		lines[i][control.Column("ties")].Text = "changing"
	}
	return same, nil
}

// agreeing are the columns of a line that a report's totals must equal.
var agreeing = map[*Report][]string{
	collections: {"delivered", "cashExpected", "cardExpected", "prepaidAmount", "noPaymentTypeAmount"},
	statement: {"created", "delivered", "failed", "cancelled", "orderAmountDelivered", "cashExpected", "cardExpected",
		"prepaidAmount", "noPaymentTypeAmount"},
}

// agrees compares the report's totals with the line's.
func (d *digest) agrees(line []Cell) bool {
	number := func(key string) int64 { return line[control.Column(key)].Number }
	if number("rows") != d.summary.Rows {
		return false
	}
	if d.report == ledger {
		return ledger.Total(d.summary, "expectedCollection") == number("cashExpected")+number("cardExpected")
	}
	return !slices.ContainsFunc(agreeing[d.report], func(key string) bool {
		total := key
		if d.report == collections && key == "delivered" {
			total = "deliveredCount"
		}
		return d.report.Total(d.summary, total) != number(key)
	})
}
