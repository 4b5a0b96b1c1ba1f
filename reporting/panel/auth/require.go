package auth

import (
	"cmp"
	"context"
	"crypto/subtle"
	"fmt"
	"mime"
	"net/http"
	"time"

	"vendorapi/internal/delivery"
)

// maxForm bounds a form that is read for its CSRF token.
const maxForm = 1 << 20

// formPatience is how long a form may take to arrive.
const formPatience = 10 * time.Second

// Fields and headers that carry a session's CSRF token.
const (
	csrfField  = "csrf"
	csrfHeader = "X-CSRF-Token"
)

type identityKey struct{}

// IdentityOf is who asks, for handlers behind Require. Elsewhere it is nobody.
func IdentityOf(ctx context.Context) Identity {
	identity, _ := ctx.Value(identityKey{}).(Identity)
	return identity
}

// Require lets those pass who have one of the roles; without roles named,
// everybody who is somebody. A session's request that may change something must
// come from the panel's own pages and carry the session's CSRF token, in the
// header X-CSRF-Token or in the field csrf of a form, of at most 1 MB, which the
// handler then finds parsed.
//
// Refusals: 401 with WWW-Authenticate, or a way to /login for a browser that
// wants a page; 403 for another role and for a missing proof; 503 while sessions
// cannot be read.
func (g *Gate) Require(next http.Handler, roles ...Role) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		identity, err := g.Authenticate(r)
		if err == nil && len(roles) > 0 && !identity.Roles.Include(roles...) {
			err = delivery.Refuse(delivery.CodeForbidden, "this needs the role %s", Roles(roles))
		}
		if err == nil && identity.BySession() {
			err = g.demandProof(w, r, identity.CSRF)
		}
		if err != nil {
			g.turnAway(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, identity)))
	})
}

// demandProof refuses what another site may have made the browser send. Both
// proofs are asked for: either alone has browsers or settings that defeat it.
func (g *Gate) demandProof(w http.ResponseWriter, r *http.Request, csrf string) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if err := g.origins.Check(r); err != nil {
		return delivery.Refuse(delivery.CodeForbidden, "the request comes from another site")
	}
	if isForm(r) {
		if err := readForm(w, r, maxForm); err != nil {
			return err
		}
	}
	given := cmp.Or(r.Header.Get(csrfHeader), r.PostForm.Get(csrfField))
	if subtle.ConstantTimeCompare([]byte(given), []byte(csrf)) != 1 {
		return delivery.Refuse(delivery.CodeForbidden, "the request lacks the page's proof, or the page is from before you signed in; load it again")
	}
	return nil
}

func isForm(r *http.Request) bool {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && mediaType == "application/x-www-form-urlencoded"
}

// readForm reads a form of at most so many bytes, from a client that sends it
// within formPatience.
func readForm(w http.ResponseWriter, r *http.Request, most int64) error {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(formPatience)); err != nil {
		return fmt.Errorf("bound the reading of a form: %w", err)
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
	if !isForm(r) || r.ParseForm() != nil {
		return delivery.Refuse(delivery.CodeMalformedRequest, "the form cannot be read or is too large")
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("bound the reading of a form: %w", err)
	}
	return nil
}

// turnAway answers a refusal in the form that was asked for.
func (g *Gate) turnAway(w http.ResponseWriter, r *http.Request, err error) {
	switch code := delivery.CodeOf(err); {
	case !WantsPage(r):
		Refuse(w, r, g.log, err)
	case code == delivery.CodeTokenInvalid && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		redirect(w, loginPath(r.URL.RequestURI()))
	case code == delivery.CodeTokenInvalid:
		redirect(w, "/login") // what was sent is lost; it cannot be sent again with GET
	default:
		g.refusePage(w, r, err)
	}
	g.metrics.refused(err)
}
