package admin

import (
	"context"
	"encoding/json"
	"net/http"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// FinanceReceiver is where finance's own system gets its webhooks; the zero value: nowhere.
type FinanceReceiver struct {
	URL     string               `json:"url"`
	State   ledger.EndpointState `json:"status"`
	Waiting int64                `json:"waitingEvents"`
}

const (
	financeWebhook = "/finance/webhook"
	reader         = "reporting" // is who only reads
)

// FinanceWebhook reads finance's receiver. Errors are Do's.
func (c *Client) FinanceWebhook(ctx context.Context) (r FinanceReceiver, err error) {
	err = c.Do(ctx, reader, http.MethodGet, financeWebhook, nil, &r)
	if delivery.CodeOf(err) == delivery.CodeWebhookNotConfigured {
		return FinanceReceiver{}, nil
	}
	return r, err
}

// SetFinanceWebhook registers finance's receiver, or moves it with what waits. The secret is there
// only when it was issued now. A URL that is not https and public is VALIDATION_FAILED; errors are Do's.
func (c *Client) SetFinanceWebhook(ctx context.Context, operator, url string) (secret string, err error) {
	var made issued
	err = c.Do(ctx, operator, http.MethodPut, financeWebhook, map[string]string{"url": url}, &made)
	return made.Secret, err
}

// RemoveFinanceWebhook removes finance's receiver and its secrets; what waits is recorded as not
// sent. WEBHOOK_NOT_CONFIGURED; other errors are Do's.
func (c *Client) RemoveFinanceWebhook(ctx context.Context, operator string) error {
	return c.Do(ctx, operator, http.MethodDelete, financeWebhook, nil, nil)
}

// ReportAvailable has finance's system told that files were delivered. It may be called again after any
// error, and whenever the caller does not know whether it was: a report's ID is one event. While finance
// has no receiver nothing is queued: WEBHOOK_NOT_CONFIGURED; other errors are Do's.
func (c *Client) ReportAvailable(ctx context.Context, operator string, r *delivery.AvailableReport) error {
	body := json.RawMessage(delivery.AppendReportAvailable(nil, r))
	return c.Do(ctx, operator, http.MethodPost, "/finance/reports/available", body, nil)
}
