package auth

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Settings are the keys below "access" of reporting's configuration.
type Settings struct {
	// SecureCookies says that browsers come by TLS even where this process sees
	// none, because a proxy in front has ended it. With TLS of its own cookies
	// are secure in any case.
	SecureCookies bool `yaml:"secure_cookies"`
	// TrustedProxies are the addresses or networks whose X-Forwarded-For is
	// believed when attempts to sign in are counted; one text may name several,
	// with commas.
	TrustedProxies []string `yaml:"trusted_proxies"`
	// PasswordChecks is how many passwords are checked at once, 1 to 64, besides
	// one of a browser that is known. Each takes 64 MB for a tenth of a second;
	// further ones wait up to 50 s.
	PasswordChecks int `yaml:"password_checks"`
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

// Trusts tells whether an address is a trusted proxy's.
func (s *Settings) Trusts(address netip.Addr) bool {
	proxies, err := s.proxies()
	return err == nil && trusted(proxies, address)
}

// Gate knows who is who. It is safe for concurrent use.
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
	metrics  *metrics
}

// New prepares a gate for the people, whose sessions the ledger keeps.
func New(l *ledger.Ledger, people People, s Settings, log *slog.Logger, reg prometheus.Registerer) (*Gate, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	g := &Gate{ledger: l, users: make(map[string]*User, len(people.Users)), tokens: people.Tokens, settings: s,
		origins: http.NewCrossOriginProtection(), log: log.With("part", "access"), metrics: newMetrics(reg)}
	var err error
	if g.proxies, err = s.proxies(); err != nil {
		return nil, err
	}
	for i := range people.Users {
		g.users[people.Users[i].Name] = &people.Users[i]
	}
	if g.checks, err = newPasswordChecks(s.PasswordChecks, people.Users); err != nil {
		return nil, err
	}
	return g, nil
}

// Identity is who asks.
type Identity struct {
	Name  string
	Roles Roles
	// CSRF goes into every form of a page as the field "csrf", and into what
	// scripts send as the header X-CSRF-Token. Empty for a bearer token, which
	// no browser sends by itself.
	CSRF string

	session string // its id; empty for a bearer token
}

// BySession tells a browser from a program with a token.
func (i *Identity) BySession() bool { return i.session != "" }

// Authenticate finds out who asks. A bearer token is judged whenever one was
// sent, a session otherwise. TOKEN_INVALID for everything that is not good;
// ErrUnavailable in the chain while sessions cannot be read.
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
	id := g.sessionID(r)
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
