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
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	_, err := s.proxies()
	return err
}

func (s *Settings) proxies() ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for text := range strings.SplitSeq(strings.Join(s.TrustedProxies, ","), ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		network, err := netip.ParsePrefix(text)
		if err != nil {
			address, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("access.trusted_proxies: %q is neither an address nor a network", text)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		networks = append(networks, network)
	}
	return networks, nil
}

// Trusts reports whether an address is a trusted proxy's.
func (s *Settings) Trusts(address netip.Addr) bool {
	proxies, err := s.proxies()
	return err == nil && trusted(proxies, address)
}

// Gate authenticates users and programs. It is safe for concurrent use.
type Gate struct {
	ledger   *ledger.Ledger
	users    map[string]*User
	tokens   []Token
	checks   *passwordChecks
	refusals refusalLog
	settings Settings
	proxies  []netip.Prefix
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
	var err error
	if g.proxies, err = s.proxies(); err != nil {
		return nil, err
	}
	for i := range people.Users {
		g.users[people.Users[i].Name] = &people.Users[i]
	}
	g.checks, err = newPasswordChecks(s.PasswordChecks, people.Users)
	return g, err
}

// Identity is who asks.
type Identity struct {
	Name    string
	Roles   Roles
	CSRF    string // the field "csrf" of forms, the header X-CSRF-Token of scripts; empty for a bearer token
	session string // its id; empty for a bearer token
}

// BySession reports whether it is a browser's session and no bearer token.
func (i *Identity) BySession() bool { return i.session != "" }

// Authenticate finds out who asks, by the bearer token if one was sent, else by the
// session. TOKEN_INVALID, or ErrUnavailable while sessions cannot be read.
func (g *Gate) Authenticate(r *http.Request) (Identity, error) {
	switch sent := r.Header.Values("Authorization"); len(sent) {
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
	if user == nil || user.credential() != s.Credential {
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
	switch code := delivery.CodeOf(err); {
	case !WantsPage(r):
		Refuse(w, r, g.log, err)
	case code == delivery.CodeTokenInvalid && !Reads(r):
		redirect(w, "/login") // what was sent is lost; it cannot be sent again with GET
	case code == delivery.CodeTokenInvalid:
		login := "/login"
		if next := localPath(r.URL.RequestURI()); next != "/" {
			login += "?" + url.Values{"next": {next}}.Encode()
		}
		redirect(w, login)
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
