package auth

import "net/http"

// The session cookie's name. Behind TLS its prefix makes browsers refuse one
// that another host of the domain, or a page without TLS, has set.
const (
	plainCookie  = "panel"
	secureCookie = "__Host-panel"
)

// secure tells whether the browser came by TLS.
func (g *Gate) secure(r *http.Request) bool { return r.TLS != nil || g.settings.SecureCookies }

func (g *Gate) cookieName(r *http.Request) string {
	if g.secure(r) {
		return secureCookie
	}
	return plainCookie
}

func (g *Gate) sessionID(r *http.Request) string {
	cookie, err := r.Cookie(g.cookieName(r))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// setCookie gives the browser a session, or takes it away when id is empty. It
// goes with the browser's own session: how long it is good for is Redis's to
// say.
func (g *Gate) setCookie(w http.ResponseWriter, r *http.Request, id string) {
	cookie := &http.Cookie{Name: g.cookieName(r), Value: id, Path: "/", HttpOnly: true, Secure: g.secure(r), SameSite: http.SameSiteLaxMode}
	if id == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}
