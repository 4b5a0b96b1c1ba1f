package finance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth/authenv"
)

// gateway answers as the admin API does where finance's receiver is concerned
// (reporting/panel/admin tests the client with the gateway itself).
type gateway struct {
	mu        sync.Mutex
	url       string
	operators []string
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	answer := func(status int, data string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"success":%t,"message":"url must be https","data":%s}`, status == 200, data)
	}

	if r.Method != http.MethodGet {
		g.operators = append(g.operators, r.Method+" "+r.Header.Get("X-Operator"))
	}

	var body struct{ URL string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch {
	case r.URL.Path != "/api/admin/v1/finance/webhook":
		answer(404, `{"errorCode":"NOT_FOUND"}`)
	case r.Method == http.MethodPut && body.URL == "http://erp.example":
		answer(422, `{"errorCode":"VALIDATION_FAILED","fields":[{"field":"url","message":"must be https"}]}`)
	case r.Method == http.MethodPut && g.url == "":
		g.url = body.URL
		answer(200, `{"secret":"whsec_once"}`)
	case r.Method == http.MethodPut:
		g.url = body.URL
		answer(200, `{}`)
	case g.url == "":
		answer(404, `{"errorCode":"WEBHOOK_NOT_CONFIGURED"}`)
	case r.Method == http.MethodDelete:
		g.url = ""
		answer(200, `{}`)
	default:
		answer(200, fmt.Sprintf(`{"url":%q,"status":"healthy","waitingEvents":3}`, g.url))
	}
}

func TestDelivery_ReceiverIsSetAndRemovedByAClosersForm(t *testing.T) {
	t.Parallel()

	e, g := newEnv(t), new(gateway)
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	e.gateway = server.URL
	e.serve(e.Archive)
	cem, ayse := e.browser("cem"), e.browser("ayse")
	const set, remove = deliveryPath + "/url", deliveryPath + "/remove"
	ayse.Page(deliveryPath).Says("No receiver is registered", "People with the role closer can change it").Lacks(set, remove)
	proof := fill(ayse, deliveryPath, "/logout")["csrf"]
	for _, action := range []string{set, remove} {
		ayse.Post(action, url.Values{"csrf": proof, "once": {"1"}, "url": {"https://erp.example"}}).Want(http.StatusForbidden)
		e.client.Post(action, url.Values{"once": {"1"}, "url": {"https://erp.example"}}).Want(http.StatusForbidden)
	}

	a := cem.Post(set, fill(cem, deliveryPath, set, "url", "http://erp.example")).Want(422).Says("must be https")
	if a.ByID("url-fault") == nil || a.Form(set, "", "").Get("url") != "http://erp.example" {
		t.Error("what was typed is not shown again")
	}

	form := fill(cem, deliveryPath, set, "url", "https://erp.example")
	for range 2 { // a double click gets the secret, too
		cem.Post(set, form).Want(200, "whsec_once").Says("This is the only time that the secret is shown.", "https://erp.example", "healthy", "Waiting events 3")
	}

	ayse.Page(deliveryPath).Says("https://erp.example").Lacks("whsec_")
	cem.Post(set, fill(cem, deliveryPath, set, "url", "https://erp2.example")).Leads(deliveryPath + "?done=receiver-moved")
	cem.Post(remove, fill(cem, deliveryPath, remove)).Leads(deliveryPath + "?done=receiver-removed")
	cem.Page(deliveryPath+"?done=receiver-removed").Says("Finance has no receiver any more", "No receiver is registered")
	if got := fmt.Sprint(g.operators); got != "[PUT cem PUT cem PUT cem DELETE cem]" {
		t.Error(got)
	}

	server.Close()
	cem.Page(deliveryPath).Says("the gateway does not answer")
	cem.Post(set, form).Want(200, "whsec_once") // the first answer
	form.Set("once", "another showing")
	cem.Post(set, form).Want(http.StatusServiceUnavailable).Says("It is not known whether this was done, because the gateway does not answer")
	e.client.Get(deliveryPath, authenv.As("operator")).Want(http.StatusForbidden)
}

// What is pending is shown with its last error, and what was delivered with when it was announced.
func TestDelivery_ShowsWhatIsPendingAndWhy(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	server := httptest.NewServer(new(gateway))
	t.Cleanup(server.Close)
	e.gateway = server.URL
	e.serve(e.Archive)
	e.pages.Targets = []string{"erp", "archive"}
	at := time.Date(2026, 11, 3, 4, 0, 0, 0, time.UTC)
	testenv.Must(t, e.Archive.RecordDeliverySets(t.Context(), []archive.DeliverySet{
		{Target: "erp", Name: "2026-11-02-daily", Version: 1, ChangedAt: at, DueAt: at, Folder: "2026-11-02-daily-2", Manifest: "0123456789abcdef", DeliveredAt: at, AnnouncedAt: at.Add(time.Minute)},
		{Target: "erp", Name: "2026-10-closing-000002", Version: 1, ChangedAt: at, DueAt: at, Error: "no room <at> the target"},
		{Target: "archive", Name: "2026-10-closing-000002", Version: 1, ChangedAt: at, DueAt: at, Folder: "2026-10-closing-000002", DeliveredAt: at, Error: "the gateway refuses"},
		{Target: "erp", Name: "2099-11-02-daily", Version: 1, ChangedAt: at, DueAt: at.AddDate(73, 0, 0)},
		{Target: "", Name: "2026-10-closing-000002", Version: 1, ChangedAt: at, DueAt: at},
	}))

	a := e.browser("ayse").Page(deliveryPath)
	pending := testenv.Words(a.ByID("pending").Parent)
	for _, want := range []string{"2026-10-closing-000002erp3 Nov 2026 07:00:00no room <at> the target", "2026-10-closing-000002archive3 Nov 2026 07:00:00the gateway refuses"} {
		if !strings.Contains(pending, want) {
			t.Errorf("pending: no %q in %s", want, pending)
		}
	}

	delivered := testenv.Words(a.ByID("sets").Parent)
	for _, want := range []string{"2026-11-02-daily-2erp3 Nov 2026 07:00:003 Nov 2026 07:01:000123456789ab…"} {
		if !strings.Contains(delivered, want) {
			t.Errorf("delivered: no %q in %s", want, delivered)
		}
	}

	if n := strings.Count(pending, "2026-10-closing"); n != 2 || strings.Contains(pending+delivered, "2099") || strings.Contains(delivered, "closing") {
		t.Errorf("pending: %s\ndelivered: %s", pending, delivered)
	}
}

// What a target did not get before it was taken out of deliver.targets is pending no longer. The page says how much
// it is. What such a target got, or is still announced, is shown like that of others.
func TestDelivery_CountsWhatATargetThatIsGoneDidNotGet(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.pages.Targets = []string{"erp"}
	at := time.Date(2026, 11, 3, 4, 0, 0, 0, time.UTC)
	testenv.Must(t, e.Archive.RecordDeliverySets(t.Context(), []archive.DeliverySet{
		{Target: "gone", Name: "2026-10-31-daily", Version: 1, ChangedAt: at, DueAt: at, Folder: "2026-10-31-daily", DeliveredAt: at, AnnouncedAt: at},
		{Target: "gone", Name: "2026-11-01-daily", Version: 1, ChangedAt: at, DueAt: at, Folder: "2026-11-01-daily", DeliveredAt: at, Error: "the gateway refuses"},
		{Target: "gone", Name: "2026-11-02-daily", Version: 1, ChangedAt: at, DueAt: at, Error: "the target does not answer"},
		{Target: "gone", Name: "2026-10-closing-000002", Version: 1, ChangedAt: at, DueAt: at},
		{Target: "gone before", Name: "2026-10-closing-000002", Version: 1, ChangedAt: at, DueAt: at},
		{Target: "erp", Name: "2026-10-closing-000002", Version: 1, ChangedAt: at, DueAt: at},
	}))

	a := e.browser("ayse").Page(deliveryPath)

	section := func(id string) string { return testenv.Words(a.ByID(id).Parent) }
	if text := section("pending"); strings.Count(text, "2026-") != 2 || !strings.Contains(text, "2026-10-closing-000002erp") || !strings.Contains(text, "2026-11-01-dailygone") {
		t.Errorf("pending: %s", text)
	}
	if text := section("dropped"); !strings.HasSuffix(text, "gone: 2 sets of filesgone before: 1 set of files") {
		t.Errorf("dropped: %s", text)
	}
	if text := section("sets"); !strings.Contains(text, "2026-10-31-dailygone") {
		t.Errorf("delivered: %s", text)
	}
}
