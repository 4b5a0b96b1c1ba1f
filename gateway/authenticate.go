package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"time"

	"vendorapi/gateway/token"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/limits"
	"vendorapi/internal/service"
)

// authenticate finds out whose request it is. It asks nobody: tokens carry
// their own proof. Whether the account is suspended is said by the ledger, in
// the same script that does the request's work.
func (g *gateway) authenticate(x *requestContext) (err error) {
	switch x.route.access {
	case vendorOnly:
		x.account, err = g.verify(x, g.vendorTokens)
	case fleetOnly:
		x.fleet, err = g.verify(x, g.fleetTokens)
		if err == nil {
			err = g.knownFleet(x.fleet)
		}
	case adminOnly:
		err = g.authenticateAdmin(x)
	case public:
	}

	return err
}

// verify asks both this process's clock and Redis's, see token.Authority.
func (g *gateway) verify(x *requestContext, authority *token.Authority) ([16]byte, error) {
	raw, err := bearer(x)
	if err != nil {
		return [16]byte{}, err
	}

	earlier, later := x.now, x.began
	if later.Before(earlier) {
		earlier, later = later, earlier
	}

	id, issued, err := authority.Verify(raw, earlier, later)
	l := g.Ledger()
	switch {
	case err == nil && l != nil && issued < l.Fleets.Snapshot().NotBefore(id):
		return id, delivery.Refuse(delivery.CodeTokenExpired, "the token was revoked; get a new one and send the request again")
	case errors.Is(err, token.ErrExpired):
		return id, delivery.Refuse(delivery.CodeTokenExpired, "the token has expired; get a new one and send the request again")
	case err != nil:
		return id, delivery.Refuse(delivery.CodeTokenInvalid, "the token is not valid here; get one from POST /token")
	}

	return id, nil
}

var errFleetDisabled = delivery.Refuse(delivery.CodeFleetDisabled, "the fleet is disabled; contact the operator")

// knownFleet refuses a fleet that is unknown or disabled, by what this process knows.
func (g *gateway) knownFleet(id delivery.FleetID) error {
	l := g.Ledger()
	if l == nil {
		return errStarting
	}

	fleet := l.Fleets.Snapshot().Fleet(id)
	if fleet == nil {
		return delivery.Refuse(delivery.CodeTokenInvalid, "the token's fleet does not exist")
	}
	if fleet.Disabled {
		return errFleetDisabled
	}

	return nil
}

// authenticateAdmin takes the same time whatever the key.
func (g *gateway) authenticateAdmin(x *requestContext) error {
	raw, err := bearer(x)
	if err != nil {
		return err
	}

	given := sha256.Sum256(raw)
	right := -1
	for i := range g.adminKeys {
		right = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(given[:], g.adminKeys[i].digest[:]), i, right)
	}

	if right < 0 {
		g.metrics.keyFailures.Inc()
		g.failedKeys.count(x.now, service.Origin(x.ctx.Conn()).String())
		return delivery.Refuse(delivery.CodeTokenInvalid, "the admin key is wrong")
	}

	x.keyName = g.adminKeys[right].name

	return nil
}

var bearerScheme = []byte("Bearer ")

func bearer(x *requestContext) ([]byte, error) {
	value, sent := x.header("Authorization")
	switch {
	case sent > 1:
		return nil, delivery.Refuse(delivery.CodeTokenInvalid, "Authorization was sent more than once")
	case sent == 0:
		return nil, delivery.Refuse(delivery.CodeTokenInvalid, "the header Authorization: Bearer <token> is missing")
	case len(value) <= len(bearerScheme) || !bytes.EqualFold(value[:len(bearerScheme)], bearerScheme):
		return nil, delivery.Refuse(delivery.CodeTokenInvalid, "Authorization must be Bearer <token>")
	}

	return bytes.TrimLeft(value[len(bearerScheme):], " "), nil
}

// maxSecret bounds what is hashed on behalf of a stranger.
const maxSecret = 256

// credentials are what a caller has sent to a token endpoint.
type credentials struct {
	// clientID is empty when nobody can have the one that was sent: all of these are counted as one.
	clientID string
	// subject is the account or the fleet that clientID names; zero without one.
	subject    [16]byte
	secretHash [sha256.Size]byte
	// origin is the address that wrong credentials are counted for, or the /64 that an IPv6 host
	// chooses its addresses from.
	origin string
}

// readCredentials reads a body; parse reads the client id.
func readCredentials[ID ~[16]byte](x *requestContext, parse func(clientID string) (ID, bool)) (*credentials, error) {
	var body struct {
		ClientID     delivery.Text `json:"clientId"`
		ClientSecret delivery.Text `json:"clientSecret"`
	}

	f := x.form(&body)
	f.Require("clientId", body.ClientID.Set)
	f.Require("clientSecret", body.ClientSecret.Set)
	if err := f.err(); err != nil {
		return nil, err
	}

	secret := body.ClientSecret.Value
	if len(secret) > maxSecret {
		secret = "" // whose digest is none that was issued
	}

	c := &credentials{
		secretHash: sha256.Sum256([]byte(secret)),
		origin:     service.Origin(x.ctx.Conn()).String(),
	}

	id, isPossible := parse(body.ClientID.Value)
	if isPossible {
		c.clientID, c.subject = body.ClientID.Value, id
	}

	return c, nil
}

// secretCheck compares credentials with the secrets of their subject.
type secretCheck func(*credentials) (isRight bool, err error)

// checkSecret returns nil for a right secret. remembered knows the secrets as of a moment ago, which
// costs Redis next to nothing, and stored as they are now.
//
// A secret that is remembered needs no place, so guesses of others never delay it. Any other login
// needs one of maxLogins places, and then Redis decides. After too many wrong secrets it is refused
// without asking Redis; a right secret that is too new to be remembered is refused with them.
func (g *gateway) checkSecret(x *requestContext, c *credentials, remembered, stored secretCheck) error {
	isPossible := c.clientID != ""
	if isPossible {
		isRight, err := remembered(c)
		if err != nil || isRight {
			return err
		}
	}

	wait := x.ledger.Limits.LoginWait(c.clientID, c.origin)
	if wait > 0 {
		return limits.TooManyLogins(wait)
	}
	if !g.logins.enter() {
		return errOverloaded
	}

	defer g.logins.leave()

	if isPossible {
		isRight, err := stored(c)
		if err != nil || isRight {
			return err
		}
	}

	return g.refuseWrongSecret(x, c)
}

// refuseWrongSecret counts wrong credentials and returns their refusal.
func (g *gateway) refuseWrongSecret(x *requestContext, c *credentials) error {
	if err := x.ledger.Limits.CountFailedLogin(g.work, c.clientID, c.origin); err != nil {
		return err
	}
	return errWrongCredentials
}

// enterLogin gets a place for a login whose secret is right: one of those of requests or, while they
// are all taken, one of maxLogins that only such logins have. The caller leaves the limiter; nil
// means that there is no place.
func (g *gateway) enterLogin(x *requestContext) *inFlightLimiter {
	requests := g.limiterOf(x)
	if requests.tryEnter() {
		return requests
	}
	if g.rightLogins.tryEnter() {
		return g.rightLogins
	}

	if requests.shed != nil {
		requests.shed.Inc()
	}

	return nil
}

// vendorToken is POST /api/vendor/v1/token. A login with a right secret is a request of its account
// like any other: it waits for one of the account's places, and is refused from memory while the
// limit of tokens is used up. With a wrong one it neither counts nor shows the account's quota.
func (g *gateway) vendorToken(x *requestContext) error {
	c, err := readCredentials(x, delivery.AccountOfClient)
	if err != nil {
		return err
	}

	limits := x.ledger.Limits
	remembered := func(c *credentials) (bool, error) {
		return limits.KnowsAccountSecret(g.work, c.subject, c.secretHash)
	}
	stored := func(c *credentials) (bool, error) {
		return limits.HasAccountSecret(g.work, c.subject, c.secretHash)
	}
	if err := g.checkSecret(x, c, remembered, stored); err != nil {
		return err
	}

	x.account = c.subject
	if err := g.enterAccount(x); err != nil {
		return err
	}

	defer g.accounts.leave(c.subject)

	limiter := g.enterLogin(x)
	if limiter == nil {
		return errOverloaded
	}

	defer limiter.leave()
	x.entered = time.Now()

	quota, known, err := limits.CountToken(g.work, c.subject, c.secretHash)
	if delivery.CodeOf(err) == delivery.CodeInvalidCredentials {
		x.account = delivery.AccountID{} // the secret has just ended
		return g.refuseWrongSecret(x, c)
	}

	x.quota = quota
	if err != nil {
		return err
	}

	return g.issue(x, g.vendorTokens, c.subject, known)
}

// fleetToken is POST /api/fleet/v1/token. A login with a right secret takes one of its fleet's places,
// before Redis is asked for changes. It does not count in the fleet's limit of requests a second: a
// fleet that is over its limit can still log in, and logins at the same time share what they read. One
// of a disabled fleet costs Redis nothing.
func (g *gateway) fleetToken(x *requestContext) error {
	c, err := readCredentials(x, delivery.FleetOfClient)
	if err != nil {
		return err
	}

	fleets := x.ledger.Fleets
	remembered := func(c *credentials) (bool, error) {
		return fleets.VerifySecret(c.subject, c.secretHash, x.now), nil
	}
	// What another gateway has just issued or revoked may not be known here yet. Logins at the same
	// time share their reads.
	stored := func(c *credentials) (bool, error) {
		err := fleets.Refresh(g.work)
		return fleets.VerifySecret(c.subject, c.secretHash, x.now), err
	}
	if err := g.checkSecret(x, c, remembered, stored); err != nil {
		return err
	}
	if err := g.knownFleet(c.subject); err != nil {
		return err
	}

	limiter := g.enterLogin(x)
	if limiter == nil {
		return errOverloaded
	}

	defer limiter.leave()

	x.fleet = c.subject
	places := g.fleetLimiter(c.subject)
	if !places.enter() {
		return errOverloaded
	}

	defer places.leave()
	x.entered = time.Now()

	return g.issueFleetToken(x, c)
}

// issueFleetToken answers a login whose secret was right a moment ago, by what Redis holds now.
func (g *gateway) issueFleetToken(x *requestContext, c *credentials) error {
	fleets := x.ledger.Fleets
	if err := fleets.Refresh(g.work); err != nil {
		return err
	}

	// Read before the secret is checked: a revocation written in between then makes the token too
	// old, not valid.
	notBefore := fleets.Snapshot().NotBefore(c.subject)
	if !fleets.VerifySecret(c.subject, c.secretHash, x.now) {
		x.fleet = delivery.FleetID{}
		return g.refuseWrongSecret(x, c)
	}

	if err := g.knownFleet(c.subject); err != nil {
		return err
	}

	known := limits.Known{
		NotBefore: notBefore,
		Replaced:  fleets.Snapshot().Replaced(c.subject, c.secretHash),
	}

	return g.issue(x, g.fleetTokens, c.subject, known)
}

var errWrongCredentials error = delivery.Refuse(delivery.CodeInvalidCredentials, "clientId or clientSecret is wrong")

// issue answers with a token. One of the second in which others were revoked is
// issued as of the next one, from which on tokens are good: a token's time has
// whole seconds.
func (g *gateway) issue(x *requestContext, authority *token.Authority, subject [16]byte, known limits.Known) error {
	if known.Replaced {
		if err := g.auditReplaced(x); err != nil {
			return err
		}
	}

	at := x.now
	if at.Unix() < known.NotBefore {
		at = time.Unix(known.NotBefore, 0)
	}

	signed, err := authority.Issue(subject, at)
	if err != nil {
		return err
	}

	return x.okSecret(struct {
		AccessToken string `json:"accessToken"`
		TokenType   string `json:"tokenType"`
		ExpiresIn   int    `json:"expiresIn"`
	}{signed, "Bearer", int(token.Lifetime / time.Second)})
}
