package admin

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
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
	e.Get(page).Want(200, "Webhook of Finance", "Register a receiver").Lacks("/accounts/" + delivery.FinanceAccount.String())

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
	e.done(e.Submit(page, page+"/test"), "webhook-tested")
	e.await("the test", func() bool { return len(erp.got()) >= 2 })
	if erp.types[0] != "report.available" || erp.types[1] != "webhook.test" {
		t.Errorf("finance got %v", erp.types)
	}
	e.await("the log", func() bool { return strings.Contains(e.Get(page).Text, "report.available") })
	e.done(e.Submit(page, page+"/replay", "eventIds", erp.got()[0]), "replayed")
	e.await("the replay", func() bool { return slices.Equal(erp.got()[2:], erp.got()[:1]) })
	e.Submit(page, page+"/secret").Want(200, "whsec_", "only time")
	if r, err := c.FinanceWebhook(t.Context()); r.URL != erp.URL || r.State != ledger.EndpointHealthy || err != nil {
		t.Errorf("%+v, %v", r, err)
	}

	// It is shown where receivers are, and nowhere else.
	e.Get("/webhooks?text=finance").Want(200, ">Finance</a>")
	e.Get("/accounts?text=" + delivery.FinanceAccount.String()).Want(200).Lacks("Finance</a>")
	for _, path := range []string{"", "/use"} {
		e.Get("/accounts/" + delivery.FinanceAccount.String() + path).Want(http.StatusNotFound)
	}
	must(t, c.RemoveFinanceWebhook(t.Context(), "deniz"))
	if r, err := c.FinanceWebhook(t.Context()); r != (FinanceReceiver{}) || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
}
