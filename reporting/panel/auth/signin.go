package auth

import (
	"net/http"
	"strings"
	"sync"
	"time"

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
		p := loginPage{Next: r.URL.Query().Get("next")}
		// Who signs out has no cookie, and neither has a browser that was closed.
		if _, err := g.authenticateSession(r); g.sessionID(r) != "" && delivery.CodeOf(err) == delivery.CodeTokenInvalid {
			p.Alert = wordsFor(r).Expired
		}
		p.Asked = p.Alert == "" && localPath(p.Next) != "/"
		g.page(w, r, http.StatusOK, p)
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
	a := &attempt{user: name, address: g.clientAddress(r)}
	user, err := g.verify(r, a, r.PostForm.Get("password"))
	if err == nil {
		err = g.begin(w, r, user)
	}
	g.record(a, err)
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
// or not. Too many attempts refuse none that is right: they only wait behind
// others. INVALID_CREDENTIALS, RATE_LIMITED, SERVICE_UNAVAILABLE.
func (g *Gate) verify(r *http.Request, a *attempt, password string) (*User, error) {
	ctx, user := r.Context(), g.users[a.user]
	if device := g.device(r, user); device != "" {
		err := g.ledger.Sessions.CountKnownSignIn(ctx, a.user, device)
		a.known = err == nil
	}
	if !a.known {
		err := g.ledger.Sessions.CountSignIn(ctx, a.user, a.address)
		if delivery.CodeOf(err) == delivery.CodeRateLimited {
			a.many, err = err, nil
		}
		if err != nil {
			return nil, err
		}
	}
	fits, err := g.checks.fits(ctx, a, user, password)
	if err != nil {
		return nil, err
	}
	if !fits {
		return nil, delivery.Refuse(delivery.CodeInvalidCredentials, "user or password is wrong")
	}
	return user, g.ledger.Sessions.ForgiveSignIns(ctx, a.user, a.address)
}

// begin gives the browser a session with an id of its own, never one that it
// came with; what it came with ends.
func (g *Gate) begin(w http.ResponseWriter, r *http.Request, user *User) error {
	if before := g.sessionID(r); before != "" {
		if err := g.ledger.Sessions.End(r.Context(), before); err != nil {
			return err
		}
	}
	id, _, err := g.ledger.Sessions.Create(r.Context(), ledger.Session{User: user.Name, Roles: user.Roles.Names(), Credential: user.credential()})
	if err != nil {
		return err
	}
	g.setCookie(w, r, id)
	g.setDevice(w, r, user)
	return nil
}

// record counts and logs an attempt. A name that is nobody's is not logged: now
// and then it is a password in the wrong field.
func (g *Gate) record(a *attempt, err error) {
	result := resultFailed
	switch {
	case err == nil:
		result = resultSignedIn
	case a.many != nil:
		result = resultThrottled
	case delivery.CodeOf(err) == delivery.CodeInvalidCredentials:
		result = resultWrong
	}
	g.metrics.signIns.WithLabelValues(result).Inc()
	name := a.user
	if g.users[name] == nil {
		name = "(unknown)"
	}
	log := g.log.With("result", result, "user", name, "address", a.address)
	if err == nil {
		log.Info("signed in", "roles", g.users[name].Roles.String())
		return
	}
	if unlogged, ok := g.refusals.take(time.Now()); ok {
		log.Warn("sign-in refused", "error", err, "not_logged_before", unlogged)
	}
}

// refusalsLogged is how many refused sign-ins are logged in a minute; the next
// line after these says how many were left out.
const refusalsLogged = 20

type refusalLog struct {
	mu       sync.Mutex
	minute   time.Time
	lines    int
	unlogged int
}

func (l *refusalLog) take(now time.Time) (unlogged int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.minute) >= time.Minute {
		l.minute, l.lines = now, 0
	}
	if l.lines == refusalsLogged {
		l.unlogged++
		return 0, false
	}
	l.lines++
	unlogged, l.unlogged = l.unlogged, 0
	return unlogged, true
}

// signOut is behind Require, which has asked for the CSRF token.
func (g *Gate) signOut(w http.ResponseWriter, r *http.Request) {
	identity := IdentityOf(r.Context())
	if identity.BySession() {
		if err := g.ledger.Sessions.End(r.Context(), identity.session); err != nil {
			g.turnAway(w, r, err)
			return
		}
		g.setCookie(w, r, "")
		g.log.Info("signed out", "user", identity.Name)
	}
	redirect(w, "/login")
}
