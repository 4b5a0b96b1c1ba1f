package finance

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/closing"
	"vendorapi/reporting/layout"
	"vendorapi/reporting/reports"
)

const october, octoberDays = monthsPath + "/2026-10", "from=2026-10-01&to=2026-10-31"

// octoberOrders stores n orders of October 2026 that have ended.
func (e *env) octoberOrders(n int) {
	e.T.Helper()
	e.KeepConsuming(ledger.RoleExport) // however long a decision takes, the exporter is not behind
	var orders []archive.Order
	for i := 0; len(orders) < n; i++ {
		if o := e.order(i, local("2026-10-02 12:00:00.000").Add(time.Duration(i)*time.Hour)); o.Status.Terminal() {
			orders = append(orders, o)
		}
	}

	e.store(orders...)
}

// browser is one whose user is signed in.
func (e *env) browser(user string) *testenv.Client {
	e.T.Helper()
	b := testenv.NewClient(e.T, e.client.URL, testenv.AcceptHTML)
	authenv.SignIn(b, user)
	return b
}

// fill is the form of a page for an action, with changes of its fields.
func fill(b *testenv.Client, page, action string, changes ...string) url.Values {
	b.T.Helper()
	form := b.Page(page).Form(action, "", "")
	for i := 0; i < len(changes); i += 2 {
		form.Set(changes[i], changes[i+1])
	}
	return form
}

// hold holds October in the browser of a closer. What audit entries wait for has been exported.
func (e *env) hold(b *testenv.Client) {
	e.T.Helper()
	e.AwaitSettled(ledger.RoleExport)
	b.Post(october+"/hold", fill(b, october, october+"/hold", "note", "seen")).Leads(october + "?done=hold")
}

// closeOctober closes it by two people.
func (e *env) closeOctober() (cem, defne *testenv.Client) {
	e.T.Helper()
	cem, defne = e.browser("cem"), e.browser("defne")
	e.hold(cem)
	defne.Post(october+"/close", fill(defne, october, october+"/close")).Leads(october + "?done=close")
	return cem, defne
}

// audited are the entries of the audit trail, the latest version of each.
func (e *env) audited() (all []string) {
	e.T.Helper()
	latest := map[string]int{}
	must(e.T, e.Ledger.Streams.EachEntry(e.T.Context(), ledger.RoleExport, time.Time{}, func(batch []partitions.Entry) error {
		for _, one := range batch {
			a := one.Audit
			if a == nil {
				continue
			}
			if a.Credential != "session" || a.Address != "127.0.0.1" || len(a.RequestID) != 16 {
				e.T.Errorf("%+v", a)
			}

			isOfBooks := strings.Contains(a.Action, "month") || strings.Contains(a.Action, "correction")
			if isOfBooks && !slices.Contains(archive.Decisions, a.Action) {
				e.T.Errorf("the entry of %q would be removed after AUDIT_DAYS", a.Action)
			}

			text := strings.TrimSpace(fmt.Sprint(a.Actor, ": ", a.Action, " ", a.New, " ", a.Outcome))
			if i, again := latest[a.ID]; again {
				all[i] = text
			} else {
				latest[a.ID], all = len(all), append(all, text)
			}
		}

		return nil
	}))

	return all
}

// entries are the kinds of the log's entries.
func (e *env) entries() (kinds string) {
	e.T.Helper()
	l, err := e.pages.books.Read(e.T.Context())
	must(e.T, err)
	for i := range l.Entries {
		kinds += " " + l.Entries[i].Kind
	}
	return kinds
}

// Whoever looks at months takes no turn that a decision needs.
func TestMonths_AreDecidedWhateverIsRead(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.octoberOrders(3)
	e.AwaitSettled(ledger.RoleExport)
	cem, defne := e.browser("cem"), e.browser("defne")
	form := fill(cem, october, october+"/hold", "note", "seen")
	must(t, e.pages.digesting.Acquire(t.Context(), digestsAtOnce))

	cem.Post(october+"/hold", form).Leads(october + "?done=hold")
	e.pages.digesting.Release(digestsAtOnce)
	form = fill(defne, october, october+"/close")
	must(t, e.pages.digesting.Acquire(t.Context(), digestsAtOnce))
	defne.Post(october+"/close", form).Leads(october + "?done=close")
	if kinds := e.entries(); kinds != " hold close" {
		t.Error(kinds)
	}
}

func TestMonths_AreClosedByTwoPeople(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.octoberOrders(30)
	cem, defne, ayse := e.browser("cem"), e.browser("defne"), e.browser("ayse")
	latest := (&closing.Log{}).NextMonth(time.Now()) // October, or a later month that is over, too
	ayse.Page(monthsPath).Says(latest.Name()+" can be the first to close", "With the first month, those before it are closed, one by one", "No month was closed yet").
		Links(monthsPath + "/" + latest.String())
	ayse.Page(october).Says("Every order has ended yes", "Every day was compared with Redis needs a note", "reporting reconcile", "People with the role closer can hold it").Lacks("<form method=\"post\" action=\"" + october)
	e.page("/payments?" + octoberDays).Says("Open: figures can change.")

	cem.Post(october+"/hold", fill(cem, october, october+"/hold")).Want(http.StatusConflict).
		Says("Nothing was done: a note is needed, because this is not so: Every day was compared with Redis").Lacks("VALIDATION_FAILED")
	cem.Post(october+"/hold", fill(cem, october, october+"/hold", "note", strings.Repeat("ş", longestNote+1))).Want(422).Says("must have at most 1000 characters")
	e.hold(cem)
	cem.Page(october+"?done=hold").Says("The month is held.", "Note seen", "Nothing has changed since", "You hold this month").Lacks("/close\"")
	ayse.Page(october).Says("cem", "People with the role closer can close or release it").Lacks("/close\"", "/release\"")
	ayse.Page(monthsPath).Says("October 2026 is held", "By cem since")

	// Whatever the page shows, the server decides.
	form := fill(defne, october, october+"/close", "note", "<b>fine</b>")
	for what, refused := range map[string]*testenv.Answer{
		"who has held it": cem.Post(october+"/close", url.Values{"csrf": {fill(cem, october, october+"/release").Get("csrf")}, "once": {"1"}, "held": form["held"]}),
		"another hold":    defne.Post(october+"/close", url.Values{"csrf": form["csrf"], "once": {"2"}, "held": {"0"}}),
	} {
		said := map[string]string{"who has held it": "somebody else has to close it", "another hold": "look again"}[what]
		refused.Want(http.StatusConflict).Says("Nothing was done: ", said)
	}

	ayse.Post(october+"/close", url.Values{"csrf": {fill(ayse, october, "/logout").Get("csrf")}, "once": {"1"}, "held": form["held"]}).Want(http.StatusForbidden)
	e.client.Post(october+"/close", form).Want(http.StatusForbidden)
	defne.Post(october+"/close", url.Values{"once": {"1"}, "held": form["held"]}).Want(http.StatusForbidden)

	// A double click closes once, and both are answered.
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { defne.Post(october+"/close", form).Leads(october + "?done=close") })
	}

	both.Wait()
	if kinds := e.entries(); kinds != " hold close" {
		t.Error(kinds)
	}

	defne.Post(october+"/release", url.Values{"csrf": form["csrf"], "once": {"3"}}).Want(http.StatusConflict).Says("October 2026 is closed")
	note := `{"month":"2026-10","note":"seen"}`
	fine, err := json.Marshal(map[string]string{"month": "2026-10", "note": "<b>fine</b>"})
	must(t, err)
	want := []string{`cem: month held {"month":"2026-10"} REFUSED`, "cem: month held " + note, `cem: month closed {"month":"2026-10"} REFUSED`,
		`defne: month closed {"month":"2026-10"} REFUSED`, "defne: month closed " + string(fine), `defne: month released {"month":"2026-10"} REFUSED`}
	got := strings.Join(e.audited(), "\n")
	for _, line := range want {
		if !strings.Contains(got, line) {
			t.Errorf("no %s in\n%s", line, got)
		}
	}

	if strings.Count(got, "\n")+1 != len(want) {
		t.Error(got)
	}

	l, err := e.pages.books.Read(t.Context())
	must(t, err)
	ayse.Page(monthsPath).Says("October 2026 and all before it", "by defne: <b>fine</b>", "by cem: seen", l.Last.Seal[:12], "November 2026 is the next to close").Harmless()
	closed := ayse.Page(october).Says("Closed By defne", l.Last.Seal, l.Last.Digest.SHA256, "Nothing of this month was booked later.").Harmless()
	for _, line := range l.Last.Control {
		if r, found := reports.Find(line.Line); found && line.SHA256 != "" {
			address := closed.Link(r.Title)
			for _, n := range testenv.All(closed.ByID("digests"), "a") {
				if testenv.Words(n) == r.Title {
					address = testenv.Attribute(n, "href")
				}
			}

			file := ayse.Page(address).Text
			if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(file))); sum != line.SHA256 || !strings.Contains(closed.Text, sum) {
				t.Errorf("%s has %s, sealed was %s", address, sum, line.SHA256)
			}
		}
	}

	said := "Closed by defne on " + layout.Date(l.Last.At) + "."
	e.page("/payments?" + octoberDays).Says(said)
	e.page(linesPath + "?" + octoberDays).Says(said)
	e.page("/payments?from=2026-08-01&to=2026-08-31").Says("Before the first month that was closed")
	e.page("/payments?from=2026-10-01&to=2026-11-05").Says("Closed up to 31 Oct 2026; what is later is open")
	e.page("/payments?basis=known&" + octoberDays).Says(said + " Shown is what is known now, not what was booked.")
	e.page(monthsPath + "/2026-09").Says("lies before the first one that was closed")
}

// What is closed is what was seen when it was held.
func TestMonths_ThatChangedSinceTheHoldAreNotClosed(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.octoberOrders(5)
	cem, defne := e.browser("cem"), e.browser("defne")
	e.hold(cem)
	form := fill(defne, october, october+"/close")
	o := e.orders[0]
	o.Version++
	o.Collection.Minor += 100
	e.store(o)
	defne.Page(october).Says("Orders have changed since.").Lacks("/close\"")
	defne.Post(october+"/close", form).Want(http.StatusConflict).Says("Nothing was done: orders of October 2026 have changed since cem held it", "release it")
	defne.Post(october+"/release", fill(defne, october, october+"/release", "note", "an amount")).Leads(october + "?done=release")
	defne.Post(october+"/release", url.Values{"csrf": form["csrf"], "once": {"1"}}).Want(http.StatusConflict).Says("October 2026 is not held")
	e.hold(cem)
	form.Set("once", "another showing")
	defne.Post(october+"/close", form).Want(http.StatusConflict).Says("look again") // the hold that the form was shown for is over
	cem.Post(october+"/hold", url.Values{"csrf": {fill(cem, october, october+"/release").Get("csrf")}, "once": {"1"}, "note": {"x"}}).
		Want(http.StatusConflict).Says("October 2026 is held by cem")
	if kinds := e.entries(); kinds != " hold release hold" {
		t.Error(kinds)
	}
}

// What became known of a closed month is booked by a person, who says why.
func TestUnbooked_IsBookedByAPerson(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.octoberOrders(25)
	cem, defne := e.closeOctober()
	ayse := e.browser("ayse")
	ayse.Page(unbookedPath).Says("Nothing: closed months are booked as they are known.")
	var changed, failed archive.Order
	for _, o := range e.orders {
		switch {
		case o.Status == delivery.Failed:
			failed = o
		case o.Status == delivery.Delivered && o.PaymentType == delivery.Cash:
			changed = o
		}
	}

	changed.Version++
	changed.Collection.Minor += 100
	e.store(changed)
	late := archive.LateDelivery{Account: failed.Account, CreatedAt: failed.CreatedAt, Order: failed.ID, ReportedAt: failed.EndedAt.Add(time.Hour)}
	must(t, e.Archive.InsertAgain(t.Context(), &archive.Batch{Late: []archive.LateDelivery{late}}))
	ayse.Page(unbookedPath).Says("a late delivery of", "Redis does not confirm that a courier reported it")
	e.Step(failed.ID.Partition(), func(step *partitions.Step) {
		step.Refuse(&delivery.Update{Order: failed.ID, Status: delivery.Delivered, At: late.ReportedAt}, failed.Status, "late_delivery", true)
	})
	ayse.Page(unbookedPath).Says("1 order explains itself", "Redis does not hold it any more",
		"amount "+changed.OrderAmount.String()+", to collect "+changed.Collection.String(), "People with the role closer can book them").Lacks("/orders/", `name="order"`)
	book := unbookedPath + "/book"
	defne.Page(unbookedPath).Links("/orders/" + changed.ID.String()) // she is an operator, too
	id := changed.ID.String()
	for name, c := range map[string]struct {
		order, note, said string
		by                *testenv.Client
		status            int
	}{
		"no order":                   {"", "told", "Choose those to book", cem, 422},
		"no id":                      {"x", "told", "is no order's id", cem, 422},
		"no note":                    {id, " ", "it is needed", cem, 422},
		"finance without the closer": {id, "told", "", ayse, http.StatusForbidden},
	} {
		form := url.Values{"csrf": {fill(c.by, unbookedPath, "/logout").Get("csrf")}, "once": {name}, "note": {c.note}}
		if c.order != "" {
			form.Set("order", c.order)
		}
		a := c.by.Post(book, form).Want(c.status)
		if c.said != "" && !strings.Contains(strings.ToLower(a.Words()), strings.ToLower(c.said)) {
			t.Errorf("%s: %s", name, a.Words())
		}
	}

	if kinds := e.entries(); kinds != " hold close" {
		t.Error(kinds)
	}

	e.client.Post(book, url.Values{"order": {id}, "note": {"told"}}).Want(http.StatusForbidden)
	began := time.Now()
	form := fill(cem, unbookedPath, book, "order", id, "note", "told by the fleet")
	for range 2 { // the second is a double click
		cem.Post(book, form).Leads(unbookedPath + "?done=booked")
	}

	if kinds := e.entries(); kinds != " hold close correction" {
		t.Error(kinds)
	}

	form.Set("once", "another showing")
	cem.Post(book, form).Leads(unbookedPath + "?done=booked-none")
	cem.Page(unbookedPath+"?done=booked-none").Says("None of these orders differs any more", "1 order explains itself")
	if all := e.audited(); all[len(all)-1] != `cem: corrections booked {"note":"told by the fleet","orders":["`+id+`"]}` {
		t.Error(all)
	}

	_, err := e.pages.books.CorrectChanged(t.Context()) // as every night
	must(t, err)

	of := defne.Page(october).Links("/orders/" + changed.ID.String())
	for list, text := range map[string]string{of.Words(): "October 2026", ayse.Page(monthsPath + "/" + closing.MonthOf(time.Now()).String()).Words(): "booked in"} {
		for _, want := range []string{text, "1.00 newer version Delivered → Delivered October 2026", "by cem: told by the fleet", layout.Money(failed.Collection.Minor) + " late delivery Failed → Failed"} {
			if !strings.Contains(list, want) {
				t.Errorf("no %q in %s", want, list)
			}
		}
	}

	ayse.Page(october).Lacks("/orders/")
	ayse.Page(monthsPath).Says(fmt.Sprint(e.kept(func(o *archive.Order) bool { return o.Status == delivery.Delivered })-1, " 2 ")) // one is stored twice
	// The open month's ledger takes back what was booked, and sets what is right.
	today := "from=" + layout.ISODay(began) + "&to=" + layout.ISODay(time.Now())
	rows := e.page("/payments/order-ledger?" + today).rows()
	if len(rows) != 2 || !strings.HasSuffix(rows[0][0], "reversal of Oct 2026") || !strings.HasSuffix(rows[1][0], "correction of Oct 2026") {
		t.Errorf("%q", rows)
	}

	e.page("/payments?" + today).Says("correction of Oct 2026")
}

func TestMonths_UnknownOnesAreNotThere(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	cem := e.browser("cem")
	csrf := fill(cem, monthsPath, "/logout")["csrf"]
	for _, month := range []string{"2026-13", "x", "1999-12", "2026-1"} {
		cem.Get(monthsPath+"/"+month).Want(http.StatusNotFound, "there is no such month")
		cem.Post(monthsPath+"/"+month+"/hold", url.Values{"csrf": csrf, "once": {"1"}, "note": {"x"}}).Want(http.StatusNotFound)
	}

	cem.Post(october+"/open", url.Values{"csrf": csrf, "once": {"1"}}).Want(http.StatusNotFound)
	cem.Post(october+"/hold", url.Values{"csrf": csrf, "note": {"x"}}).Want(http.StatusBadRequest, "MALFORMED_REQUEST")
	e.client.Get(monthsPath, authenv.As("operator")).Want(http.StatusForbidden)
	e.client.Get(closingsFile, authenv.As("operator")).Want(http.StatusForbidden)
	e.page(monthsPath+"/2099-01").Says("The month is over no", "It can be held when nothing above says no.")
}

// Whoever reads the checklist learns what to do about each of its lines.
func TestChecklist_SaysWhatToDo(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	l, err := e.pages.books.Read(t.Context())
	must(t, err)
	m, err := closing.ParseMonth("2026-10")
	must(t, err)
	list, err := e.pages.books.Checklist(t.Context(), l, m)
	must(t, err)
	for _, c := range list {
		todo := todos[c.Key]
		if todo.Text == "" {
			t.Errorf("%s: nothing is said to do", c.Key)
		}
		_, found := reports.Find(todo.Report)
		if todo.Report != "" && !found {
			t.Errorf("%s: there is no report %s", c.Key, todo.Report)
		}
	}

	if len(list) != len(todos) {
		t.Errorf("%d lines, %d texts", len(list), len(todos))
	}
}

func TestMonths_SayThatClickHouseOrRedisIsUnavailable(t *testing.T) {
	t.Parallel()

	e := newEnvOn(t, testenv.NewOn(t, testserver.DedicatedRedis(t, stack.RedisOptions{})))
	e.octoberOrders(3)
	cem := e.browser("cem")
	form := fill(cem, october, october+"/hold", "note", "seen")
	gone, err := archive.Open(archive.Settings{URL: "http://127.0.0.1:1", Database: e.Database})
	must(t, err)
	t.Cleanup(func() { _ = gone.Close() })
	pages := []string{monthsPath, october, unbookedPath}
	e.serve(gone)
	cem = &testenv.Client{T: t, URL: e.client.URL, Headers: cem.Headers, HTTP: cem.HTTP}
	for _, path := range pages {
		cem.Page(path).Says("This cannot be read right now: Redis or ClickHouse does not answer.", "Control totals")
	}

	cem.Get(closingsFile).Want(http.StatusServiceUnavailable)
	cem.Post(october+"/hold", form).Want(http.StatusServiceUnavailable).Says("It is not known whether this was done", "This cannot be read right now")
	for _, entry := range e.audited() { // none, if ClickHouse was missed before
		if !strings.HasSuffix(entry, "SERVICE_UNAVAILABLE") {
			t.Error(entry)
		}
	}

	e.serve(e.Archive)
	if kinds := e.entries(); kinds != "" {
		t.Error(kinds)
	}

	e.Server.Stop()
	for _, path := range pages[:2] { // the last one asks Redis about orders that differ only
		e.page(path).Says("This cannot be read right now")
	}

	if text := e.page("/payments?" + octoberDays).Hides("figures can change").ByID("from"); text == nil {
		t.Error("the payments need Redis")
	}
}

// What a decision is sent with is read at once, however many people read months.
func TestBooks_AreReadBesideChecklists(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.octoberOrders(3)
	cem := e.browser("cem")
	token := fill(cem, monthsPath, "/logout").Get("csrf")
	must(t, e.pages.digesting.Acquire(t.Context(), digestsAtOnce))

	cem.Get(BooksPath).Want(http.StatusOK, `"csrf":"`+token+`"`, `"held":"none"`)
	e.pages.digesting.Release(digestsAtOnce)
	e.hold(cem)
	l, err := e.pages.books.Read(t.Context())
	must(t, err)
	cem.Get(BooksPath).Want(http.StatusOK, `"held":"`+l.Held.Seal+`"`)
}

// Programs read every decision, and can calculate its seal.
func TestClosings_HasTheLogWithItsSeals(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	read := func() (file struct {
		Success bool
		Data    struct {
			Months []struct {
				Month, ClosedBy, HeldBy, HeldNote, Seal string
				First                                   bool
				Sequence, Corrections                   int
			}
			Held    *struct{ By, Note string }
			Entries []struct {
				Seal, Sealed string
				Manifest     json.RawMessage
			}
		}
	}) {
		t.Helper()
		a := e.client.Get(closingsFile, "Accept: application/json").Want(200).Carries(map[string]string{"Content-Type": "application/json"})
		must(t, json.Unmarshal([]byte(a.Text), &file))
		return file
	}
	if file := read(); !file.Success || file.Data.Months == nil || file.Data.Held != nil || file.Data.Entries == nil || len(file.Data.Entries) > 0 {
		t.Errorf("%+v", file)
	}

	e.octoberOrders(20)
	cem, defne := e.browser("cem"), e.browser("defne")
	e.AwaitSettled(ledger.RoleExport)
	cem.Post(october+"/hold", fill(cem, october, october+"/hold", "note", `<&> "ş"`)).Leads(october + "?done=hold")
	if file := read(); file.Data.Held == nil || file.Data.Held.By != "cem" || file.Data.Held.Note != `<&> "ş"` {
		t.Errorf("%+v", file.Data.Held)
	}

	defne.Post(october+"/close", fill(defne, october, october+"/close")).Leads(october + "?done=close")
	file := read()
	m := file.Data.Months[0]
	if len(file.Data.Months) != 1 || m.Month != "2026-10" || m.ClosedBy != "defne" || m.HeldBy != "cem" || m.HeldNote != `<&> "ş"` || !m.First || m.Sequence != 2 || file.Data.Held != nil {
		t.Errorf("%+v", file)
	}

	for i, entry := range file.Data.Entries {
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(entry.Sealed))); sum != entry.Seal || !bytes.Equal(entry.Manifest, []byte(entry.Sealed)) {
			t.Errorf("entry %d: %+v", i, entry)
		}
	}

	if len(file.Data.Entries) != 2 || file.Data.Entries[1].Seal != m.Seal {
		t.Errorf("%+v", file.Data.Entries)
	}
}

// What was known of a month that was not closed then is not kept.
func TestAsOf_MonthsThatWereNotClosedThenAreRefused(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.octoberOrders(5)
	e.closeOctober()
	query := octoberDays + "&as_of=2026-10-31"
	paths := []string{balancePath, linesPath, "/payments"}
	for _, name := range reports.Names() {
		paths = append(paths, "/payments/"+name)
	}

	for _, path := range paths {
		a := e.client.Get(path + "?" + query).Want(422)
		a.Says("As of: October 2026 was not closed on 31 Oct 2026")
		if path == balancePath {
			continue
		}
		if input := a.ByID("as_of"); testenv.Attribute(input, "value") != "2026-10-31" || testenv.Attribute(input, "aria-invalid") != "true" || !testenv.Has(a.ByID("more"), "open") {
			t.Errorf("%s does not show the day", path)
		}
	}

	for _, name := range reports.Names() {
		for _, extension := range []string{".csv", ".xlsx", ".json"} {
			e.client.Get("/reports/"+name+extension+"?"+query, "Accept: */*").Want(422, "VALIDATION_FAILED", `"field":"as_of"`, "October 2026 was not closed")
		}
	}

	for filter, field := range map[string]string{"basis=both": "basis", "as_of=2099-01-01": "as_of", "as_of=x": "as_of"} {
		a := e.client.Get("/payments?" + octoberDays + "&" + filter).Want(422)
		if a.ByID(field+"-fault") == nil {
			t.Errorf("%s is not marked", filter)
		}
	}

	known := e.page("/payments/order-ledger?basis=known&" + octoberDays)
	if total := known.total(); total != "5" || !strings.Contains(known.Link("XLSX"), "basis=known") || !strings.Contains(known.Link("Exceptions"), "basis=known") {
		t.Errorf("%s rows, %s", total, known.Link("XLSX"))
	}
}
