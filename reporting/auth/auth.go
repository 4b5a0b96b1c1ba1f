// Package auth decides who may do what on the panel's listener. People sign in and have
// a session in the ledger; programs carry a bearer token; both have roles. Users and
// tokens come from the environment or files. Every method but GET needs the session's
// CSRF token and must not come from another origin; cookies are SameSite=Lax.
//
// Wrong passwords lock nobody out: every attempt is checked, few at once (turns.order). A turn
// rests after a wrong one; attempts beyond the ledger's limits wait behind all others. Browsers
// in which the user has signed in before carry a signed cookie and have a turn of their own.
package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/text/language"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/service"
)

// Settings are the keys below "access" of configs/reporting.yaml, which explains them.
type Settings struct {
	SecureCookies  bool     `yaml:"secure_cookies"`
	TrustedProxies []string `yaml:"trusted_proxies"`
	PasswordChecks int      `yaml:"password_checks"`
}

// Validate names the first key whose value is out of range.
func (s *Settings) Validate() error {
	if s.PasswordChecks < 1 || s.PasswordChecks > 64 {
		return errors.New("access.password_checks: want 1 to 64")
	}
	if _, err := service.ParseNetworks(s.TrustedProxies); err != nil {
		return fmt.Errorf("access.trusted_proxies: %w", err)
	}
	return nil
}

// Gate authenticates users and programs. It is safe for concurrent use.
type Gate struct {
	ledger   *ledger.Ledger
	users    map[string]*User
	tokens   []Token
	checks   *passwordChecks
	refusals refusalLog
	settings Settings
	proxies  service.Networks
	origins  *http.CrossOriginProtection
	log      *slog.Logger

	signIns, refused *prometheus.CounterVec
}

// New prepares a gate for the people, whose sessions the ledger keeps.
func New(l *ledger.Ledger, people People, s Settings, log *slog.Logger, reg prometheus.Registerer) (*Gate, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}

	m := service.NewMetrics(reg, nil)
	g := &Gate{ledger: l, users: make(map[string]*User, len(people.Users)), tokens: people.Tokens, settings: s,
		origins: http.NewCrossOriginProtection(), log: log.With("part", "access"),
		signIns: m.Counters("reporting_sign_ins_total", "Attempts to sign in, by what became of them.", "result",
			resultSignedIn, resultWrong, resultThrottled, resultFailed),
		refused: m.Counters("reporting_refused_requests_total", "Requests that did not get past the gate, by error code.", "code"),
	}

	for i := range people.Users {
		g.users[people.Users[i].Name] = &people.Users[i]
	}

	g.proxies, _ = service.ParseNetworks(s.TrustedProxies) // Validate has read them
	var err error
	g.checks, err = newPasswordChecks(s.PasswordChecks, people.Users)

	return g, err
}

// Identity is who asks.
type Identity struct {
	Name    string
	Roles   Roles
	Address string // where the browser is
	CSRF    string // the field "csrf" of forms, the header X-CSRF-Token of scripts; empty for a bearer token
	session string // its id; empty for a bearer token
}

// NewRequestID names a request in the log and in the audit stream.
func NewRequestID() string { return fmt.Sprintf("%016x", rand.Uint64()) }

// BySession reports whether it is a browser's session and no bearer token.
func (i *Identity) BySession() bool { return i.session != "" }

// Authenticate finds out who asks, by the bearer token if one was sent, else by the
// session. TOKEN_INVALID, or ErrUnavailable while sessions cannot be read.
func (g *Gate) Authenticate(r *http.Request) (Identity, error) {
	sent := r.Header.Values("Authorization")
	switch len(sent) {
	case 0:
		return g.authenticateSession(r)
	case 1:
		return g.authenticateToken(sent[0])
	default:
		return Identity{}, delivery.Refuse(delivery.CodeTokenInvalid, "Authorization was sent more than once")
	}
}

func (g *Gate) authenticateToken(header string) (Identity, error) {
	scheme, text, found := strings.Cut(header, " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return Identity{}, delivery.Refuse(delivery.CodeTokenInvalid, "Authorization must be Bearer <token>")
	}

	t := findToken(g.tokens, strings.TrimSpace(text))
	if t == nil {
		return Identity{}, delivery.Refuse(delivery.CodeTokenInvalid, "the token is not valid here")
	}
	return Identity{Name: t.Name, Roles: t.Roles}, nil
}

func (g *Gate) authenticateSession(r *http.Request) (Identity, error) {
	id := g.cookie(r, sessionCookie)
	if id == "" {
		return Identity{}, delivery.Refuse(delivery.CodeTokenInvalid, "sign in, or send the header Authorization: Bearer <token>")
	}

	s, err := g.ledger.Sessions.Get(r.Context(), id)
	if err != nil {
		return Identity{}, err
	}

	user := g.users[s.User]
	if user == nil || user.credential(id) != s.Credential {
		return Identity{}, delivery.Refuse(delivery.CodeTokenInvalid, "the user has changed since; sign in")
	}

	return Identity{Name: user.Name, Roles: user.Roles, CSRF: s.CSRF, session: id}, nil
}

const (
	maxForm     = 1 << 20 // bytes of a form that is read for its CSRF token
	formTimeout = 10 * time.Second
)

type identityKey struct{}

// IdentityOf is who asks, for handlers behind Require. Elsewhere it is nobody.
func IdentityOf(ctx context.Context) Identity {
	identity, _ := ctx.Value(identityKey{}).(Identity)
	return identity
}

// Require lets those pass who have one of the roles, without roles everybody who is signed
// in. A session's request that may change something needs the same origin and the CSRF
// token; its form, of at most 1 MB, is parsed. Refusals: 401, or a redirect to /login for a
// browser that wants a page; 403; 503 while sessions cannot be read.
func (g *Gate) Require(next http.Handler, roles ...Role) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		identity, err := g.Authenticate(r)
		if err == nil && len(roles) > 0 && !identity.Roles.Include(roles...) {
			err = delivery.Refuse(delivery.CodeForbidden, "this needs the role %s", Roles(roles))
		}

		if err == nil && identity.BySession() {
			err = g.checkCSRF(w, r, identity.CSRF)
		}

		if err != nil {
			g.reject(w, r, err)
			return
		}

		identity.Address = g.address(r).String()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, identity)))
	})
}

var errOtherSite = delivery.Refuse(delivery.CodeForbidden, "the request comes from another site")

// checkCSRF checks origin and token: either alone has browsers or settings that defeat it.
func (g *Gate) checkCSRF(w http.ResponseWriter, r *http.Request, csrf string) error {
	if Reads(r) {
		return nil
	}
	if g.origins.Check(r) != nil {
		return errOtherSite
	}

	if isForm(r) {
		if err := readForm(w, r, maxForm); err != nil {
			return err
		}
	}

	given := cmp.Or(r.Header.Get("X-CSRF-Token"), r.PostForm.Get("csrf"))
	if subtle.ConstantTimeCompare([]byte(given), []byte(csrf)) != 1 {
		return delivery.Refuse(delivery.CodeForbidden, "the request lacks the page's proof, or the page is from before you signed in; load it again")
	}

	return nil
}

// Reads reports whether a request changes nothing, by its method.
func Reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

func isForm(r *http.Request) bool {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && mediaType == "application/x-www-form-urlencoded"
}

// readForm reads a form of at most so many bytes that is sent within formTimeout.
func readForm(w http.ResponseWriter, r *http.Request, most int64) error {
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(formTimeout)); err != nil {
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

func (g *Gate) reject(w http.ResponseWriter, r *http.Request, err error) {
	code := delivery.CodeOf(err)
	switch {
	case !WantsPage(r):
		Refuse(w, r, g.log, err)
	case code == delivery.CodeTokenInvalid:
		login := "/login" // what a form sent is lost: GET cannot send it again
		if next := localPath(r.URL.RequestURI()); Reads(r) && next != "/" {
			login += "?" + url.Values{"next": {next}}.Encode()
		}
		http.Redirect(w, r, login, http.StatusSeeOther)
	default:
		g.refusePage(w, r, err)
	}

	g.refused.WithLabelValues(string(delivery.CodeOf(err))).Inc() // INTERNAL_ERROR for a failure of this program
}

// Content-Security-Policies of pages with forms, of pages with scripts, and of other answers.
const (
	PolicyPage    = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	PolicyScripts = PolicyPage + "; script-src 'self'; connect-src 'self'"
	PolicyData    = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)

var protection = map[string]string{
	"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
	"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

// Protect sets the headers of every answer before next runs, which may replace one.
func Protect(policy string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for name, value := range protection {
			h.Set(name, value)
		}
		h.Set("Content-Security-Policy", policy)
		next.ServeHTTP(w, r)
	})
}

// unavailableFor is how long a client waits for Redis or ClickHouse.
const unavailableFor = 2 * time.Second

// Explain is err as the client may see it: a *delivery.Error in its chain as it is,
// an unavailable Redis or ClickHouse as SERVICE_UNAVAILABLE, and anything else
// without detail. The last two are logged under a request id. It sets the headers of a
// refusal; nothing of the answer may have been written.
func Explain(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) (e *delivery.Error, requestID string) {
	h := w.Header()
	if !errors.As(err, &e) {
		requestID = NewRequestID()
		h.Set("X-Request-Id", requestID)
		log = log.With("request_id", requestID, "path", delivery.Excerpt(r.URL.Path, delivery.MaxForeignError), "error", err)
		e = delivery.Refuse(delivery.CodeInternal, "something went wrong on our side; quote the request id")
		switch {
		case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
			log.Debug("the client has gone")
		case errors.Is(err, delivery.ErrUnavailable):
			log.Warn("unavailable")
			e = &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: unavailableFor,
				Message: "the service cannot answer right now; sending the same request again is safe"}
		default:
			log.Error("request failed")
		}
	}

	if wait := e.WaitSeconds(); wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(wait, 10))
	}

	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")

	return e, requestID
}

// Refuse answers an error in the service's envelope (spec, "Response envelope"), with
// WWW-Authenticate and the headers of Explain.
func Refuse(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	e, requestID := Explain(w, r, log, err)
	body := e.AppendEnvelope(nil, requestID)

	h, status := w.Header(), e.Code.HTTPStatus()
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}

	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone
}

var (
	//go:embed page/*
	files embed.FS
	//go:embed page/words.json
	words []byte
)

var templates = template.Must(template.ParseFS(files, "page/*.html"))

type page struct {
	Words                    map[string]string // the texts in one language, by name
	User, Next               string            // what was typed, and where to go from there
	Alert                    string            // why signing in did not work
	Asked                    bool              // a page was asked for without a session
	Said, Message, RequestID string            // of a refusal
}

var texts = func() (all map[string]map[string]string) {
	if err := json.Unmarshal(words, &all); err != nil {
		panic(err)
	}
	return all
}()

var languages = language.NewMatcher([]language.Tag{language.English, language.Turkish})

// Language chooses "en" or "tr" by Accept-Language; English when it asks for neither.
func Language(r *http.Request) string {
	asked := r.Header.Get("Accept-Language")
	if _, i := language.MatchStrings(languages, asked); i == 1 && len(asked) <= 512 { // no browser's is longer
		return "tr"
	}
	return "en"
}

func (g *Gate) refuseSignIn(w http.ResponseWriter, r *http.Request, err error, p page) {
	e, _ := Explain(w, r, g.log, err)
	text := texts[Language(r)]
	p.Alert = text["Wrong"]
	if wait, is := waitTexts[e.Code]; is {
		p.Alert = fmt.Sprintf(text[wait], e.WaitSeconds())
	}
	g.write(w, r, e.Code.HTTPStatus(), "login.html", p)
}

var waitTexts = map[delivery.Code]string{delivery.CodeRateLimited: "Throttled", delivery.CodeServiceUnavailable: "Busy"}

var refusalTexts = map[int]string{
	http.StatusForbidden: "Forbidden", http.StatusUnauthorized: "Forbidden", http.StatusServiceUnavailable: "Unavailable",
}

func (g *Gate) refusePage(w http.ResponseWriter, r *http.Request, err error) {
	e, requestID := Explain(w, r, g.log, err)
	status := e.Code.HTTPStatus()
	said := texts[Language(r)][cmp.Or(refusalTexts[status], "Failed")]
	g.write(w, r, status, "refusal.html", page{Said: said, Message: e.Message, RequestID: requestID})
}

// write allows what these pages need, whatever the handler's own policy.
func (g *Gate) write(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	p.Words, p.User, p.Next = texts[Language(r)], strings.ToValidUTF8(p.User, ""), strings.ToValidUTF8(p.Next, "")
	w.Header().Set("Content-Security-Policy", PolicyPage)
	w.Header().Add("Vary", "Accept-Language")
	if err := Render(w, status, templates, name, p); err != nil {
		Refuse(w, r, g.log, err)
	}
}

// Render answers with a template. One that fails is an error, and not half a page.
func Render(w http.ResponseWriter, status int, set *template.Template, name string, data any) error {
	var body bytes.Buffer
	if err := set.ExecuteTemplate(&body, name, data); err != nil {
		return fmt.Errorf("render %s: %w", name, err)
	}

	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the client may have gone

	return nil
}

// WantsPage reports whether a browser navigates: nothing else names text/html.
func WantsPage(r *http.Request) bool { return accepts(r, "Accept", "text/html") }

// AcceptsGzip reads Accept-Encoding (RFC 9110, section 12.5.3): what is not named is not wanted.
func AcceptsGzip(r *http.Request) bool { return accepts(r, "Accept-Encoding", "gzip", "x-gzip", "*") }

// accepts reports whether the first of the values that the header names has a quality above 0.
func accepts(r *http.Request, header string, values ...string) bool {
	qualities := map[string]float64{}
	for part := range strings.SplitSeq(strings.Join(r.Header.Values(header), ","), ",") {
		if name, parameters, err := mime.ParseMediaType(part); err == nil {
			quality, _ := strconv.ParseFloat(cmp.Or(parameters["q"], "1"), 64) // 0 for what is no number
			qualities[name] = max(qualities[name], quality)
		}
	}

	for _, value := range values {
		if quality, named := qualities[value]; named {
			return quality > 0
		}
	}

	return false
}
