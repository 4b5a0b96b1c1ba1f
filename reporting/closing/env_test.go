package closing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/reports"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// env is Redis, ClickHouse and the books. Its orders lie in ClickHouse alone unless they are made otherwise.
type env struct {
	*archiveenv.System
	books   *Books
	reports calculations
	clock   time.Time
	made    int
}

// newEnv returns an environment whose books have the order ledger as their only report.
func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{System: archiveenv.New(t), reports: oneReport}
	e.books = e.newBooks()
	return e
}

// newEnvWithReports returns one whose books have every report, which takes ClickHouse a second for each closing and
// each verification.
func newEnvWithReports(t *testing.T) *env {
	t.Helper()
	e := &env{System: archiveenv.New(t), reports: everyReport}
	e.books = e.newBooks()
	return e
}

// oneReport has the order ledger. Every month balances, and has no exceptions.
var oneReport = calculations{
	balance: func(context.Context, *archive.Archive, reports.Params) (bool, int64, error) {
		return true, 0, nil
	},
	closeLines: func(ctx context.Context, a *archive.Archive, month reports.Params) ([]reports.StoredLine, error) {
		sum := sha256.New()
		summary, err := orderLedger.Run(ctx, a, month, reports.CSVPlain.Sink(sum), nil)
		return []reports.StoredLine{{
			Line:    orderLedger.Name,
			SHA256:  hex.EncodeToString(sum.Sum(nil)),
			Figures: map[string]int64{"rows": summary.Rows},
		}}, err
	},
	daily: []*reports.Report{orderLedger},
}

var orderLedger = reports.All()[0]

func (e *env) newBooks() *Books {
	b := New(e.Ledger, e.OpenArchive(), archiveenv.BooksKeys, slog.New(slog.DiscardHandler))
	b.now = func() time.Time { return e.clock }
	b.reports = e.reports
	return b
}

func month(text string) Month {
	m, err := ParseMonth(text)
	if err != nil {
		panic(err)
	}
	return m
}

// dayText is the local day of a time; empty for none.
func dayText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(time.FixedZone("", 3*3600)).Format(time.DateOnly)
}

// order is an order of a day and hour, to be stored.
func (e *env) order(at time.Time, status delivery.Status, kurus int64) archive.Order {
	e.made++
	external := fmt.Sprintf("C-%05d", e.made)
	o := archive.Order{Account: e.Vendor.Account, Version: 1<<32 | 7, ExternalOrderID: external, ExternalStoreID: "moda", StoreName: "Moda",
		TaxNumber: "0123456789", Fleet: e.Fleet.ID, FleetName: e.Fleet.Name, Status: status, CreatedAt: at, ReadyAt: at, UpdatedAt: at,
		PaymentType: delivery.Cash, OrderAmount: delivery.Money{Minor: kurus, Set: true}, Collection: delivery.Money{Minor: kurus, Set: true}}
	o.ID = delivery.MakeOrderID(e.made%testenv.Partitions, delivery.DayOf(at), delivery.OrderDigest(o.Account, external))
	if status.Terminal() {
		o.EndedAt = at.Add(30 * time.Minute)
	}

	switch status {
	case delivery.Delivered:
		o.PickedUpAt, o.DeliveredAt = at, o.EndedAt
	case delivery.Failed:
		o.Failure = delivery.TimedOut
	}

	return o
}

func (e *env) store(orders ...archive.Order) {
	e.T.Helper()
	testenv.Must(e.T, e.Archive.InsertAgain(e.T.Context(), &archive.Batch{Orders: orders}))
}

// decide lets somebody decide of a month.
func decide(ctx context.Context, b *Books, kind string, m Month, by, note string) error {
	_, err := b.Decide(ctx, Decision{Kind: kind, Month: m, By: by, Note: note}, func(string) {})
	return err
}

// correct books what is named and what explains itself, and returns what is booked and what is left.
func correct(ctx context.Context, b *Books, by, note string, named ...delivery.OrderID) ([]Correction, []Unexplained, error) {
	var byName Outcome
	if len(named) > 0 {
		var err error
		byName, err = b.Book(ctx, by, note, named)
		if err != nil {
			return nil, nil, err
		}
	}

	result, err := b.Correct(ctx, func(string) {})

	return append(byName.Booked, result.Booked...), result.Waiting, err
}

// reportLate stores a late delivery, which a courier has reported.
func (e *env) reportLate(o *archive.Order, at time.Time) {
	e.T.Helper()
	e.storeLate(o, at)
	e.refuseLate(o, at)
}

// refuseLate is the report of a courier, which Redis keeps.
func (e *env) refuseLate(o *archive.Order, at time.Time) {
	e.T.Helper()
	e.Step(o.ID.Partition(), func(step *partitions.Step) {
		update := &delivery.Update{Order: o.ID, Status: delivery.Delivered, At: at}
		step.Refuse(update, o.Status, "late_delivery", true)
	})
}

// storeLate stores a late delivery of which Redis knows nothing.
func (e *env) storeLate(o *archive.Order, at time.Time) {
	e.T.Helper()
	late := archive.LateDelivery{Account: o.Account, CreatedAt: o.CreatedAt, Order: o.ID, ReportedAt: at}
	testenv.Must(e.T, e.Archive.InsertAgain(e.T.Context(), &archive.Batch{Late: []archive.LateDelivery{late}}))
}

// close holds and closes a month.
func (e *env) close(m Month) {
	e.T.Helper()
	e.clock = m.Next().Add(Grace + time.Hour)
	err := decide(e.T.Context(), e.books, KindHold, m, "ayse", "seen")
	testenv.Must(e.T, err)
	err = decide(e.T.Context(), e.books, KindClose, m, "ece", "")
	testenv.Must(e.T, err)
}

// csv is a report of a month.
func (e *env) csv(name string, m Month, basis reports.Basis, asOf string) string {
	e.T.Helper()
	r, _ := reports.Find(name)
	p := params(m)
	p.Basis = basis
	if asOf != "" {
		day, err := reports.ParseDay(asOf)
		testenv.Must(e.T, err)
		p.AsOf = day
	}

	var out bytes.Buffer
	_, err := r.Run(e.T.Context(), e.Archive, p, reports.CSVPlain.Sink(&out), nil)
	testenv.Must(e.T, err)

	return out.String()
}

func (e *env) log() *Log {
	e.T.Helper()
	l, err := e.books.Read(e.T.Context())
	testenv.Must(e.T, err)
	return l
}

func (e *env) verify() *Verified {
	e.T.Helper()
	v, err := e.books.Verify(e.T.Context(), func(string) {})
	testenv.Must(e.T, err)
	return v
}

func wantContains(t *testing.T, what, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("%s has no %q:\n%s", what, w, text)
		}
	}
}

// verifyInTurn does what a night does with the closed month whose turn it is.
func (e *env) verifyInTurn() (Month, []string) {
	e.T.Helper()
	months, err := e.books.MonthsToVerify(e.T.Context())
	testenv.Must(e.T, err)
	if len(months) == 0 {
		return Month{}, nil
	}

	inTurn := months[0]
	findings, err := e.books.VerifyMonth(e.T.Context(), inTurn, nil)
	testenv.Must(e.T, err)

	return inTurn, findings
}
