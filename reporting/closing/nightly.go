package closing

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/service"
	"vendorapi/reporting/deliver"
)

// nightly is what is done with closed months after the comparison with Redis: what has changed since the
// last night is booked, or counted for a person; one month, in turn, is verified and compared as a whole.
type nightly struct {
	books   *Books
	targets []*deliver.Target // where closings and corrections are delivered

	corrections prometheus.Counter
}

// NewNightly returns the function that does one night's work. Errors are logged, and the next night tries again.
func NewNightly(b *Books, targets []*deliver.Target, reg prometheus.Registerer) func(context.Context) {
	m := service.NewMetrics(reg, nil)
	n := &nightly{
		books:       b,
		targets:     targets,
		corrections: m.Counter("reporting_corrections_total", "Corrections of closed months that were booked."),
	}
	return n.run
}

func (n *nightly) run(ctx context.Context) {
	changed, changedErr := n.books.CorrectChanged(ctx)
	n.note(ctx, changed, changedErr)

	findingsErr := n.books.VerifyFindings(ctx, n.targets)
	if findingsErr != nil && ctx.Err() == nil {
		n.books.log.Error("closed months with findings could not be verified again", "error", findingsErr)
	}
	month, verifyErr := n.verify(ctx)
	var monthErr error
	if !month.IsZero() {
		var inMonth Outcome
		inMonth, monthErr = n.books.CorrectMonth(ctx, month)
		n.note(ctx, inMonth, monthErr)
	}

	hasFailed := errors.Join(changedErr, findingsErr, verifyErr, monthErr) != nil
	if hasFailed {
		return
	}
	err := n.books.updateReview(ctx, func(r *review) { r.Completed = n.books.now() })
	if err != nil && ctx.Err() == nil {
		n.books.log.Error("it cannot be noted that closed months were compared", "error", err)
	}
}

// note logs what was booked and what was not.
func (n *nightly) note(ctx context.Context, result Outcome, err error) {
	log := n.books.log
	n.corrections.Add(float64(len(result.Booked)))
	for i := range result.Booked {
		log.Info("a correction of a closed month was booked", "correction", result.Booked[i].String())
	}
	for i := range result.Waiting {
		log.Error("an order of a closed month has changed; `reporting month correct --order` books it", "order", result.Waiting[i].String())
	}
	if err != nil && ctx.Err() == nil {
		log.Error("closed months could not be compared", "error", err)
	}
}

// verify verifies the closed month whose turn it is, logs what is not any more what was sealed, and returns
// the month; zero: none is closed, or it is not known which.
func (n *nightly) verify(ctx context.Context) (Month, error) {
	log := n.books.log
	month, findings, err := n.books.VerifyInTurn(ctx, n.targets)
	if err != nil && ctx.Err() == nil {
		log.Error("a closed month could not be verified", "month", month.String(), "error", err)
	}
	for _, finding := range findings {
		log.Error("a closed month is not any more what was sealed (`reporting month verify`)", "month", month.String(), "finding", finding)
	}
	return month, err
}
