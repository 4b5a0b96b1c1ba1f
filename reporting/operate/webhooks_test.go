package operate

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

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// receiving is a vendor's receiver: it answers as it is told and remembers what
// came.
type receiving struct {
	*httptest.Server
	status atomic.Int64
	says   string
	mu     sync.Mutex
	events []string // ids
	types  []string
}

func (s *scene) receiver(status int, says string) *receiving {
	s.Helper()
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
	s.Cleanup(r.Close)
	return r
}

func (r *receiving) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// register gives an account a receiver and returns its secret.
func (s *scene) register(v vendor, target string) string {
	s.Helper()
	secret, _ := s.call(http.MethodPut, "/accounts/"+v.id+"/webhook", map[string]string{"url": target})["secret"].(string)
	return secret
}

//rule:decisions/webhook-url-and-secret
func TestRegisterWebhook_ShowsTheSecretOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Webhook")
	page := "/webhooks/" + v.id
	b.get(page).want(200, "No receiver is registered", "Register")
	a := b.submit(page, page+"/url", "url", "https://vendor.example/hook?a=1&b=2").want(200, "whsec_", "only time")
	secret := words(all(all(a.tree(), "section")[0], "code")[0])
	if e := s.endpoint(v); !strings.HasPrefix(secret, "whsec_") || e.URL != "https://vendor.example/hook?a=1&b=2" {
		t.Errorf("%q, %+v", secret, e)
	}
	for _, path := range []string{page, "/webhooks?text=" + v.id, "/accounts/" + v.id} {
		b.get(path).want(200, "vendor.example").without(secret, "whsec_")
	}
	b.get(page+"/live").want(200, "healthy").without("whsec_")
	b.submit(page, page+"/url", "url", "https://other.example/").wantDone(b, "webhook-moved").without("whsec_")
	if s.endpoint(v).URL != "https://other.example/" {
		t.Error("the URL did not change")
	}
	if strings.Contains(s.log.String(), secret) {
		t.Error("the secret is in the panel's log")
	}
}

func TestRegisterWebhook_Refusals(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Webhook hatalı")
	page := "/webhooks/" + v.id
	for typed, fault := range map[string]string{
		"": "must be an absolute URL", "ftp://vendor.example/": "must begin with https://", "https://u:p@vendor.example/": "must not contain credentials",
		"https://10.0.0.1/": "must name a public host", `https://vendor.example/"><script>alert(1)</script>#x`: "must be an absolute URL",
	} {
		a := b.submit(page, page+"/url", "url", typed).want(http.StatusUnprocessableEntity)
		if a.value("url") != typed || a.fault("url") == "" || typed == "" && a.fault("url") != fault {
			t.Errorf("%q: %q, field %q", typed, a.fault("url"), a.value("url"))
		}
	}
	if _, err := s.ledger.WebhookEndpoint(t.Context(), v.account()); delivery.CodeOf(err) != delivery.CodeWebhookNotConfigured {
		t.Error(err)
	}
}

func TestRotateWebhookSecret_OnlyForWhatThePageShowed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Webhook dönüşüm")
	old := s.register(v, "https://vendor.example/")
	page := "/webhooks/" + v.id
	stale := b.get(page).form(page+"/secret", "", "")
	version := s.endpoint(v).Version
	a := b.submit(page, page+"/secret").want(200, "whsec_", "only time").without(old)
	secret := words(all(all(a.tree(), "section")[0], "code")[0])
	if s.endpoint(v).Version != version+1 {
		t.Error("the ledger has the old secret")
	}
	stale.Set("once", "another")
	b.post(page+"/secret", stale).want(http.StatusUnprocessableEntity, "changed since").without("whsec_")
	b.get(page).without("whsec_")
	if s.endpoint(v).Version != version+1 || strings.Contains(s.log.String(), secret) {
		t.Error("rotated again, or logged")
	}
}

func TestWebhookActions_NeedAReceiver(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Webhook yok")
	page := "/webhooks/" + v.id
	proof := b.get(page).form(page+"/url", "", "")
	for _, path := range []string{"/test", "/secret", "/limits", "/replay"} {
		form := url.Values{"csrf": proof["csrf"], "once": proof["once"], "status": {"undelivered"}}
		if path == "/limits" {
			form.Set("maxInFlight", "2")
		}
		b.post(page+path, form).want(http.StatusNotFound, "WEBHOOK_NOT_CONFIGURED", "Register a receiver")
	}
}

func TestTestWebhook_AppearsInTheLog(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Test olayı")
	r := s.receiver(200, "")
	s.register(v, r.URL)
	page := "/webhooks/" + v.id
	b.submit(page, page+"/test").wantDone(b, "webhook-tested")
	s.await("the test event", func() bool { return len(r.got()) == 1 })
	s.await("its attempt in the log", func() bool { return strings.Contains(b.get(page+"/live").text, r.got()[0]) })
	b.get(page+"/live").want(200, "webhook.test", "delivered").without("<html")
	b.get("/webhooks?text="+v.id).want(200, ">healthy<", "100.0 %")
}

func TestReplay_OneEventFromTheLogAndAllOfAStatus(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Tekrar")
	r := s.receiver(200, "")
	s.register(v, r.URL)
	page := "/webhooks/" + v.id
	b.submit(page, page+"/test").wantDone(b, "webhook-tested")
	s.await("the event", func() bool { return len(r.got()) == 1 && strings.Contains(b.get(page).text, `name="eventIds"`) })
	event := r.got()[0]
	b.press(page, page+"/replay", "eventIds", event).wantDone(b, "replayed")
	s.await("the event again", func() bool { return len(r.got()) == 2 && r.got()[1] == event })

	b.press(page, page+"/replay", "status", "undelivered").wantDone(b, "replayed-none")
	b.press(page, page+"/replay", "status", "notSent").wantDone(b, "replayed-none")

	form := b.get(page).form(page+"/replay", "status", "undelivered")
	form.Set("status", "delivered")
	b.post(page+"/replay", form).want(http.StatusUnprocessableEntity, "must be undelivered or notSent")
	form.Del("status")
	form.Set("eventIds", "evt_unknown")
	b.post(page+"/replay", form).want(http.StatusNotFound, "EVENT_NOT_FOUND")
	form.Del("eventIds")
	form.Set("since", "yesterday")
	if a := b.post(page+"/replay", form).want(http.StatusUnprocessableEntity); a.fault("since") == "" || a.value("since") != "yesterday" {
		t.Error(a.brief())
	}
	form.Set("since", delivery.FormatTime(s.account(v).CreatedAt)[:19]) // as the browser sends local time
	b.post(page+"/replay", form).wantDone(b, "replayed")
	s.await("everything again", func() bool { return len(r.got()) == 3 })
}

func TestReplay_SendsWhatHadNoReceiver(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v, fleet := s.newAccount("Alıcısız"), s.newFleet("Alıcısız filo")
	s.activeStore(v, "s1", "Şube", fleet) // store.activated has nowhere to go
	page := "/webhooks/" + v.id
	s.await("the event in the log", func() bool { return strings.Contains(b.get(page).text, "not sent</span>") })
	b.get(page+"?status=notSent").want(200, "not sent</span>")
	b.get(page+"?status=delivered").want(200, "No attempts")
	r := s.receiver(200, "")
	s.register(v, r.URL)
	b.press(page, page+"/replay", "status", "notSent").wantDone(b, "replayed")
	s.await("the event", func() bool { return len(r.got()) == 1 })
	s.await("its attempt", func() bool { return strings.Contains(b.get(page+"?status=delivered").text, "store.activated") })
}

func TestLimitWebhook(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Alıcı sınırları")
	s.register(v, "https://vendor.example/")
	page := "/webhooks/" + v.id
	b.submit(page, page+"/limits", "maxInFlight", "4", "maxPerSecond", " 250 ").wantDone(b, "webhook-limited")
	if got := s.endpoint(v).Limits; got != (ledger.EndpointLimits{InFlight: 4, PerSecond: 250}) {
		t.Errorf("%+v", got)
	}
	b.submit(page, page+"/limits", "maxInFlight", "").wantDone(b, "webhook-limited")
	if got := s.endpoint(v).Limits; got != (ledger.EndpointLimits{PerSecond: 250}) {
		t.Errorf("%+v", got)
	}
	for field, typed := range map[string]string{"maxInFlight": "1025", "maxPerSecond": "fast"} {
		a := b.submit(page, page+"/limits", field, typed).want(http.StatusUnprocessableEntity)
		if !strings.HasPrefix(a.fault(field), "must be a whole number") || a.value(field) != typed {
			t.Errorf("%s: %q %q", field, a.fault(field), a.value(field))
		}
	}
}

func TestWebhooks_WorstFirstAsTheAPIHasThem(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	gone := s.receiver(http.StatusGone, "")
	failing := s.receiver(http.StatusInternalServerError, "")
	mark := "Sıra " + t.Name()
	var ids []string
	for i, r := range []*receiving{nil, failing, gone, nil, nil} {
		v := s.newAccount(fmt.Sprint(mark, i))
		ids = append(ids, v.id)
		if r == nil {
			s.register(v, "https://vendor.example/")
			continue
		}
		s.register(v, r.URL)
		s.call(http.MethodPost, "/accounts/"+v.id+"/webhook/test", nil)
		s.await("an attempt", func() bool { return s.endpoint(v).State != ledger.EndpointHealthy })
	}
	list := b.get("/webhooks?text=" + url.QueryEscape(mark)).want(200)
	var states, ours, theirs []string
	for _, row := range all(list.tree(), "tr")[1:] {
		states = append(states, words(all(all(row, "td")[0], "span")[1]))
		ours = append(ours, strings.TrimPrefix(attribute(all(row, "a")[0], "href"), "/webhooks/"))
	}
	if want := []string{"gone", "failing", "healthy", "healthy", "healthy"}; !slices.Equal(states, want) {
		t.Errorf("%q, want %q", states, want)
	}
	for _, w := range s.call(http.MethodGet, "/webhooks", nil)["webhooks"].([]any) {
		if id := w.(map[string]any)["accountId"].(string); slices.Contains(ids, id) {
			theirs = append(theirs, id)
		}
	}
	if !slices.Equal(ours, theirs) {
		t.Errorf("the page has %q, the API %q", ours, theirs)
	}
	b.get("/webhooks?state=failing&text="+url.QueryEscape(mark)).want(200, mark+"1").without(mark+"0", mark+"2")
	b.get("/webhooks/live?state=gone&text="+url.QueryEscape(mark)).want(200, mark+"2").without(mark+"0", mark+"1", "<html")
}
