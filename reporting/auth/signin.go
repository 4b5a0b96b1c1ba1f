package auth

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alexedwards/argon2id"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/service"
)

const maxSignIn = 8 << 10

// Handler serves /login, /logout and /login.css. The parameter next is where to go from
// there, a path of this panel; anything else leads to "/".
func (g *Gate) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) {
		p := page{Next: r.URL.Query().Get("next")}
		// Who signs out has no cookie, and neither has a browser that was closed.
		if _, err := g.authenticateSession(r); g.cookie(r, sessionCookie) != "" && delivery.CodeOf(err) == delivery.CodeTokenInvalid {
			p.Alert = texts[Language(r)]["Expired"]
		}
		p.Asked = p.Alert == "" && localPath(p.Next) != "/"
		g.write(w, r, http.StatusOK, "login.html", p)
	})

	mux.HandleFunc("POST /login", g.signIn)
	mux.Handle("POST /logout", g.Require(http.HandlerFunc(g.signOut)))
	mux.HandleFunc("GET /login.css", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=3600")
		http.ServeFileFS(w, r, files, "page/login.css")
	})

	return Protect(PolicyPage, mux)
}

func (g *Gate) signIn(w http.ResponseWriter, r *http.Request) {
	var err error = errOtherSite
	if g.origins.Check(r) == nil {
		err = readForm(w, r, maxSignIn)
	}

	if err != nil {
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
	code := delivery.CodeOf(err)
	switch {
	case err == nil:
		http.Redirect(w, r, localPath(next), http.StatusSeeOther)
	case code == delivery.CodeInvalidCredentials || code == delivery.CodeRateLimited || code == delivery.CodeServiceUnavailable:
		g.refuseSignIn(w, r, err, page{User: name, Next: next})
	default:
		g.refusePage(w, r, err)
	}
}

// verify counts the attempt and checks the password, also of an unknown name. After too
// many attempts one waits behind others. INVALID_CREDENTIALS, RATE_LIMITED, SERVICE_UNAVAILABLE.
func (g *Gate) verify(r *http.Request, a *attempt, password string) (*User, error) {
	ctx, user := r.Context(), g.users[a.user]
	device := g.device(r, user)
	a.known = device != "" && g.ledger.Sessions.CountKnownSignIn(ctx, a.user, device) == nil
	if !a.known {
		err := g.ledger.Sessions.CountSignIn(ctx, a.user, a.address)
		switch {
		case delivery.CodeOf(err) == delivery.CodeRateLimited:
			a.many = err
		case err != nil:
			return nil, err
		}
	}

	fits, err := g.checks.fits(ctx, a, user, password)
	switch {
	case err != nil:
		return nil, err
	case !fits:
		return nil, delivery.Refuse(delivery.CodeInvalidCredentials, "user or password is wrong")
	}

	return user, g.ledger.Sessions.ForgiveSignIns(ctx, a.user, a.address)
}

// begin gives the browser a new session; the one that it came with ends.
func (g *Gate) begin(w http.ResponseWriter, r *http.Request, user *User) error {
	if before := g.cookie(r, sessionCookie); before != "" {
		if err := g.ledger.Sessions.End(r.Context(), before); err != nil {
			return err
		}
	}

	id := operations.NewSessionID()
	_, err := g.ledger.Sessions.Create(r.Context(), id, operations.Session{User: user.Name, Roles: user.Roles, Credential: user.credential(id)})
	if err != nil {
		return err
	}

	g.setCookie(w, r, sessionCookie, id, 0) // until the browser ends; Redis says how long it is good for
	g.setDevice(w, r, user)

	return nil
}

const resultSignedIn, resultWrong, resultThrottled, resultFailed = "signed_in", "wrong", "throttled", "failed"

// record counts and logs an attempt, without an unknown name: it may be a password.
func (g *Gate) record(a *attempt, err error) {
	result, name := resultFailed, a.user
	switch {
	case err == nil:
		result = resultSignedIn
	case a.many != nil:
		result = resultThrottled
	case delivery.CodeOf(err) == delivery.CodeInvalidCredentials:
		result = resultWrong
	}

	g.signIns.WithLabelValues(result).Inc()
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

// refusalsLogged a minute are logged; the next line says how many were left out.
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

func (g *Gate) signOut(w http.ResponseWriter, r *http.Request) {
	identity := IdentityOf(r.Context())
	if identity.BySession() {
		if err := g.ledger.Sessions.End(r.Context(), identity.session); err != nil {
			g.reject(w, r, err)
			return
		}
		g.setCookie(w, r, sessionCookie, "", -time.Second)
		g.log.Info("signed out", "user", identity.Name)
	}

	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

const maxNext = 2048

// localPath is next if it is a path of this panel, with or without a query, and "/"
// otherwise. Browsers take "//host", "/\host" and either with a tab in between for another
// host, and what is escaped in next may come out unescaped, so all forms are checked: as
// given, decoded, and as it will be sent. The pages of signing in would lead in circles.
func localPath(next string) string {
	u, err := url.Parse(next) // refuses control characters
	if err != nil || len(next) > maxNext || u.Scheme != "" || u.Host != "" || u.User != nil || u.Path == "/login" || u.Path == "/logout" {
		return "/"
	}

	for _, path := range []string{next, u.Path, u.String()} {
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.Contains(path, `\`) {
			return "/"
		}
	}

	return u.String()
}

// The cookies. With the prefix, browsers refuse what another host or a page without TLS has set.
const (
	sessionCookie = "panel"
	// deviceCookie says that a user has signed in with this browser before. It is signed
	// with the user's line in PANEL_USERS: every replica knows it, another password ends it.
	deviceCookie   = "panel-device"
	securePrefix   = "__Host-"
	deviceLifetime = 90 * 24 * time.Hour
	deviceNonce    = 16 // bytes
	devicePurpose  = "panel device"
)

func (g *Gate) secure(r *http.Request, name string) (bool, string) {
	if r.TLS != nil || g.settings.SecureCookies {
		return true, securePrefix + name
	}
	return false, name
}

func (g *Gate) cookie(r *http.Request, name string) string {
	_, name = g.secure(r, name)
	cookie, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	return cookie.Value
}

// setCookie sets a cookie for a time; below 0 removes it, 0 is until the browser ends.
func (g *Gate) setCookie(w http.ResponseWriter, r *http.Request, name, value string, lifetime time.Duration) {
	secure, name := g.secure(r, name)
	http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(lifetime / time.Second),
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode})
}

func (g *Gate) setDevice(w http.ResponseWriter, r *http.Request, user *User) {
	b := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(deviceLifetime).Unix()))
	b = append(b, make([]byte, deviceNonce)...)
	_, _ = rand.Read(b[8:]) // never fails, crypto/rand ends the program instead
	g.setCookie(w, r, deviceCookie, base64.RawURLEncoding.EncodeToString(append(b, user.sign(devicePurpose, b)...)), deviceLifetime)
}

// device is by what the browser is known as one of the user's; empty: it is not.
func (g *Gate) device(r *http.Request, user *User) string {
	b, err := base64.RawURLEncoding.Strict().DecodeString(g.cookie(r, deviceCookie))
	if user == nil || err != nil || len(b) != 8+deviceNonce+sha256.Size {
		return ""
	}

	signed, mac := b[:8+deviceNonce], b[8+deviceNonce:]
	if !hmac.Equal(mac, user.sign(devicePurpose, signed)) || time.Now().Unix() >= int64(binary.BigEndian.Uint64(signed)) {
		return ""
	}
	return string(signed)
}

const checkTimeout = 50 * time.Second // for a turn; proxies commonly wait a minute

// passwordChecks compares a few passwords at a time: each takes its hash's memory.
type passwordChecks struct {
	// known is for browsers in which the user has signed in before.
	known, others turns
	// nobody is a hash as costly as the users', so that an unknown name takes as long.
	nobody string
	// compare is hasHash. Tests replace it by one whose time they know.
	compare func(password, hash string) (bool, error)
}

func newPasswordChecks(atOnce int, users []User) (*passwordChecks, error) {
	cost := hashing
	for i := range users {
		p, _, _, err := argon2id.DecodeHash(users[i].hash)
		if err != nil {
			return nil, err
		}
		if i == 0 || p.Memory*p.Iterations > cost.Memory*cost.Iterations {
			cost = *p
		}
	}

	return &passwordChecks{known: turns{free: 1}, others: turns{free: atOnce}, nobody: hashOfNothing(&cost), compare: hasHash}, nil
}

// hashOfNothing returns a hash with these parameters that no password has. Its salt and its key are random bytes, so
// that nothing has to be hashed for it.
func hashOfNothing(p *argon2id.Params) string {
	random := func(length uint32) string {
		b := make([]byte, length)
		_, _ = rand.Read(b) // never fails
		return base64.RawStdEncoding.EncodeToString(b)
	}
	return fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=%d$%s$%s", p.Memory, p.Iterations, p.Parallelism, random(p.SaltLength), random(p.KeyLength))
}

// fits reports whether it is the user's password, once it is the attempt's turn; user may
// be nil. SERVICE_UNAVAILABLE or a.many when its turn does not come.
func (c *passwordChecks) fits(ctx context.Context, a *attempt, user *User, password string) (fits bool, err error) {
	queue := &c.others
	if a.known {
		queue = &c.known
	}

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if !queue.take(ctx, a) {
		return false, cmp.Or(a.many, error(&delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: unavailableFor,
			Message: "too many people sign in at the moment"}))
	}

	began := time.Now()
	defer func() {
		if fits {
			queue.give()
			return
		}

		// The turn rests for as long as the check took: strangers have at most half
		// of the time of the turns.
		time.AfterFunc(time.Since(began), queue.give)
	}()

	hash := c.nobody
	if user != nil {
		hash = user.hash
	}

	fits, err = c.compare(password, hash)

	return fits && user != nil, err
}

// mostWaiting sign-ins wait for their turn; each holds a connection.
const mostWaiting = 256

type attempt struct {
	user, address string
	known         bool
	many          error // RATE_LIMITED: more were tried than the limits say; nil: not
	turn          chan bool
}

// turns hands out the right to check a password, in the order of order.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []*attempt // in the order in which they came
}

// take waits for a's turn, which give ends; false when ctx ends first or too many wait.
func (t *turns) take(ctx context.Context, a *attempt) bool {
	a.turn = make(chan bool, 1)
	t.change(func() { t.waiting = append(t.waiting, a) })
	select {
	case mine := <-a.turn:
		return mine
	case <-ctx.Done():
	}

	t.change(func() {
		if slices.Contains(t.waiting, a) {
			t.answer(a, false)
		}
	})

	return <-a.turn // it may have come in between
}

func (t *turns) give() { t.change(func() { t.free++ }) }

// change ends with no turn free while somebody waits, and with no more than may wait.
func (t *turns) change(apply func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	apply()
	for t.free > 0 && len(t.waiting) > 0 {
		t.free--
		t.answer(slices.MinFunc(t.waiting, t.order()), true)
	}

	if len(t.waiting) > mostWaiting {
		t.answer(slices.MaxFunc(t.waiting, t.order()), false)
	}
}

func (t *turns) answer(a *attempt, turn bool) {
	t.waiting = slices.DeleteFunc(t.waiting, func(w *attempt) bool { return w == a })
	a.turn <- turn
}

// order puts those within the limits first, then those of whose address the fewest wait,
// and of these the oldest: nobody waits for a queue that another address fills, and who
// fills it is the first to be refused. Names make no difference: a flood can try new ones.
func (t *turns) order() func(a, b *attempt) int {
	addresses, came := map[string]int{}, make(map[*attempt]int, len(t.waiting))
	for i, a := range t.waiting {
		addresses[a.address]++
		came[a] = i
	}

	late := map[bool]int{true: 1}
	return func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(late[a.many != nil], late[b.many != nil]),
			cmp.Compare(addresses[a.address], addresses[b.address]), cmp.Compare(came[a], came[b]))
	}
}

// clientAddress stands for who asks when attempts are counted.
func (g *Gate) clientAddress(r *http.Request) string { return service.Network(g.address(r)).String() }

// address is who asks. X-Forwarded-For is read from its end, as far as trusted proxies have
// written it. It is not valid for a connection without an IP address.
func (g *Gate) address(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	address := peer.Addr().Unmap().WithZone("")
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		before, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil || !g.Trusts(address) {
			break
		}
		address = before.Unmap().WithZone("")
	}

	return address
}

// Trusts reports whether an address is a trusted proxy's.
func (g *Gate) Trusts(address netip.Addr) bool { return g.proxies.Contain(address) }
