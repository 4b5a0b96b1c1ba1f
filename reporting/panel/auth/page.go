package auth

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"golang.org/x/text/language"

	"vendorapi/internal/delivery"
)

//go:embed page/*.html page/*.css
var files embed.FS

var templates = template.Must(template.ParseFS(files, "page/*.html"))

// loginPage is what the sign-in page shows besides its own words.
type loginPage struct {
	User  string // what was typed
	Next  string
	Alert string // why it did not work
	Asked bool   // a page was asked for without a session
}

// words of the pages, in one language.
type words struct {
	Language                             string
	Title, User, Password, SignIn        string
	Wrong, Throttled, Busy, Expired      string
	Asked                                string
	Forbidden, Unavailable, Failed, Back string
}

var (
	english = words{Language: "en", Title: "Sign in", User: "User name", Password: "Password", SignIn: "Sign in",
		Wrong:       "User name or password is wrong.",
		Throttled:   "Too many attempts. Try again in %d seconds.",
		Busy:        "Signing in does not work right now. Try again in %d seconds.",
		Expired:     "Your session has expired. Sign in again.",
		Asked:       "You were signed out, or have not signed in yet. Sign in to go on to the page that you asked for.",
		Forbidden:   "You may not do this.",
		Unavailable: "The service cannot answer right now. Try again in a moment.",
		Failed:      "This did not work.",
		Back:        "Back to the start",
	}
	turkish = words{Language: "tr", Title: "Giriş", User: "Kullanıcı adı", Password: "Parola", SignIn: "Giriş yap",
		Wrong:       "Kullanıcı adı veya parola yanlış.",
		Throttled:   "Çok fazla deneme yapıldı. %d saniye sonra yeniden deneyin.",
		Busy:        "Şu anda giriş yapılamıyor. %d saniye sonra yeniden deneyin.",
		Expired:     "Oturumunuzun süresi doldu. Yeniden giriş yapın.",
		Asked:       "Oturumunuz kapandı ya da henüz giriş yapmadınız. İstediğiniz sayfaya gitmek için giriş yapın.",
		Forbidden:   "Bunun için yetkiniz yok.",
		Unavailable: "Hizmet şu anda yanıt veremiyor. Biraz sonra yeniden deneyin.",
		Failed:      "Bu işlem yapılamadı.",
		Back:        "Başa dön",
	}
	languages = language.NewMatcher([]language.Tag{language.English, language.Turkish})
)

// wordsFor chooses by Accept-Language; English when it asks for neither.
func wordsFor(r *http.Request) *words {
	asked := r.Header.Get("Accept-Language")
	if len(asked) > 512 {
		return &english // no browser's
	}
	tags, _, err := language.ParseAcceptLanguage(asked)
	if err != nil {
		return &english
	}
	if _, i, _ := languages.Match(tags...); i == 1 {
		return &turkish
	}
	return &english
}

// page writes the sign-in page.
func (g *Gate) page(w http.ResponseWriter, r *http.Request, status int, p loginPage) {
	p.User, p.Next = strings.ToValidUTF8(p.User, ""), strings.ToValidUTF8(p.Next, "")
	g.write(w, r, status, "login.html", struct {
		*words
		P loginPage
	}{wordsFor(r), p})
}

// refuseSignIn shows the sign-in page again, with the reason.
func (g *Gate) refuseSignIn(w http.ResponseWriter, r *http.Request, err error, p loginPage) {
	e, _ := Explain(r, g.log, err)
	text, wait := wordsFor(r), WaitSeconds(e)
	switch e.Code {
	case delivery.CodeRateLimited:
		p.Alert = fmt.Sprintf(text.Throttled, wait)
	case delivery.CodeServiceUnavailable:
		p.Alert = fmt.Sprintf(text.Busy, wait)
	default:
		p.Alert = text.Wrong
	}
	if wait > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(wait))
	}
	g.page(w, r, e.Code.HTTPStatus(), p)
}

// refusePage answers an error with a page, in the browser's language; the
// envelope's message stands below for who is asked about it.
func (g *Gate) refusePage(w http.ResponseWriter, r *http.Request, err error) {
	e, requestID := Explain(r, g.log, err)
	text := wordsFor(r)
	said := text.Failed
	switch e.Code.HTTPStatus() {
	case http.StatusForbidden, http.StatusUnauthorized:
		said = text.Forbidden
	case http.StatusServiceUnavailable:
		said = text.Unavailable
	}
	var body bytes.Buffer
	err = templates.ExecuteTemplate(&body, "refusal.html", struct {
		*words
		Said, Message, RequestID string
	}{text, said, e.Message, requestID})
	if err != nil {
		g.log.Error("render a refusal", "error", err)
	}
	pageHeaders(w)
	writeRefusal(w, e, requestID, "text/html; charset=utf-8", body.Bytes())
}

func (g *Gate) write(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	var body bytes.Buffer
	if err := templates.ExecuteTemplate(&body, name, data); err != nil {
		Refuse(w, r, g.log, fmt.Errorf("render %s: %w", name, err))
		return
	}
	pageHeaders(w)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the asker went away: nothing to do
}

// pageHeaders allow what our own pages need, whatever the policy of the handler
// in whose place they are shown.
func pageHeaders(w http.ResponseWriter) {
	w.Header().Set("Content-Security-Policy", PolicyPage)
	w.Header().Add("Vary", "Accept-Language")
}

// serveStyle is the one file of ours that may be kept, for an hour.
func serveStyle(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=3600")
	http.ServeFileFS(w, r, files, "page/login.css")
}
