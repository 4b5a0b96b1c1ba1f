package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
)

// receiving is a vendor's receiver: it answers as the test says and remembers what
// came.
type receiving struct {
	*httptest.Server
	status atomic.Int64
	says   string
	mu     sync.Mutex
	events []string // ids
	types  []string
}

func (e *env) receiver(status int, says string) *receiving {
	e.T.Helper()
	r := &receiving{says: says}
	r.status.Store(int64(status))
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		var event struct{ EventID, Event string }
		_ = json.Unmarshal(body, &event)
		r.mu.Lock()
		r.events, r.types = append(r.events, req.Header.Get("webhook-id")), append(r.types, event.Event)
		r.mu.Unlock()
		w.WriteHeader(int(r.status.Load()))
		_, _ = io.WriteString(w, r.says)
	}))

	e.T.Cleanup(r.Close)

	return r
}

func (r *receiving) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// register gives an account a receiver and returns its secret.
func (e *env) register(v vendor, target string) string {
	e.T.Helper()
	secret, _ := e.call(http.MethodPut, "/accounts/"+v.id+"/webhook", map[string]string{"url": target})["secret"].(string)
	return secret
}

//rule:decisions/webhook-url-and-secret
func TestRegisterWebhook_ShowsTheSecretOnce(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Webhook")
	page := "/webhooks/" + v.id
	e.Get(page).Want(200, "No receiver is registered", "Register")
	a := e.Submit(page, page+"/url", "url", "https://vendor.example/hook?a=1&b=2").Want(200, "whsec_", "only time")
	secret := secrets(a)[0]
	if e := e.endpoint(v); !strings.HasPrefix(secret, "whsec_") || e.URL != "https://vendor.example/hook?a=1&b=2" {
		t.Errorf("%q, %+v", secret, e)
	}

	for _, path := range []string{page, "/webhooks?text=" + v.id, "/accounts/" + v.id} {
		e.Get(path).Want(200, "vendor.example").Lacks(secret, "whsec_")
	}

	e.Get(page+"/live").Want(200, "healthy", "0 retries").Lacks("whsec_")
	e.Get(page).Want(200, "Events that wait are sent to the new URL")
	e.done(e.Submit(page, page+"/url", "url", "https://other.example/"), "webhook-moved").Lacks("whsec_")
	if e.endpoint(v).URL != "https://other.example/" {
		t.Error("the URL did not change")
	}
	if strings.Contains(e.log.String(), secret) {
		t.Error("the secret is in the panel's log")
	}
}

func TestRotateWebhookSecret_OnlyForWhatThePageShowed(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Webhook dönüşüm")
	old := e.register(v, "https://vendor.example/")
	page := "/webhooks/" + v.id
	stale := e.Get(page).Form(page+"/secret", "", "")
	version := e.endpoint(v).Version
	a := e.Submit(page, page+"/secret").Want(200, "whsec_", "only time").Lacks(old)
	secret := secrets(a)[0]
	if e.endpoint(v).Version != version+1 {
		t.Error("the ledger has the old secret")
	}

	stale.Set("once", "another")
	e.Post(page+"/secret", stale).Want(http.StatusUnprocessableEntity, "changed since").Lacks("whsec_")
	e.Get(page).Want(200, "One earlier secret still works, until").Lacks("whsec_")
	if e.endpoint(v).Version != version+1 || strings.Contains(e.log.String(), secret) {
		t.Error("rotated again, or logged")
	}

	e.Submit(page, page+"/revoke").Want(200, "whsec_", "only time").Lacks("still work")
	if left := e.endpoint(v).Earlier; len(left) != 0 {
		t.Errorf("%d earlier secrets are left", len(left))
	}
}

func TestWebhookActions_NeedAReceiver(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Webhook yok")
	page := "/webhooks/" + v.id
	proof := e.Get(page).Form(page+"/url", "", "")
	for _, path := range []string{"/test", "/secret", "/limits", "/replay"} {
		form := url.Values{"csrf": proof["csrf"], "once": proof["once"], "status": {"undelivered"}}
		if path == "/limits" {
			form.Set("maxInFlight", "2")
		}
		e.Post(page+path, form).Want(http.StatusNotFound, "WEBHOOK_NOT_CONFIGURED", "Register a receiver")
	}
}

func TestWebhookActions_TestAndReplay(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Tekrar")
	r := e.receiver(200, "")
	e.register(v, r.URL)
	page := "/webhooks/" + v.id
	e.done(e.Submit(page, page+"/test"), "webhook-tested")
	e.await("the event and its attempt in the log", func() bool { return len(r.got()) >= 1 && strings.Contains(e.Get(page+"/live").Text, r.got()[0]) })
	e.Get(page+"/live").Want(200, "webhook.test", "delivered", `name="eventIds"`).Lacks("<html")
	e.Get("/webhooks?text="+v.id).Want(200, ">healthy<", "100.0 %")
	event := r.got()[0]
	e.done(e.Press(page, page+"/replay", "eventIds", event), "replayed")
	e.await("the event again", func() bool { return len(r.got()) >= 2 && r.got()[1] == event })

	e.done(e.Press(page, page+"/replay", "status", "undelivered"), "replayed-none")
	e.done(e.Press(page, page+"/replay", "status", "notSent"), "replayed-none")

	form := e.Get(page).Form(page+"/replay", "status", "undelivered")
	form.Set("status", "delivered")
	e.Post(page+"/replay", form).Want(http.StatusUnprocessableEntity, "must be undelivered or notSent")
	form.Del("status")
	form.Set("eventIds", "evt_unknown")
	e.Post(page+"/replay", form).Want(http.StatusNotFound, "EVENT_NOT_FOUND")
	form.Del("eventIds")
	form.Set("since", delivery.FormatTime(e.account(v).CreatedAt)[:19]) // as the browser sends local time
	e.done(e.Post(page+"/replay", form), "replayed")
	e.await("everything again", func() bool { return len(r.got()) >= 3 })
}

func TestReplay_SendsWhatHadNoReceiver(t *testing.T) {
	e := newEnv(t)
	v, fleet := e.newAccount("Alıcısız"), e.newFleet("Alıcısız filo")
	e.activeStore(v, "s1", "Şube", fleet) // store.activated has nowhere to go
	page := "/webhooks/" + v.id
	e.await("the event in the log", func() bool { return strings.Contains(e.Get(page).Text, "not sent</span>") })
	e.Get(page+"?status=notSent").Want(200, "not sent</span>")
	e.Get(page+"?status=delivered").Want(200, "No attempts")
	r := e.receiver(200, "")
	e.register(v, r.URL)
	e.done(e.Press(page, page+"/replay", "status", "notSent"), "replayed")
	e.await("the event", func() bool { return len(r.got()) >= 1 })
	e.await("its attempt", func() bool { return strings.Contains(e.Get(page+"?status=delivered").Text, "store.activated") })
}

// What a receiver answered may be about a recipient: who looks at it is noted, and its refreshes are the same view.
func TestWebhook_WhoLooksAtAnswersIsNoted(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Yanıtlar")
	e.register(v, e.receiver(500, "no such person").URL)
	page := "/webhooks/" + v.id
	viewed := func() (n int) {
		must(t, e.ledger.Streams.EachEntry(t.Context(), ledger.RoleExport, time.Time{}, func(batch []partitions.Entry) error {
			for _, one := range batch {
				if a := one.Audit; a != nil && a.Action == "recipient viewed" && a.Account == v.account() && a.Actor != "" && a.Order.IsZero() {
					n++
				}
			}
			return nil
		}))

		return n
	}

	e.Get(page).Want(200)
	if n := viewed(); n != 0 {
		t.Errorf("%d entries of a page without answers", n)
	}

	e.call(http.MethodPost, "/accounts/"+v.id+"/webhook/test", nil)
	e.await("the attempt", func() bool { return strings.Contains(e.Get(page+"/live").Text, "no such person") })
	e.Get(page + "/live").Want(200)
	if n := viewed(); n != 1 {
		t.Errorf("%d entries of a page that refreshes itself", n)
	}

	e.Get(page).Want(200, "no such person")
	e.Get(page + "?status=delivered").Want(200).Lacks("no such person")
	if n := viewed(); n != 2 {
		t.Errorf("%d entries after it was opened again", n)
	}
}

func TestWebhooks_WorstFirstAsTheAPIHasThem(t *testing.T) {
	e := newEnv(t)
	gone := e.receiver(http.StatusGone, "")
	failing := e.receiver(http.StatusInternalServerError, "")
	mark := unique("Sıra") + " "
	var ids []string
	for i, r := range []*receiving{nil, failing, gone, nil, nil} {
		v := e.newAccount(fmt.Sprint(mark, i))
		ids = append(ids, v.id)
		if r == nil {
			e.register(v, "https://vendor.example/")
			continue
		}

		e.register(v, r.URL)
		e.call(http.MethodPost, "/accounts/"+v.id+"/webhook/test", nil)
		e.await("an attempt", func() bool { return e.endpoint(v).State != partitions.EndpointHealthy })
	}

	list := e.Get("/webhooks?text=" + url.QueryEscape(mark)).Want(200)
	var states, shown, listed []string
	for _, row := range testenv.All(list.Tree(), "tr")[1:] {
		states = append(states, testenv.Words(testenv.All(testenv.All(row, "td")[0], "span")[1]))
		shown = append(shown, strings.TrimPrefix(testenv.Attribute(testenv.All(row, "a")[0], "href"), "/webhooks/"))
	}

	if want := []string{"gone", "failing", "healthy", "healthy", "healthy"}; !slices.Equal(states, want) {
		t.Errorf("%q, want %q", states, want)
	}

	for _, w := range e.call(http.MethodGet, "/webhooks", nil)["webhooks"].([]any) {
		if id := w.(map[string]any)["accountId"].(string); slices.Contains(ids, id) {
			listed = append(listed, id)
		}
	}

	if !slices.Equal(shown, listed) {
		t.Errorf("the page has %q, the API %q", shown, listed)
	}

	e.Get("/webhooks?state=failing&text="+url.QueryEscape(mark)).Want(200, mark+"1").Lacks(mark+"0", mark+"2")
	e.Get("/webhooks/live?state=gone&text="+url.QueryEscape(mark)).Want(200, mark+"2").Lacks(mark+"0", mark+"1", "<html")
}
