package finance

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/reports"
)

const (
	tiesYes = "yes"
	tiesNo  = "no"
)

const (
	balanced = "balanced"
	differs  = "differs"
	changing = "changing" // orders of the period kept changing
)

type controlView struct {
	Result      string
	Differences []difference
	Digests     []digest
	// Reconcile is the command that compares the period with Redis.
	Reconcile string
	Empty     bool                    // the period has no orders
	Last      *archive.Reconciliation // when Redis and ClickHouse were compared; nil: never, or not known
}

type difference struct{ Line, Figure, Is, Compared, ShouldBe string }

type digest struct{ Title, SHA256, Address string }

func (p *Pages) readControl(ctx context.Context, v *view) error {
	lines, err := p.controlLines(ctx, v.Filters.params)
	if err != nil {
		return err
	}
	v.Stores = p.stores(ctx, v.Filters.params.Account)
	v.Read, v.Rows = true, int64(len(lines))
	v.Control = controlViewOf(lines, v.Filters)
	v.Control.Last = p.lastReconciled(ctx)
	v.Table = newTable(control, v.known, nil)
	v.Table.fill(lines)
	return nil
}

func (p *Pages) controlLines(ctx context.Context, params reports.Params) ([][]reports.Cell, error) {
	var c collected
	_, err := control.Run(ctx, p.archive, params, &c, nil)
	return c.rows, err
}

func resultOf(lines [][]reports.Cell) string {
	result := balanced
	for _, line := range lines {
		switch line[control.Column("ties")].Text {
		case "", tiesYes:
		case tiesNo:
			return differs
		default:
			result = changing
		}
	}
	return result
}

func controlViewOf(lines [][]reports.Cell, f filters) *controlView {
	c := &controlView{Result: resultOf(lines), Empty: true,
		Reconcile: "reporting reconcile --from " + f.params.From.String() + " --to " + f.params.To.String()}
	if !f.params.Account.IsZero() {
		c.Reconcile += " --account " + f.params.Account.String()
	}
	named := map[string][]reports.Cell{}
	for _, line := range lines {
		named[line[control.Column("line")].Text] = line
	}
	for _, line := range lines {
		name, rows := line[control.Column("line")].Text, line[control.Column("rows")]
		c.Empty = c.Empty && (!rows.Given || rows.Number == 0)
		if line[control.Column("ties")].Text == tiesNo {
			c.compare(name, named)
		}
		r, found := reports.Find(name)
		if sum := line[control.Column("sha256")].Text; found && sum != "" {
			c.Digests = append(c.Digests, digest{Title: r.Title, SHA256: sum,
				Address: address(downloadPath(r, reports.CSVPlain), f.Typed) + "&plain=1"}) // the period is always given
		}
	}
	return c
}

// compare compares what was created with the order ledger, everything else with the
// orders that ended in the period.
func (c *controlView) compare(name string, named map[string][]reports.Cell) {
	for i := range control.Columns {
		column, compared := &control.Columns[i], "ended-in-period"
		if column.Key == "created" {
			compared = "order-ledger"
		}
		is, other := named[name][i], named[compared]
		if column.Numeric() && column.Key != "rows" && is.Given && other != nil && other[i].Given && other[i].Number != is.Number {
			c.Differences = append(c.Differences, difference{Line: lineNames[name][0], Figure: column.Heading, Is: write(column.Kind, is.Number),
				Compared: lineNames[compared][0], ShouldBe: write(column.Kind, other[i].Number)})
		}
	}
}

type balanceView struct {
	Result            string // empty while it has not been asked for
	Remark            string // why there is no result
	Fragment, Address string // where the result comes from, and its page
	AtOnce            bool
	Last              *archive.Reconciliation
}

func balanceOf(f filters, atOnce bool) balanceView {
	return balanceView{Fragment: address(balancePath, f.Typed), Address: address(pathOf(control), f.Typed), AtOnce: atOnce}
}

// lastReconciled is what the pages show besides; without it they are shown as well.
func (p *Pages) lastReconciled(ctx context.Context) *archive.Reconciliation {
	last, err := p.archive.LastReconciliation(ctx)
	if err != nil {
		p.log.Warn("when Redis and ClickHouse were last compared cannot be read", "error", err)
	}
	return last
}

func (p *Pages) serveBalance(w http.ResponseWriter, r *http.Request) error {
	f, err := readFilters(r, p.directory(r.Context()), time.Now())
	if err != nil {
		return err
	}
	p.findNames(r.Context(), &directory{}, &f.params)
	t := balanceOf(f, false)
	err = p.within(r.Context(), p.digesting, digestLimit, func(ctx context.Context) error {
		lines, err := p.controlLines(ctx, f.params)
		t.Result, t.Last = resultOf(lines), p.lastReconciled(ctx)
		return err
	})
	var refused *delivery.Error
	switch {
	case errors.As(err, &refused): // it is not this one's turn, or takes too long
		t.Result, t.Remark = "", "Not read: "+refused.Message
	case errors.Is(err, delivery.ErrUnavailable):
		t.Result, t.Remark = "", "Not read: ClickHouse does not answer."
	case err != nil:
		return err
	}
	return p.pages.Part(w, r, "balance", t)
}

// collected is the sink of a report that is short by nature: it keeps the rows.
type collected struct{ rows [][]reports.Cell }

func (c *collected) Begin(*reports.Report, reports.Params) error { return nil }
func (c *collected) End(reports.Summary) error                   { return nil }
func (c *collected) Abort()                                      { c.rows = nil }

func (c *collected) Row(cells []reports.Cell) error {
	c.rows = append(c.rows, slices.Clone(cells))
	return nil
}
