package closing

import (
	"context"
	"errors"
	"slices"

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
	failed := n.findUnknownSets(ctx)
	mayBook := failed == nil
	if mayBook {
		changed, err := n.books.CorrectChanged(ctx)
		n.note(ctx, changed, err)
		failed = err
	}

	months, err := n.books.MonthsToVerify(ctx)
	failed = errors.Join(failed, err)
	if err != nil && ctx.Err() == nil {
		n.books.log.Error("closed months could not be verified", "error", err)
	}

	for _, m := range months {
		failed = errors.Join(failed, n.verify(ctx, m))
		if mayBook {
			inMonth, err := n.books.CorrectMonth(ctx, m)
			n.note(ctx, inMonth, err)
			failed = errors.Join(failed, err)
		}
	}

	if failed != nil {
		return
	}

	err = n.books.updateReview(ctx, func(r *review) { r.Completed = n.books.now() })
	if err != nil && ctx.Err() == nil {
		n.books.log.Error("it cannot be noted that closed months were compared", "error", err)
	}
}

// findUnknownSets looks for sets of which the log has no entry, and notes how many there are. It fails when folders at
// targets are among them, or a target does not answer: both databases may have been restored to an older state, and
// what is booked then would contradict what was delivered.
func (n *nightly) findUnknownSets(ctx context.Context) error {
	log := n.books.log
	comparing, cancel := context.WithTimeout(ctx, maxComparing)
	defer cancel()

	isCompared := func(*Entry) bool { return false }
	found, failed := n.books.checkDelivered(comparing, n.targets, isCompared)
	if failed != nil && ctx.Err() == nil {
		log.Error("what targets have could not be compared with the log of the books", "error", failed)
	}

	for _, finding := range slices.Concat(found.unknownRows, found.unknownFolders) {
		log.Error("a set of files is not in the log of the books", "finding", finding)
	}

	err := n.books.updateReview(ctx, func(r *review) {
		unknown := len(found.unknownRows) + len(found.unknownFolders)
		if failed != nil {
			unknown = max(unknown, r.UnknownSets)
		}
		r.UnknownSets = unknown
	})

	if len(found.unknownFolders) > 0 {
		log.Error("nothing is booked without a person until the log has these folders, or they are removed")
		failed = errors.Join(failed, errors.New("folders at targets are not in the log"))
	}

	return errors.Join(failed, err)
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

// verify verifies a closed month, and logs what is not any more what was sealed.
func (n *nightly) verify(ctx context.Context, m Month) error {
	log := n.books.log
	findings, err := n.books.VerifyMonth(ctx, m, n.targets)
	if err != nil && ctx.Err() == nil {
		log.Error("a closed month could not be verified", "month", m.String(), "error", err)
	}

	for _, finding := range findings {
		log.Error("a closed month is not any more what was sealed (`reporting month verify`)", "month", m.String(), "finding", finding)
	}
	return err
}
