package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
)

// Finance's receiver is one of the system: its tests are one.
func TestFinance_IsToldOfReportsAndOperatedOnThePages(t *testing.T) {
	e := newEnv(t)
	c, page := e.pages.admin, "/webhooks/"+delivery.FinanceAccount.String()
	report := &delivery.AvailableReport{ID: unique("closing"), Kind: delivery.ReportClosing, Month: "2026-10", At: time.Now(),
		Seal:  delivery.Seal{Sequence: 7, SHA256: strings.Repeat("0a", 32)},
		Files: []delivery.DeliveredFile{{Target: "erp", Name: "şubeler <&>.csv", SHA256: strings.Repeat("0b", 32)}}}
	if r, err := c.FinanceWebhook(t.Context()); r != (FinanceReceiver{}) || err != nil {
		t.Errorf("%+v, %v", r, err)
	}

	for what, err := range map[string]error{"report": c.ReportAvailable(t.Context(), "deniz", report), "removal": c.RemoveFinanceWebhook(t.Context(), "deniz")} {
		if delivery.CodeOf(err) != delivery.CodeWebhookNotConfigured {
			t.Errorf("%s: %v", what, err)
		}
	}

	closer := e.browser("defne")
	submit := func(action string, changes ...string) *testenv.Answer {
		form := closer.Page(page).Form(action, "", "")
		for i := 0; i < len(changes); i += 2 {
			form.Set(changes[i], changes[i+1])
		}
		return closer.Post(action, form)
	}

	closer.Get(page).Want(200, "Webhook of Finance", "Register a receiver").Lacks("/accounts/" + delivery.FinanceAccount.String())

	erp := e.receiver(200, "")
	if _, err := c.SetFinanceWebhook(t.Context(), "deniz", "https://10.0.0.1/"); delivery.CodeOf(err) != delivery.CodeValidationFailed {
		t.Errorf("%v", err)
	}
	if secret, err := c.SetFinanceWebhook(t.Context(), "deniz", erp.URL); !strings.HasPrefix(secret, "whsec_") || err != nil {
		t.Errorf("issued %q, %v", secret, err)
	}
	if secret, err := c.SetFinanceWebhook(t.Context(), "deniz", erp.URL); secret != "" || err != nil {
		t.Errorf("issued %q again, %v", secret, err)
	}

	for range 2 {
		must(t, c.ReportAvailable(t.Context(), "reporting", report))
	}

	wrong := *report
	wrong.Kind = "monthly"
	if err := c.ReportAvailable(t.Context(), "reporting", &wrong); delivery.CodeOf(err) != delivery.CodeValidationFailed {
		t.Errorf("%v", err)
	}

	e.await("the report", func() bool { return len(erp.got()) >= 1 })
	submit(page + "/test").Leads(page + "?done=webhook-tested")
	e.await("the test", func() bool { return len(erp.got()) >= 2 })
	if erp.types[0] != "report.available" || erp.types[1] != "webhook.test" {
		t.Errorf("finance got %v", erp.types)
	}

	e.await("the log", func() bool { return strings.Contains(closer.Get(page).Text, "report.available") })
	submit(page+"/replay", "eventIds", erp.got()[0]).Leads(page + "?done=replayed")
	e.await("the replay", func() bool { return slices.Equal(erp.got()[2:], erp.got()[:1]) })
	submit(page+"/secret").Want(200, "whsec_", "only time")
	if r, err := c.FinanceWebhook(t.Context()); r.URL != erp.URL || r.State != partitions.EndpointHealthy || err != nil {
		t.Errorf("%+v, %v", r, err)
	}

	// It is shown where receivers are, and nowhere else.
	closer.Get("/webhooks?text=finance").Want(200, ">Finance</a>")

	// An operator who is no closer neither sees nor moves it.
	deliveredBefore := len(erp.got())
	for _, path := range []string{"/webhooks", "/webhooks?text=finance", "/webhooks?text=" + delivery.FinanceAccount.String(), "/webhooks/live"} {
		e.Get(path).Want(200).Lacks(">Finance</a>", erp.URL)
	}

	proof := e.Get("/accounts").Form("/accounts", "", "").Get("csrf")
	stolen := e.receiver(200, "")
	for _, pattern := range e.patterns("GET") {
		if path := filled(pattern, vendor{id: delivery.FinanceAccount.String()}, delivery.FleetID{}); strings.Contains(pattern, "/webhooks/{account}") {
			e.Get(path).Want(http.StatusForbidden, "needs the role closer").Lacks(erp.URL, "report.available", "whsec_")
		}
	}

	for _, pattern := range e.patterns("POST") {
		if path := filled(pattern, vendor{id: delivery.FinanceAccount.String()}, delivery.FleetID{}); strings.Contains(pattern, "{account}") {
			form := url.Values{"csrf": {proof}, "once": {unique("once")}, "url": {stolen.URL}, "eventIds": {erp.got()[0]}, "maxInFlight": {"1"}, "version": {"1"}}
			e.Post(path, form).Want(http.StatusForbidden, "needs the role closer").Lacks(erp.URL, "whsec_")
		}
	}

	if r, err := c.FinanceWebhook(t.Context()); r.URL != erp.URL || len(erp.got()) != deliveredBefore || len(stolen.got()) != 0 || err != nil {
		t.Errorf("%+v, %d events, %d of them elsewhere, %v", r, len(erp.got()), len(stolen.got()), err)
	}

	e.Get("/accounts?text=" + delivery.FinanceAccount.String()).Want(200).Lacks("Finance</a>")
	for _, path := range []string{"", "/use"} {
		closer.Get("/accounts/" + delivery.FinanceAccount.String() + path).Want(http.StatusNotFound)
	}

	must(t, c.RemoveFinanceWebhook(t.Context(), "deniz"))
	if r, err := c.FinanceWebhook(t.Context()); r != (FinanceReceiver{}) || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
}
