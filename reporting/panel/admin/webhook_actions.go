package admin

import (
	"net/http"
	"strconv"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/adminapi"
	"vendorapi/reporting/panel/layout"
)

// actOnWebhook is one change of an account's receiver and, unless the answer is
// to be shown, the way back to its page.
func (p *Pages) actOnWebhook(w http.ResponseWriter, r *http.Request, method, path, sentence string, body any) error {
	id, err := accountID(r)
	if err != nil {
		return err
	}
	if err := p.change(r, method, webhookAPI(id, path), body, nil); err != nil {
		return p.answerWebhook(w, r, "", err)
	}
	return layout.Redirect(w, r, webhookPath(id), sentence)
}

func webhookAPI(id delivery.AccountID, path string) string {
	return adminapi.Path("accounts", id.String(), "webhook") + path
}

// registerWebhook is POST /webhooks/{account}/url: the first URL issues a
// secret.
func (p *Pages) registerWebhook(w http.ResponseWriter, r *http.Request) error {
	id, err := accountID(r)
	if err != nil {
		return err
	}
	var issued struct{ Secret string }
	err = p.change(r, http.MethodPut, webhookAPI(id, ""), map[string]string{"url": r.PostForm.Get("url")}, &issued)
	if err == nil && issued.Secret == "" {
		return layout.Redirect(w, r, webhookPath(id), "webhook-moved")
	}
	return p.answerWebhook(w, r, issued.Secret, err)
}

// rotateWebhookSecret is POST /webhooks/{account}/secret.
func (p *Pages) rotateWebhookSecret(w http.ResponseWriter, r *http.Request) error {
	return p.newWebhookSecret(w, r, nil)
}

// revokeWebhookSecrets is POST /webhooks/{account}/revoke.
func (p *Pages) revokeWebhookSecrets(w http.ResponseWriter, r *http.Request) error {
	return p.newWebhookSecret(w, r, revokeOld)
}

// newWebhookSecret is for the version of the receiver that the page showed, so that
// what is ended is what the page said.
func (p *Pages) newWebhookSecret(w http.ResponseWriter, r *http.Request, body any) error {
	id, err := accountID(r)
	if err != nil {
		return err
	}
	endpoint, err := p.ledger.WebhookEndpoint(r.Context(), id)
	if err != nil {
		return p.answerWebhook(w, r, "", err)
	}
	if err := sameVersion(r, uint64(endpoint.Version)); err != nil {
		return p.answerWebhook(w, r, "", err)
	}
	var issued struct{ Secret string }
	err = p.change(r, http.MethodPost, webhookAPI(id, "/rotate"), body, &issued)
	return p.answerWebhook(w, r, issued.Secret, err)
}

// sameVersion refuses a form about a record that was changed since the form was
// shown.
func sameVersion(r *http.Request, version uint64) error {
	if r.PostForm.Get("version") == strconv.FormatUint(version, 10) {
		return nil
	}
	return delivery.Refuse(delivery.CodeValidationFailed,
		"This was changed since the page was shown, so nothing was done. Look at it as it is now, then decide.")
}

// testWebhook is POST /webhooks/{account}/test.
func (p *Pages) testWebhook(w http.ResponseWriter, r *http.Request) error {
	return p.actOnWebhook(w, r, http.MethodPost, "/test", "webhook-tested", nil)
}

// limitWebhook is POST /webhooks/{account}/limits: those that were changed in the
// form. What was emptied is the default again.
func (p *Pages) limitWebhook(w http.ResponseWriter, r *http.Request) error {
	body := changes(r.PostForm, numberOrNull, "maxInFlight", "maxPerSecond")
	if len(body) == 0 {
		return unchanged(w, r)
	}
	return p.actOnWebhook(w, r, http.MethodPatch, "", "webhook-limited", body)
}

// replayEvents is POST /webhooks/{account}/replay: one event by its id, all of a
// status, or all since a time, whichever the pressed button stands for.
func (p *Pages) replayEvents(w http.ResponseWriter, r *http.Request) error {
	id, err := accountID(r)
	if err != nil {
		return err
	}
	body := map[string]any{}
	switch form := r.PostForm; {
	case form.Has("eventIds"):
		body["eventIds"] = form["eventIds"]
	case form.Has("status"):
		body["status"] = form.Get("status")
	default:
		body["since"] = form.Get("since")
	}
	var answer struct{ Replayed int }
	if err := p.change(r, http.MethodPost, webhookAPI(id, "/replay"), body, &answer); err != nil {
		return p.answerWebhook(w, r, "", err)
	}
	if answer.Replayed == 0 {
		return layout.Redirect(w, r, webhookPath(id), "replayed-none")
	}
	return layout.Redirect(w, r, webhookPath(id), "replayed")
}
