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
	// readsAtOnce is how many of the five queries run together: on few processors
	// more would only wait for each other, and take memory meanwhile.
	readsAtOnce = 3
)

type digest struct {
	report  *Report
	summary Summary
	sha256  string
}

// readControl is Report.read for control totals: the view's lines, each with the
// SHA-256 of what format csv-plain writes of its report for the same parameters.
//
// Between the queries an order of a day that is not over may change. Where a
// report's totals are not those of its line, all is read again; a line that still
// differs then says "changing" instead of "yes" or "no".
func readControl(ctx context.Context, a *archive.Archive, p *Params, take func([]Cell) error) error {
	for attempt := 1; ; attempt++ {
		lines, digests, err := readTogether(ctx, a, p)
		if err != nil {
			return err
		}
		steady := true
		for _, d := range digests {
			i := slices.IndexFunc(lines, func(line []Cell) bool { return line[controlColumn("line")].Text == d.report.Name })
			if i < 0 {
				return fmt.Errorf("control totals have no line %s", d.report.Name)
			}
			lines[i][controlColumn("sha256")].Text = d.sha256
			if !d.agrees(lines[i]) {
				steady = false
				lines[i][controlColumn("ties")].Text = "changing"
			}
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
			summary, err := r.Run(ctx, a, *p, NewSink(CSVPlain, hash), nil)
			digests[i] = digest{report: r, summary: summary, sha256: hex.EncodeToString(hash.Sum(nil))}
			return err
		})
	}
	err = group.Wait()
	return lines, digests, err
}

// agreeing are the columns of a line that a report's totals must equal.
var agreeing = map[*Report][]string{
	collections: {"delivered", "cashExpected", "cardExpected", "prepaidAmount", "noPaymentTypeAmount"},
	statement: {"created", "delivered", "failed", "cancelled", "orderAmountDelivered", "cashExpected", "cardExpected",
		"prepaidAmount", "noPaymentTypeAmount"},
}

func (d *digest) agrees(line []Cell) bool {
	number := func(key string) int64 { return line[controlColumn(key)].Number }
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

func controlColumn(key string) int { return control.Column(key) }
