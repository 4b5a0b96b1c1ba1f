package closing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/reports"
)

// Grace is how long after its end a month can be held: longer than an order lives and than a night's comparison takes.
const Grace = 48 * time.Hour

// exportedWithin is how far the exporter may be behind.
const exportedWithin = time.Minute

// Check is a line of a month's checklist.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
	// NeedsNote: somebody may hold the month all the same, and says why.
	NeedsNote bool `json:"needsNote,omitempty"`
}

// Checklist is what has to be so before a month is held.
func (b *Books) Checklist(ctx context.Context, l *Log, m Month) ([]Check, error) {
	var list []Check
	add := func(name string, ok bool, form string, args ...any) {
		list = append(list, Check{Name: name, OK: ok, Detail: fmt.Sprintf(form, args...)})
	}
	note := func(name string, ok bool, form string, args ...any) {
		add(name, ok, form, args...)
		list[len(list)-1].NeedsNote = !ok
	}
	now := b.now()
	from := m.Next().Add(Grace)
	add("The month is over", !now.Before(from), "from %s on", from.Format("2 Jan 2006 15:04"))
	switch {
	case l.Last == nil:
		add("The month before is closed", true, "this is the first: everything before it is closed with it")
	case l.Closed(m):
		add("The month before is closed", false, "%s was closed with %s", m.Name(), l.Last.Month.Name())
	default:
		add("The month before is closed", m == l.Last.Month.Next(), "the last one is %s", l.Last.Month.Name())
	}
	lag, err := b.ledger.Streams.Lag(ctx, ledger.RoleExport)
	if err != nil {
		return nil, err
	}
	add("Everything is in ClickHouse", lag.Entries == 0 || now.Sub(lag.Oldest) < exportedWithin, "%d entries wait for the exporter", lag.Entries)
	open, err := b.archive.OpenOrders(ctx, m.LastDay())
	if err != nil {
		return nil, err
	}
	add("Every order has ended", open == 0, "%d have not", open)
	letters, err := b.ledger.Monitor.DeadLetters(ctx, 1)
	if err != nil {
		return nil, err
	}
	note("No dead letters", len(letters) == 0, "%s", map[bool]string{true: "none", false: "there are some: the panel lists them"}[len(letters) == 0])
	p := params(m)
	balanced, found, err := reports.Balance(ctx, b.archive, p)
	if err != nil {
		return nil, err
	}
	add("The reports balance", balanced, "%s", map[bool]string{true: "all lines", false: "see the control totals"}[balanced])
	missing, err := b.unreconciled(ctx, m)
	if err != nil {
		return nil, err
	}
	note("Every day was compared with Redis", len(missing) == 0, "%s", missing)
	note("Exceptions were looked at", found == 0, "%d rows", found)
	return list, nil
}

// params are those of a month's reports, as they are booked.
func params(m Month) reports.Params {
	return reports.Params{From: reports.DayOf(m.Time), To: reports.DayOf(m.LastDay()), Basis: reports.Booked}
}

// unreconciled names the days of a month without a comparison after their end that found no difference.
func (b *Books) unreconciled(ctx context.Context, m Month) (text string, err error) {
	days, err := b.archive.ReconciledDays(ctx, m.Time, m.LastDay())
	good := map[time.Time]bool{}
	for _, d := range days {
		good[d.Day.UTC()] = d.Differences+d.Totals == 0 && !d.At.Before(d.Day.AddDate(0, 0, 1))
	}
	for day := m.Time; day.Before(m.Next().Time); day = day.AddDate(0, 0, 1) {
		if !good[day.UTC()] {
			text += day.Format(" 2")
		}
	}
	if text != "" {
		text = "not, or with differences:" + text
	}
	return text, err
}

// Person is who decides, for the audit trail.
type Person struct {
	Name       string
	Credential string // what showed that
	Address    string
	RequestID  string
}

var actions = map[string]string{KindHold: "month held", KindRelease: "month released", KindClose: "month closed", KindCorrection: "corrections booked"}

// Refused is the outcome of what the state of a month did not allow.
const Refused = "REFUSED"

// Audited lets a person decide something of a month, or of orders of closed months. It is noted in the audit trail
// before it is done, and once more if it is refused or fails.
func (b *Books) Audited(ctx context.Context, who Person, kind string, m Month, note string, orders []delivery.OrderID, decide func() error) error {
	values, err := json.Marshal(struct {
		Month  Month              `json:"month"`
		Note   string             `json:"note,omitempty"`
		Orders []delivery.OrderID `json:"orders,omitempty"`
	}{m, note, orders})
	if err != nil {
		return err
	}
	e := &ledger.AuditEntry{At: b.now().Truncate(time.Millisecond), ID: ledger.NewAuditID(), Version: 1, Actor: who.Name, Credential: who.Credential,
		Address: who.Address, RequestID: who.RequestID, Action: actions[kind], New: string(values)}
	if err := b.ledger.Audit.Append(ctx, e); err != nil {
		return err
	}
	if err = decide(); err == nil {
		return nil
	}
	e.Version++
	switch {
	case errors.Is(err, ErrRefused), errors.Is(err, ErrChanged):
		e.Outcome = Refused
	case errors.Is(err, delivery.ErrUnavailable):
		e.Outcome = string(delivery.CodeServiceUnavailable) // it may have been done
	default:
		e.Outcome = string(delivery.CodeOf(err))
	}
	if failed := b.ledger.Audit.Append(context.WithoutCancel(ctx), e); failed != nil {
		b.log.Error("what became of a decision is not in the audit trail", "action", e.Action, "outcome", e.Outcome, "error", failed)
	}
	return err
}

// Decide holds, releases or closes a month; progress is of a closing.
func (b *Books) Decide(ctx context.Context, kind string, m Month, by, note string, progress func(string)) (*Entry, error) {
	switch kind {
	case KindHold:
		return b.Hold(ctx, m, by, note)
	case KindRelease:
		return b.Release(ctx, m, by, note)
	}
	return b.Close(ctx, m, by, note, progress)
}

// Hold proposes a month for closing: what closing will freeze is what it is now.
func (b *Books) Hold(ctx context.Context, m Month, by, note string) (*Entry, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	if l.Held != nil {
		return nil, fmt.Errorf("%w: %s is held by %s", ErrRefused, l.Held.Month.Name(), l.Held.By)
	}
	list, err := b.Checklist(ctx, l, m)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		if without := map[bool]string{true: " without a note"}[c.NeedsNote]; !c.OK && (!c.NeedsNote || note == "") {
			err = errors.Join(err, fmt.Errorf("%w%s: not so: %s (%s)", ErrRefused, without, c.Name, c.Detail))
		}
	}
	if err != nil {
		return nil, err
	}
	digest, err := b.archive.DigestOpen(ctx, m.LastDay())
	if err != nil {
		return nil, err
	}
	return b.append(ctx, l, &Manifest{Kind: KindHold, Month: m, By: by, Note: note, Checklist: list, Digest: digest})
}

// Release takes a hold back.
func (b *Books) Release(ctx context.Context, m Month, by, note string) (*Entry, error) {
	l, err := b.held(ctx, m)
	if err != nil {
		return nil, err
	}
	return b.append(ctx, l, &Manifest{Kind: KindRelease, Month: m, By: by, Note: note})
}

// held reads the log, in which the month must be held.
func (b *Books) held(ctx context.Context, m Month) (*Log, error) {
	l, err := b.Read(ctx)
	switch {
	case err != nil:
		return nil, err
	case l.Closed(m):
		return nil, fmt.Errorf("%w: %s is closed", ErrRefused, m.Name())
	case l.Held == nil || l.Held.Month != m:
		return nil, fmt.Errorf("%w: %s is not held", ErrRefused, m.Name())
	}
	return l, nil
}

// Close closes a month that another person holds, if nothing in it has changed since. It cannot be taken back.
func (b *Books) Close(ctx context.Context, m Month, by, note string, progress func(string)) (*Entry, error) {
	l, err := b.held(ctx, m)
	if err != nil {
		return nil, err
	}
	if by == l.Held.By {
		return nil, fmt.Errorf("%w: %s has held %s, so somebody else has to close it", ErrRefused, by, m.Name())
	}
	progress("calculating the reports")
	control, err := reports.CloseLines(ctx, b.archive, params(m))
	if err != nil {
		return nil, err
	}
	b.step("calculated")
	closing := &Manifest{Kind: KindClose, Month: m, By: by, Note: note, Batch: uuid.New(), Digest: l.Held.Digest, Control: control}
	return b.book(ctx, l, closing, progress, func() error { return b.archive.Freeze(ctx, closing.Batch, m.LastDay()) })
}

// book stores rows under the manifest's batch, adds them up, and decides. What is there after an error is removed,
// unless it may have been decided.
func (b *Books) book(ctx context.Context, l *Log, m *Manifest, progress func(string), store func() error) (e *Entry, err error) {
	progress("storing the rows")
	decided := false
	defer func() {
		if err != nil && !decided || errors.Is(err, ErrChanged) {
			err = errors.Join(err, b.archive.RemoveBatch(context.WithoutCancel(ctx), m.Batch))
		}
	}()
	if err := store(); err != nil {
		return nil, err
	}
	b.step("stored")
	progress("reading them back")
	digest, err := b.archive.DigestBatch(ctx, m.Batch)
	switch {
	case err != nil:
		return nil, err
	case m.Kind == KindClose && digest != m.Digest:
		return nil, fmt.Errorf("%w: orders of %s have changed since %s held it on %s: release it, and look again", ErrRefused,
			m.Month.Name(), l.Held.By, l.Held.At.Format("2 Jan 2006 15:04"))
	}
	m.Digest = digest
	progress("adding them up")
	if err := b.archive.InsertDays(ctx, m.Batch); err != nil {
		return nil, err
	}
	b.step("added up")
	differing, err := b.archive.DaysDiffering(ctx, m.Batch)
	if err == nil && len(differing) > 0 {
		err = fmt.Errorf("the sums that were stored are not those of the rows: %v", differing)
	}
	if err != nil {
		return nil, err
	}
	decided = true
	return b.append(ctx, l, m)
}

// Today is the local day.
func (b *Books) today() time.Time { return archive.BusinessDay(b.now().In(delivery.Istanbul)) }
