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

// Control totals are the view's lines, each with the SHA-256 of the report that
// it is about: of the bytes that format csv-plain writes for the same
// parameters, so that sha256sum can verify a file.
//
// The view and the reports are several queries, between which an order of a day
// that is not over may change. So the totals of the reports that were digested
// must be those of the lines; where they are not, all is read again, and a line
// that will not hold still says "changing" instead of "yes" or "no".

// controlAttempts is how often all is read at most.
const controlAttempts = 3

// The column ties of a line.
const tiesChanging = "changing"

// digest is what came of reading a report.
type digest struct {
	report  *Report
	summary Summary
	sha256  string
}

// readControl is Report.read for control totals.
func readControl(ctx context.Context, a *archive.Archive, p *Params, take func([]Cell) error) error {
	lines, err := controlLines(ctx, a, p)
	if err != nil {
		return err
	}
	for _, line := range lines {
		if err := take(line); err != nil {
			return err
		}
	}
	return nil
}

// readsAtOnce is how many of the five queries run together: on few processors
// more would only wait for each other, and take memory meanwhile.
const readsAtOnce = 3

func controlLines(ctx context.Context, a *archive.Archive, p *Params) ([][]Cell, error) {
	for attempt := 1; ; attempt++ {
		lines, digests, err := readTogether(ctx, a, p)
		if err != nil {
			return nil, err
		}
		steady := true
		for i := range digests {
			same, err := digests[i].note(lines)
			if err != nil {
				return nil, err
			}
			steady = steady && same
		}
		if steady || attempt == controlAttempts {
			return lines, nil
		}
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
		group.Go(func() (err error) {
			digests[i], err = digestOf(ctx, a, r, *p)
			return err
		})
	}
	err = group.Wait()
	return lines, digests, err
}

func digestOf(ctx context.Context, a *archive.Archive, r *Report, p Params) (digest, error) {
	hash := sha256.New()
	s, err := r.Run(ctx, a, p, NewSink(CSVPlain, hash), nil)
	if err != nil {
		return digest{}, err
	}
	return digest{report: r, summary: s, sha256: hex.EncodeToString(hash.Sum(nil))}, nil
}

// note writes the digest into its line and tells whether both have seen the
// same orders.
func (d *digest) note(lines [][]Cell) (same bool, err error) {
	for _, line := range lines {
		if line[controlColumn("line")].Text != d.report.Name {
			continue
		}
		line[controlColumn("sha256")].Text = d.sha256
		if same = d.agrees(line); !same {
			line[controlColumn("ties")].Text = tiesChanging
		}
		return same, nil
	}
	return false, fmt.Errorf("control totals have no line %s", d.report.Name)
}

// agrees compares the report's totals with the line's.
func (d *digest) agrees(line []Cell) bool {
	if line[controlColumn("rows")].Number != d.summary.Rows {
		return false
	}
	number := func(key string) int64 { return line[controlColumn(key)].Number }
	total := func(key string) int64 { return d.report.Total(d.summary, key) }
	switch d.report {
	case ledger:
		return total("expectedCollection") == number("cashExpected")+number("cardExpected")
	case collections:
		return total("deliveredCount") == number("delivered") && total("cashExpected") == number("cashExpected") &&
			total("cardExpected") == number("cardExpected") && total("prepaidAmount") == number("prepaidAmount") &&
			total("noPaymentTypeAmount") == number("noPaymentTypeAmount")
	case statement:
		for _, key := range []string{"created", "delivered", "failed", "cancelled", "orderAmountDelivered", "cashExpected", "cardExpected",
			"prepaidAmount", "noPaymentTypeAmount"} {
			if total(key) != number(key) {
				return false
			}
		}
	}
	return true
}

func controlColumn(key string) int { return control.Column(key) }
