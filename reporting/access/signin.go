package access

import (
	"context"
	"net/http"
	"strings"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// maxSignIn bounds the form of the sign-in page, in bytes.
const maxSignIn = 8 << 10

// Handler serves what belongs to signing in and out:
//
//	GET  /login?next=   the page
//	POST /login         user, password, next
//	POST /logout        csrf
//	GET  /login.css
//
// next is where to go from there, a path of this panel; anything else leads to
// "/".
func (g *Gate) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) {
		g.page(w, r, http.StatusOK, loginPage{Next: r.URL.Query().Get("next")})
	})
	mux.HandleFunc("POST /login", g.signIn)
	mux.Handle("POST /logout", g.Require(http.HandlerFunc(g.signOut)))
	mux.HandleFunc("GET /login.css", serveStyle)
	return Protect(PolicyPage, mux)
}

func (g *Gate) signIn(w http.ResponseWriter, r *http.Request) {
	if err := g.origins.Check(r); err != nil {
		g.refusePage(w, r, delivery.Refuse(delivery.CodeForbidden, "the request comes from another site"))
		return
	}
	if err := readForm(w, r, maxSignIn); err != nil {
		g.refusePage(w, r, err)
		return
	}
	// A phone begins a name with a capital letter.
	name := strings.ToLower(strings.TrimSpace(r.PostForm.Get("user")))
	next := r.PostForm.Get("next")
	user, err := g.verify(r.Context(), name, r.PostForm.Get("password"), g.clientAddress(r))
	if err == nil {
		err = g.begin(w, r, user)
	}
	g.record(r, name, err)
	switch code := delivery.CodeOf(err); {
	case err == nil:
		redirect(w, localPath(next))
	case code == delivery.CodeInvalidCredentials || code == delivery.CodeRateLimited || code == delivery.CodeServiceUnavailable:
		g.refuseSignIn(w, r, err, loginPage{User: name, Next: next})
	default:
		g.refusePage(w, r, err)
	}
}

// verify counts the attempt and judges the password, whether the name is known
// or not. INVALID_CREDENTIALS, RATE_LIMITED, SERVICE_UNAVAILABLE.
func (g *Gate) verify(ctx context.Context, name, password, address string) (*User, error) {
	if err := g.ledger.CountSignIn(ctx, name, address); err != nil {
		return nil, err
	}
	user := g.users[name]
	fits, err := g.checks.fits(ctx, user, password)
	if err != nil {
		return nil, err
	}
	if !fits {
		return nil, delivery.Refuse(delivery.CodeInvalidCredentials, "user or password is wrong")
	}
	return user, g.ledger.ForgiveSignIns(ctx, name, address)
}

// begin gives the browser a session with an id of its own, never one that it
// came with; what it came with ends.
func (g *Gate) begin(w http.ResponseWriter, r *http.Request, user *User) error {
	if before := g.sessionID(r); before != "" {
		if err := g.ledger.EndSession(r.Context(), before); err != nil {
			return err
		}
	}
	id, _, err := g.ledger.CreateSession(r.Context(), ledger.Session{User: user.Name, Roles: user.Roles.Names(), Credential: user.credential()})
	if err != nil {
		return err
	}
	g.setCookie(w, r, id)
	return nil
}

// record counts and logs an attempt. A name that is nobody's is not logged: now
// and then it is a password in the wrong field.
func (g *Gate) record(r *http.Request, name string, err error) {
	result := resultFailed
	switch {
	case err == nil:
		result = resultSignedIn
	case delivery.CodeOf(err) == delivery.CodeInvalidCredentials:
		result = resultWrong
	case delivery.CodeOf(err) == delivery.CodeRateLimited:
		result = resultThrottled
	}
	g.metrics.signIns.WithLabelValues(result).Inc()
	if g.users[name] == nil {
		name = "(unknown)"
	}
	log := g.log.With("result", result, "user", name, "address", g.clientAddress(r))
	if err != nil {
		log.Warn("sign-in refused", "error", err)
		return
	}
	log.Info("signed in", "roles", g.users[name].Roles.String())
}

// signOut is behind Require, which has asked for the CSRF token.
func (g *Gate) signOut(w http.ResponseWriter, r *http.Request) {
	identity := IdentityOf(r.Context())
	if identity.BySession() {
		if err := g.ledger.EndSession(r.Context(), identity.session); err != nil {
			g.turnAway(w, r, err)
			return
		}
		g.setCookie(w, r, "")
		g.log.Info("signed out", "user", identity.Name)
	}
	redirect(w, "/login")
}
