package finance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/closing"
	"vendorapi/reporting/journal"
	"vendorapi/reporting/layout"
	"vendorapi/reporting/panel/admin"
	"vendorapi/reporting/reports"
)

const (
	deliveryPath  = home + "/delivery"
	monthsPath    = home + "/months"
	unbookedPath  = monthsPath + "/unbooked"
	rowsShown     = 200  // of corrections, and of orders to decide on
	longestNote   = 1000 // characters
	closingsFile  = "/reports/closings.json"
	closingsLimit = time.Minute // for the client to take the file
)

// tabs lead to the reports with the same filters, and to the books.
func tabs(current string, filters reports.Values) (tabs []layout.Link) {
	for _, r := range reports.All() {
		kept := filters
		if !r.HasKinds() {
			kept.Kind = ""
		}
		tabs = append(tabs, layout.Link{Name: r.Title, Address: address(pathOf(r), kept), Current: pathOf(r) == current})
	}
	return append(tabs, layout.Link{Name: "Months", Address: monthsPath, Current: monthsPath == current},
		layout.Link{Name: "Delivery", Address: deliveryPath, Current: deliveryPath == current})
}

// booksView is what the pages of the books have in common.
type booksView struct {
	Tabs   []layout.Link
	Once   string // numbers this showing of the forms
	Note   string // as it was typed
	Closer bool   // who looks may decide
	Lost   bool   // Redis or ClickHouse does not answer

	Task        *closing.Task // in progress, or ended just now; nil: none
	Interrupted bool          // its process has died
}

// taskShown is how long a task is shown after its end.
const taskShown = 10 * time.Minute

func newBooksView(r *http.Request, current string) booksView {
	return booksView{Tabs: tabs(current, reports.Values{}), Once: rand.Text(), Note: strings.ToValidUTF8(r.PostForm.Get("note"), ""),
		Closer: auth.IdentityOf(r.Context()).Roles.Include(auth.Closer)}
}

// showBooks answers with a page of the books: with what could be read, and why nothing was done.
func (p *Pages) showBooks(w http.ResponseWriter, r *http.Request, name, title string, v any, lost *bool, err, refused error) error {
	if errors.Is(err, delivery.ErrUnavailable) {
		p.Log.Warn("a page without the books", "page", name, "error", err)
		*lost, err = true, nil
	}

	if err != nil {
		return err
	}

	status := 0
	switch {
	case closing.IsRefusal(refused):
		status, refused = http.StatusConflict, delivery.Refuse(delivery.CodeValidationFailed, "Nothing was done: %s.", refused)
	case isOutcomeUnknown(refused):
		p.Log.Warn("it is not known whether something was decided", "error", refused)

		silent := "Redis or ClickHouse"
		if name == "delivery" {
			silent = "the gateway"
		}
		refused = delivery.Refuse(delivery.CodeServiceUnavailable, "It is not known whether this was done, because %s does not answer in time. "+
			"Look at what the page shows now, then send it again if need be.", silent)
	}

	return p.Show(w, r, name, layout.View{Title: title, Data: v, Refused: refused, Status: status, Plain: true})
}

// isOutcomeUnknown reports that something did not answer in time, so what was asked of it may have been done. A
// refusal that names when to try again was given before anything was done.
func isOutcomeUnknown(err error) bool {
	if errors.Is(err, delivery.ErrUnavailable) {
		return true
	}

	refusal, isRefusal := errors.AsType[*delivery.Error](err)
	return isRefusal && refusal.Code == delivery.CodeServiceUnavailable && refusal.RetryAfter == 0
}

// closedMonth is a month that was closed, on the page and in the file.
type closedMonth struct {
	Month       closing.Month `json:"month"`
	First       bool          `json:"first,omitempty"` // no month before it was closed
	ClosedAt    time.Time     `json:"closedAt"`
	ClosedBy    string        `json:"closedBy"`
	HeldAt      time.Time     `json:"heldAt"`
	HeldBy      string        `json:"heldBy"`
	HeldNote    string        `json:"heldNote,omitempty"`
	Note        string        `json:"note,omitempty"`
	Sequence    int           `json:"sequence"`
	Seal        string        `json:"seal"`
	Corrections int           `json:"corrections"` // of its orders, booked since

	Sums map[string]int64 `json:"-"` // of the orders that ended in it
}

// closedMonths are the latest first.
func closedMonths(l *closing.Log) []closedMonth {
	months := []closedMonth{}
	var hold *closing.Entry
	for i := range l.Entries {
		e := &l.Entries[i]
		switch e.Kind {
		case closing.KindHold:
			hold = e
		case closing.KindClose:
			m := closedMonth{Month: e.Month, First: len(months) == 0, ClosedAt: e.At, ClosedBy: e.By, HeldAt: hold.At, HeldBy: hold.By, HeldNote: hold.Note,
				Note: e.Note, Sequence: e.Sequence, Seal: e.Seal}
			for _, line := range e.Control {
				if line.Line == "ended-in-period" {
					m.Sums = line.Figures
				}
			}
			months = append(months, m)
		case closing.KindCorrection:
			for _, c := range e.Corrections {
				if n := slices.IndexFunc(months, func(m closedMonth) bool { return !c.Month.After(m.Month.Time) }); n >= 0 {
					months[n].Corrections++
				}
			}
		}
	}

	slices.Reverse(months)

	return months
}

func (p *Pages) showMonths(w http.ResponseWriter, r *http.Request, refused error) error {
	v := &struct {
		booksView
		Months   []closedMonth
		Held     *closing.Entry
		Next     closing.Month
		Foreign  []journal.Foreign
		Unnamed  int // how many foreign rows there are beside these
		Disputed *closing.Entry
		Mine     bool // who looks disputes the rows
	}{booksView: newBooksView(r, monthsPath)}

	err := p.within(r.Context(), p.reading, p.pageLimit, func(ctx context.Context) error {
		l, err := p.books.Read(ctx)
		if err != nil {
			return err
		}

		v.Months, v.Held, v.Next = closedMonths(l), l.Held, l.NextMonth(p.books.Now())
		v.Foreign, v.Unnamed, v.Disputed = l.Foreign.First, l.Foreign.Unnamed(), l.Disputed
		v.Mine = l.Disputed != nil && l.Disputed.By == auth.IdentityOf(ctx).Name
		return p.showTask(ctx, &v.booksView)
	})

	return p.showBooks(w, r, "months", "Months", v, &v.Lost, err, refused)
}

// showTask shows what is being decided, for as long as it is in progress.
func (p *Pages) showTask(ctx context.Context, v *booksView) error {
	task, err := p.books.LastTask(ctx)
	if err != nil {
		return err
	}

	isShown := task.ID != "" && (!task.HasEnded() || p.books.Now().Sub(task.Ended) < taskShown)
	if isShown {
		v.Task, v.Interrupted = &task, task.IsInterrupted(p.books.Now())
	}
	return nil
}

// serveClosings answers with the log of closings. A seal is the SHA-256 of a manifest's text.
func (p *Pages) serveClosings(w http.ResponseWriter, r *http.Request) error {
	l, err := p.books.Read(r.Context())
	if err != nil {
		return err
	}

	type sealed struct {
		Seal     string          `json:"seal"`
		Sealed   string          `json:"sealed"`
		Manifest json.RawMessage `json:"manifest"`
	}

	entries := []sealed{}
	for i := range l.Entries {
		entries = append(entries, sealed{l.Entries[i].Seal, l.Entries[i].JSON, json.RawMessage(l.Entries[i].JSON)})
	}

	var held any // the manifest of the hold
	if l.Held != nil {
		held = json.RawMessage(l.Held.JSON)
	}

	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(closingsLimit)); err != nil {
		return fmt.Errorf("bound a write: %w", err)
	}

	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the client may have gone
		"success": true, "data": map[string]any{"months": closedMonths(l), "held": held, "entries": entries}})

	return nil
}

type monthView struct {
	booksView
	Month     closing.Month
	State     string
	Closed    *closing.Entry // its closing
	Earlier   bool           // it lies before the first month that was closed
	Hold      *closing.Entry
	Changed   bool // since it was held
	Mine      bool // who looks has held it
	Checklist []closing.Check
	Todos     map[string]todo
	Refused   bool // the checklist does not allow a hold
	Control   *table
	Digests   []digest
	In, Of    []correction
	More      bool // corrections than are shown
}

// todo is what to do about a line of the checklist.
type todo struct {
	Text   string
	Report string // that shows more; empty: none does
}

var todos = map[string]todo{
	closing.CheckOver:        {"Wait until then: by that time its orders have ended and every night was compared.", ""},
	closing.CheckPrevious:    {"Months are closed one after the other: close that one first.", ""},
	closing.CheckExported:    {"Load the page again in a minute. If it stays so, operations must see why nothing is exported.", ""},
	closing.CheckEnded:       {"Wait for their ends, or let operators look under Orders. `reporting reconcile` finds those that have ended in Redis only.", "order-ledger"},
	closing.CheckDeadLetters: {"Operators look at them under Dead letters. The note says why they change nothing in this month.", ""},
	closing.CheckBalanced:    {"The control totals name the lines that differ, and the command that finds the orders.", "control-totals"},
	closing.CheckCompared:    {"`reporting reconcile --from DAY --to DAY` compares again; Redis holds orders for 7 days after their end. The note says why the other days are right.", ""},
	closing.CheckExceptions:  {"Look at the exceptions. The note says what came of them.", "exceptions"},
}

// correction is an order of a closed month, as it was booked.
type correction struct {
	closing.Correction
	Booked *closing.Entry
}

func (v *monthView) corrections(l *closing.Log) {
	for i := range l.Entries {
		e := &l.Entries[i]
		for _, c := range e.Corrections {
			if e.Month == v.Month {
				v.In = append(v.In, correction{c, e})
			}
			if c.Month == v.Month {
				v.Of = append(v.Of, correction{c, e})
			}
		}
	}

	v.More = max(len(v.In), len(v.Of)) > rowsShown
	v.In, v.Of = v.In[:min(len(v.In), rowsShown)], v.Of[:min(len(v.Of), rowsShown)]
}

// Address leads to a report of the month as it is booked.
func (v *monthView) Address(report, extension string) string {
	path := home + "/" + report
	values := reports.Values{From: layout.ISODay(v.Month.Time), To: layout.ISODay(v.Month.LastDay())}
	if extension != "" {
		path, values.Basis = "/reports/"+report+extension, string(reports.Booked)
	}
	return address(path, values)
}

func monthOf(r *http.Request) (closing.Month, error) {
	m, err := closing.ParseMonth(r.PathValue("month"))
	if err != nil {
		return m, delivery.Refuse(delivery.CodeNotFound, "there is no such month; they are written as 2026-10")
	}
	return m, nil
}

func (p *Pages) showMonth(w http.ResponseWriter, r *http.Request, refused error) error {
	m, err := monthOf(r)
	if err != nil {
		return err
	}

	v := &monthView{booksView: newBooksView(r, monthsPath), Month: m, Todos: todos}
	err = p.within(r.Context(), p.digesting, digestLimit, func(ctx context.Context) error {
		l, err := p.books.Read(ctx)
		if err != nil {
			return err
		}
		if err := p.showTask(ctx, &v.booksView); err != nil {
			return err
		}

		v.corrections(l)
		v.State, v.Closed = l.State(m), l.Closing(m)
		switch {
		case v.Closed != nil:
			v.manifest()
			return nil
		case l.Closed(m):
			v.Earlier = true
			return nil
		case l.Held != nil && l.Held.Month == m:
			v.Hold, v.Mine = l.Held, l.Held.By == auth.IdentityOf(r.Context()).Name
			now, err := p.books.DigestOpen(ctx, m)
			v.Changed = now != l.Held.HeldDigest(m)
			return err
		}

		v.Checklist, err = p.books.Checklist(ctx, l, m)
		v.Refused = slices.ContainsFunc(v.Checklist, func(c closing.Check) bool { return !c.OK && !c.NeedsNote })

		return err
	})

	return p.showBooks(w, r, "month", m.Name(), v, &v.Lost, err, refused)
}

// manifest is a closing in words.
func (v *monthView) manifest() {
	var lines [][]reports.Cell
	for _, s := range v.Closed.Control {
		line := make([]reports.Cell, len(control.Columns))
		for i := range line {
			line[i].Number, line[i].Given = s.Figures[control.Columns[i].Key]
		}

		line[control.Column("line")].Text, line[control.Column("ties")].Text = s.Line, s.Ties
		lines = append(lines, line)
		if r, found := reports.Find(s.Line); found && s.SHA256 != "" {
			v.Digests = append(v.Digests, digest{Title: r.Title, SHA256: s.SHA256, Address: v.Address(r.Name, ".csv") + "&plain=1"})
		}
	}

	v.Control = newTable(control, &directory{}, nil, lines)
}

// noteOf is the note of a form.
func noteOf(r *http.Request) (string, error) {
	note := strings.TrimSpace(r.PostForm.Get("note"))
	if utf8.RuneCountInString(note) > longestNote {
		return "", layout.Invalid("Nothing was done.", delivery.FieldError{Field: "note", Message: fmt.Sprintf("must have at most %d characters", longestNote)})
	}
	return note, nil
}

// decide holds, releases or closes a month.
func (p *Pages) decide(kind string) layout.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		d, err := decisionOf(r, kind)
		var task closing.Task
		if err == nil {
			d.Held = cmp.Or(d.Held, closing.NoHold) // what is released or closed is the hold that the page showed
			task, err = p.start(r, d)
		}

		if err != nil {
			return p.showMonth(w, r, err)
		}

		return layout.Redirect(w, r, monthsPath+"/"+d.Month.String(), doneOf(task, kind))
	}
}

// doneOf says that something is done, or that it is being done.
func doneOf(task closing.Task, done string) string {
	if task.HasEnded() {
		return done
	}
	return "started"
}

// settle lets two people set rows aside that do not belong to the log.
func (p *Pages) settle(kind string) layout.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		d, err := decisionOf(r, kind)
		var task closing.Task
		if err == nil {
			task, err = p.start(r, d)
		}

		if err != nil {
			return p.showMonths(w, r, err)
		}
		return layout.Redirect(w, r, monthsPath, doneOf(task, kind))
	}
}

func (p *Pages) showUnbooked(w http.ResponseWriter, r *http.Request, refused error) error {
	v := &struct {
		booksView
		Explained int
		Left      []closing.Unexplained
		More      bool
	}{booksView: newBooksView(r, monthsPath)}

	err := p.within(r.Context(), p.digesting, digestLimit, func(ctx context.Context) error {
		var err error
		v.Explained, v.Left, err = p.books.Unbooked(ctx)
		return err
	})

	v.More, v.Left = len(v.Left) > rowsShown, v.Left[:min(len(v.Left), rowsShown)]

	return p.showBooks(w, r, "unbooked", "Not booked yet", v, &v.Lost, err, refused)
}

// book books the orders that were chosen.
func (p *Pages) book(w http.ResponseWriter, r *http.Request) error {
	d, err := decisionOf(r, closing.KindCorrection)
	var task closing.Task
	if err == nil {
		task, err = p.start(r, d)
	}

	if err != nil {
		return p.showUnbooked(w, r, err)
	}

	done := "booked"
	if task.HasEnded() && task.Booked == 0 {
		done = "booked-none"
	}

	return layout.Redirect(w, r, unbookedPath, doneOf(task, done))
}

// booksOf says whether a period is closed; empty when that cannot be read now.
func (p *Pages) booksOf(ctx context.Context, params *reports.Params) string {
	ctx, cancel := context.WithTimeout(ctx, p.directoryTimeout)
	defer cancel()
	l, err := p.logs.Get(ctx)
	if err != nil {
		p.Log.Warn("whether months are closed cannot be read", "error", err)
		return ""
	}
	return sayClosed(l, params)
}

func sayClosed(l *closing.Log, p *reports.Params) (text string) {
	first, last := closing.MonthOf(p.From.Midnight()), closing.MonthOf(p.To.Midnight())
	switch {
	case !l.Closed(first):
		return "Open: figures can change."
	case !l.Closed(last):
		text = "Closed up to " + layout.Date(l.Last.Month.LastDay()) + "; what is later is open: figures can change."
	case l.Closing(last) == nil:
		text = "Before the first month that was closed."
	default:
		e := l.Closing(last)
		text = "Closed"
		if first != last {
			text = "Closed, the last month of it"
		}
		text += " by " + e.By + " on " + layout.Date(e.At) + "."
	}

	switch {
	case p.AsOf != 0:
		text += " Shown as of " + p.AsOf.Text() + ", " + string(cmp.Or(p.Basis, reports.Booked)) + "."
	case p.Basis == reports.Known:
		text += " Shown is what is known now, not what was booked."
	}

	return text
}

// showDelivery shows where finance's own system is notified of reports, and a secret that was issued just now.
func (p *Pages) showDelivery(w http.ResponseWriter, r *http.Request, secret string, refused error) error {
	v := &struct {
		booksView
		Receiver admin.FinanceReceiver
		Typed    string
		Secret   string
		deliveriesShown
		Unread bool // ClickHouse, which knows them, does not answer
	}{booksView: newBooksView(r, deliveryPath), Secret: secret}

	var err error
	v.Receiver, err = p.admin.FinanceWebhook(r.Context())
	if secret != "" && err != nil {
		v.Lost, err = true, nil // the secret is shown only once
	}

	all, unread := p.archive.DeliverySets(r.Context())
	v.deliveriesShown = p.sortDeliveries(all, time.Now())
	v.Unread = errors.Is(unread, delivery.ErrUnavailable)
	if err == nil && !v.Unread {
		err = unread
	}

	v.Typed = v.Receiver.URL
	if r.PostForm.Has("url") && refused != nil {
		v.Typed = r.PostForm.Get("url")
	}

	return p.showBooks(w, r, "delivery", "Delivery", v, &v.Lost, err, refused)
}

// deliveriesShown is what the page Delivery shows of the sets of files.
type deliveriesShown struct {
	Pending []archive.DeliverySet // due and not delivered, or failing to be announced; the oldest first
	Sets    []archive.DeliverySet // the latest that were delivered
	Dropped []droppedTarget       // by name
}

// droppedTarget is a target that deliver.targets does not name any more, with the number of its sets that were
// not delivered. They never will be, unless it is named again.
type droppedTarget struct {
	Name        string
	Undelivered int
}

// sortDeliveries sorts the sets of all targets. Sets without a target are not shown: nothing of them is delivered.
func (p *Pages) sortDeliveries(all []archive.DeliverySet, now time.Time) deliveriesShown {
	var shown deliveriesShown
	undelivered := map[string]int{} // by dropped target
	for _, set := range all {
		isDelivered := !set.DeliveredAt.IsZero()
		isFailing := set.Error != ""
		isDropped := !slices.Contains(p.Targets, set.Target)
		switch {
		case set.Target == "":
		case isDelivered && !isFailing:
			shown.Sets = append(shown.Sets, set)
		case isDropped && !isDelivered:
			undelivered[set.Target]++
		case !set.DueAt.After(now):
			shown.Pending = append(shown.Pending, set)
		}
	}

	slices.SortStableFunc(shown.Pending, func(a, b archive.DeliverySet) int { return a.DueAt.Compare(b.DueAt) })
	slices.SortStableFunc(shown.Sets, func(a, b archive.DeliverySet) int { return b.DeliveredAt.Compare(a.DeliveredAt) })
	shown.Pending = shown.Pending[:min(len(shown.Pending), rowsShown)]
	shown.Sets = shown.Sets[:min(len(shown.Sets), rowsShown)]
	for _, name := range slices.Sorted(maps.Keys(undelivered)) {
		shown.Dropped = append(shown.Dropped, droppedTarget{name, undelivered[name]})
	}

	return shown
}

func (p *Pages) setReceiver(w http.ResponseWriter, r *http.Request) error {
	secret, err := p.admin.SetFinanceWebhook(r.Context(), auth.IdentityOf(r.Context()).Name, r.PostForm.Get("url"))
	if err != nil || secret != "" {
		return p.showDelivery(w, r, secret, err)
	}
	return layout.Redirect(w, r, deliveryPath, "receiver-moved")
}

func (p *Pages) removeReceiver(w http.ResponseWriter, r *http.Request) error {
	err := p.admin.RemoveFinanceWebhook(r.Context(), auth.IdentityOf(r.Context()).Name)
	if err != nil && delivery.CodeOf(err) != delivery.CodeWebhookNotConfigured {
		return p.showDelivery(w, r, "", err)
	}
	return layout.Redirect(w, r, deliveryPath, "receiver-removed")
}
