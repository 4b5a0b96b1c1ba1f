package finance

import (
	"errors"
	"net/http"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/closing"
	"vendorapi/reporting/panel/admin"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/layout"
)

const deliveryPath = home + "/delivery"

func (p *Pages) deliveryRoutes(mux *http.ServeMux) {
	p.Handle(mux, "GET "+deliveryPath, func(w http.ResponseWriter, r *http.Request) error { return p.showDelivery(w, r, "", nil) }, auth.Finance)
	p.Handle(mux, "POST "+deliveryPath+"/url", p.forms.Handler(p.setReceiver), auth.Closer)
	p.Handle(mux, "POST "+deliveryPath+"/remove", p.forms.Handler(p.removeReceiver), auth.Closer)
}

// showDelivery shows where finance's own system is notified of reports, and a secret that was issued just now.
func (p *Pages) showDelivery(w http.ResponseWriter, r *http.Request, secret string, refused error) error {
	v := &struct {
		booksView
		Receiver admin.FinanceReceiver
		Typed    string
		Secret   string
		Sets     []archive.Delivered // the latest manifests at targets
		Unread   bool                // ClickHouse, which knows them, does not answer
	}{booksView: newBooksView(r, deliveryPath), Secret: secret}
	var err error
	if v.Receiver, err = p.admin.FinanceWebhook(r.Context()); secret != "" && err != nil {
		v.Lost, err = true, nil // the secret is shown only once
	}
	all, unread := p.archive.Deliveries(r.Context())
	for _, d := range all {
		if d.File == closing.ManifestFile && len(v.Sets) < rowsShown {
			v.Sets = append(v.Sets, d)
		}
	}
	if v.Unread = errors.Is(unread, delivery.ErrUnavailable); err == nil && !v.Unread {
		err = unread
	}
	if v.Typed = v.Receiver.URL; r.PostForm.Has("url") && refused != nil {
		v.Typed = r.PostForm.Get("url")
	}
	return p.showBooks(w, r, "delivery", "Delivery", v, &v.Lost, err, refused)
}

func (p *Pages) setReceiver(w http.ResponseWriter, r *http.Request) error {
	secret, err := p.admin.SetFinanceWebhook(r.Context(), auth.IdentityOf(r.Context()).Name, r.PostForm.Get("url"))
	p.Lists.Endpoints.Forget()
	if err != nil || secret != "" {
		return p.showDelivery(w, r, secret, err)
	}
	return layout.Redirect(w, r, deliveryPath, "receiver-moved")
}

func (p *Pages) removeReceiver(w http.ResponseWriter, r *http.Request) error {
	err := p.admin.RemoveFinanceWebhook(r.Context(), auth.IdentityOf(r.Context()).Name)
	p.Lists.Endpoints.Forget()
	if err != nil && delivery.CodeOf(err) != delivery.CodeWebhookNotConfigured {
		return p.showDelivery(w, r, "", err)
	}
	return layout.Redirect(w, r, deliveryPath, "receiver-removed")
}
