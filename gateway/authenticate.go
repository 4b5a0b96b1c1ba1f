package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"time"

	"vendorapi/gateway/token"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
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
		if x.fleet, err = g.verify(x, g.fleetTokens); err == nil {
			err = g.knownFleet(x.fleet)
		}
	case adminOnly:
		err = g.authenticateAdmin(x)
	case public:
	}
	return err
}

// verify takes a token for expired when both this process's clock and Redis's say so: when one of them
// jumps ahead, nobody is shut out.
func (g *gateway) verify(x *requestContext, authority *token.Authority) ([16]byte, error) {
	raw, err := bearer(x)
	if err != nil {
		return [16]byte{}, err
	}
	now := x.now
	if x.began.Before(now) {
		now = x.began
	}
	id, issued, err := authority.Verify(raw, now)
	switch l := g.Ledger(); {
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
		g.failedKeys.count(x.began, service.Origin(x.ctx.Conn()).String())
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

// vendorToken is POST /api/vendor/v1/token. Only a right secret counts.
func (g *gateway) vendorToken(x *requestContext) error {
	limits := x.ledger.Limits
	refused := func(account delivery.AccountID) (err error) {
		x.quota, err = limits.Refused(account, ledger.EndpointToken, delivery.OrderID{})
		return err
	}
	return login(g, x, delivery.AccountOfClient, refused,
		func(account delivery.AccountID, secret [sha256.Size]byte) (bool, error) {
			return limits.KnowsAccountSecret(g.work, account, secret)
		},
		func(account delivery.AccountID, secret [sha256.Size]byte) (err error) {
			var known ledger.Known
			if x.quota, known, err = limits.CountToken(g.work, account, secret); err != nil {
				return err
			}
			x.account = account
			return g.issue(x, g.vendorTokens, account, known)
		})
}

// fleetToken is POST /api/fleet/v1/token.
func (g *gateway) fleetToken(x *requestContext) error {
	fleets := x.ledger.Fleets
	neverRefused := func(delivery.FleetID) error { return nil }
	return login(g, x, delivery.FleetOfClient, neverRefused,
		func(fleet delivery.FleetID, secret [sha256.Size]byte) (bool, error) {
			return fleets.VerifySecret(fleet, secret, x.now), nil
		},
		func(fleet delivery.FleetID, secret [sha256.Size]byte) error {
			// Before Redis is asked: a disabled fleet costs it nothing.
			if f := fleets.Snapshot().Fleet(fleet); f != nil && f.Disabled && fleets.VerifySecret(fleet, secret, x.now) {
				return errFleetDisabled
			}
			// What another replica has just issued or revoked may not be known here yet.
			if err := fleets.Refresh(g.work); err != nil {
				return err
			}
			known := ledger.Known{NotBefore: fleets.Snapshot().NotBefore(fleet)} // of no later state than the secret is checked by
			if !fleets.VerifySecret(fleet, secret, x.now) {
				return errWrongCredentials
			}
			if err := g.knownFleet(fleet); err != nil {
				return err
			}
			x.fleet, known.Replaced = fleet, fleets.Snapshot().Replaced(fleet, secret)
			return g.issue(x, g.fleetTokens, fleet, known)
		})
}

// login is what both token endpoints do: parse reads the client id, known checks the
// secret by what this process knows, enter by the ledger, and answers. The secret is
// checked first: a right one is never refused because somebody else kept guessing. All
// client ids that cannot exist are counted as one, and so is the /64 that an IPv6 host
// chooses its addresses from.
//
// Logins have a few places in flight of their own. Who has guessed too often, and everybody
// while these are taken, is checked by what this process knows, which costs Redis next to
// nothing: what is right goes on among the requests, what is wrong is refused.
//
// Who has the right secret and was refused a moment ago, for too many tokens or because it is
// suspended, is refused again from memory, and takes no place of the others'.
func login[ID ~[16]byte](g *gateway, x *requestContext, parse func(clientID string) (ID, bool), refused func(ID) error,
	known func(ID, [sha256.Size]byte) (bool, error), enter func(ID, [sha256.Size]byte) error) error {
	var body struct {
		ClientID     delivery.Text `json:"clientId"`
		ClientSecret delivery.Text `json:"clientSecret"`
	}
	f := x.form(&body)
	f.Require("clientId", body.ClientID.Set)
	f.Require("clientSecret", body.ClientSecret.Set)
	err := f.err()
	if err != nil {
		return err
	}
	if len(body.ClientSecret.Value) > maxSecret {
		body.ClientSecret.Value = "" // the digest fits none that was issued
	}
	secret := sha256.Sum256([]byte(body.ClientSecret.Value))
	clientID, origin := body.ClientID.Value, service.Origin(x.ctx.Conn()).String()
	id, possible := parse(clientID)
	if !possible {
		clientID = ""
	}

	if possible {
		quota := x.quota
		refusal := refused(id)
		if refusal != nil {
			right, err := known(id, secret)
			if err != nil {
				return err
			}
			if right {
				return refusal
			}
			x.quota = quota // of an account that is another's
		}
	}

	limiter := g.logins
	if wait := x.ledger.Limits.LoginWait(clientID, origin); wait > 0 || !limiter.enter() {
		limiter = g.limiterOf(x)
		right := false
		if possible {
			right, err = known(id, secret)
		}
		switch {
		case err != nil:
			return err
		case !right && wait > 0:
			return ledger.TooManyLogins(wait)
		case !right || !limiter.enter():
			return errOverloaded
		}
	}
	defer limiter.leave()

	err = errWrongCredentials
	if possible {
		err = enter(id, secret)
	}
	if delivery.CodeOf(err) != delivery.CodeInvalidCredentials {
		return err
	}
	return cmp.Or(x.ledger.Limits.CountFailedLogin(g.work, clientID, origin), errWrongCredentials)
}

var errWrongCredentials error = delivery.Refuse(delivery.CodeInvalidCredentials, "clientId or clientSecret is wrong")

// issue answers with a token. One of the second in which others were revoked is
// issued as of the next one, from which on tokens are good: a token's time has
// whole seconds.
func (g *gateway) issue(x *requestContext, authority *token.Authority, subject [16]byte, known ledger.Known) error {
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
