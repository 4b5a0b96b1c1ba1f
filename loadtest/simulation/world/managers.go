package world

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"vendorapi/loadtest/faults/validate"
)

// manager looks after an account: changes its settings and secrets while its people act, and tries secrets and tokens
// that have ended.
type manager struct {
	*vendor
	who     string
	random  *rand.Rand
	changes int // settings changed so far; part of each new value, so that no value occurs twice
}

// manage acts every ten minutes, on average, until the plan or ctx ends. It also acts while nobody else does, so that a
// secret or token that ends within an hour is tried before.
func (m *manager) manage(ctx context.Context) {
	for time.Now().Before(m.w.plan.end()) {
		pause(ctx, time.Duration(m.random.Int64N(int64(20*time.Minute))))
		if ctx.Err() != nil {
			return
		}
		m.do()
	}
}

// do does one of the manager's actions, by chance.
func (m *manager) do() {
	chance := m.random.IntN(16)
	switch {
	case chance < 2:
		m.rotateWebhookSecret(m.who, m.random)
	case chance < 7:
		m.credentials.rotate(m.id, m.who, m.random)
	case chance < 8:
		m.replay()
	case chance < 9:
		m.changeLimit()
	case chance < 10:
		m.moveWebhook()
	case chance < 11:
		m.readSettings()
	default:
		m.credentials.tryFormer(m.who, m.random)
	}
}

// replay asks for a replay of all events of the last two hours or less, and notes the request for the checks.
func (m *manager) replay() {
	since := time.Now().Add(-time.Duration(m.random.IntN(120)) * time.Minute).Truncate(time.Second)

	m.w.mu.Lock()
	m.w.replays = append(m.w.replays, validate.ReplayRequest{Account: m.id, Since: since, Asked: time.Now()})
	m.w.mu.Unlock()

	body := jsonOf(map[string]string{"since": since.UTC().Format(time.RFC3339)})
	m.w.ask(m.who, m.random, m.asVendor("POST", "/webhook/replay", body))
}

// asVendor returns a request to the vendors' API with an access token of the account. It may ask for a token first.
func (m *manager) asVendor(method, path, body string) request {
	return request{method: method, path: "/api/vendor/v1" + path, body: body, bearer: m.credentials.token(m.who, m.random)}
}

// setting sends a request that changes or reads a setting, and logs the operation with its answer. value returns the
// setting from an answer; it is called for a successful read only, and may be nil for a change.
func (m *manager) setting(op validate.Operation, r request, value func(*answer) string) {
	op.Client, op.Account, op.Start = 200, m.id, time.Now()
	a := m.w.ask(m.who, m.random, r)
	op.End, op.Status, op.Code = a.ended, a.status, a.code
	if op.Kind == validate.Get && a.ok() {
		op.Value = value(a)
	}
	m.w.log(op)
}

// changeLimit changes a limit that nobody reaches.
func (m *manager) changeLimit() {
	m.changes++
	maxStores := 10_000 + m.changes
	body := jsonOf(map[string]any{"limits": map[string]any{"maxStores": maxStores}})
	m.setting(validate.Operation{Kind: validate.Set, Setting: "limit", Value: strconv.Itoa(maxStores)},
		admin("PATCH", "/accounts/"+m.id, body), nil)
}

// moveWebhook sets another URL of the webhook, which leads to the same receiver.
func (m *manager) moveWebhook() {
	m.changes++
	url := m.receiverURL() + strconv.Itoa(m.changes)
	m.setting(validate.Operation{Kind: validate.Set, Setting: "webhook", Value: url},
		m.asVendor("PUT", "/webhook", jsonOf(map[string]string{"url": url})), nil)
}

// readSettings reads what changeLimit and moveWebhook change.
func (m *manager) readSettings() {
	m.setting(validate.Operation{Kind: validate.Get, Setting: "limit"}, admin("GET", "/accounts/"+m.id, ""), func(a *answer) string {
		var account struct{ Limits struct{ MaxStores int } }
		a.into(&account)
		return strconv.Itoa(account.Limits.MaxStores)
	})

	m.setting(validate.Operation{Kind: validate.Get, Setting: "webhook"}, m.asVendor("GET", "/webhook", ""), func(a *answer) string {
		var webhook struct{ URL string }
		a.into(&webhook)
		return webhook.URL
	})
}

// rotateWebhookSecret replaces the secret. While its answer is unknown, which secret is the newest is unknown, too, so
// nothing of the account's signatures is held against anybody.
func (v *vendor) rotateWebhookSecret(who string, random *rand.Rand) {
	revoke := percent(random, 40)
	v.receiver.mu.Lock()
	before := v.receiver.secrets
	v.receiver.secrets = nil
	v.receiver.mu.Unlock()

	asked := time.Now()
	a := v.w.ask(who, random, admin("POST", "/accounts/"+v.id+"/webhook/rotate", jsonOf(map[string]bool{"revokeOld": revoke})))
	if !a.ok() && !a.unknown() { // refused, because too many earlier secrets still work: nothing has changed
		v.receiver.mu.Lock()
		v.receiver.secrets = before
		v.receiver.mu.Unlock()
		return
	}

	for try := 0; !a.ok(); try++ {
		if try == 200 {
			v.w.breach("stuck", v.name, "no webhook secret is issued: %d %s", a.status, a.code)
			return
		}
		pause(context.Background(), time.Minute)
		revoke = true // the lost answers' secrets are unknown, so that the next rotation must end all earlier ones
		asked = time.Now()
		a = v.w.ask(who, random, admin("POST", "/accounts/"+v.id+"/webhook/rotate", `{"revokeOld":true}`))
	}

	var data struct{ Secret string }
	a.into(&data)

	v.receiver.mu.Lock()
	defer v.receiver.mu.Unlock()
	for i, s := range before {
		switch {
		case revoke && (s.ends.IsZero() || s.ends.After(asked)):
			before[i] = &secret{value: s.value, issued: s.issued, ends: a.ended}
		case s.ends.IsZero():
			before[i] = &secret{value: s.value, issued: s.issued, ends: asked.Add(24 * time.Hour)}
		}
	}

	before = append(before, &secret{value: data.Secret, issued: a.ended})
	v.receiver.secrets = before
}

// rotate replaces the secret of the credentials; with revokeOld every earlier secret and token ends.
func (c *credentials) rotate(id, who string, random *rand.Rand) {
	revoke := percent(random, 60)

	c.mu.Lock()
	before, bearer, fetched := c.secret, c.bearer, c.fetched
	c.mu.Unlock()

	a := c.w.askUntil(who, random, admin("POST", "/accounts/"+id+"/credentials", jsonOf(map[string]bool{"revokeOld": revoke})))
	if !a.ok() {
		return
	}

	var data struct{ ClientSecret string }
	a.into(&data)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.secret = data.ClientSecret
	c.replaced = append(c.replaced, before)
	if !revoke {
		return
	}

	for _, secret := range c.replaced {
		c.former = append(c.former, former{value: secret, after: a.ended})
	}
	c.replaced = nil

	if bearer != "" {
		c.former = append(c.former, former{value: bearer, isToken: true, issued: fetched, after: a.ended})
	}

	c.bearer = ""
}

// revocationSlack is how long a gateway may accept a revoked secret or token, because it has not asked again.
const revocationSlack = 6 * time.Minute

// tryFormer uses each revoked secret and token once, and reports a breach for one that is accepted. It leaves out those
// that a gateway may still accept (revocationSlack), and tokens that are too old to work anyway.
func (c *credentials) tryFormer(who string, random *rand.Rand) {
	c.mu.Lock()
	revoked := append([]former(nil), c.former...)
	c.mu.Unlock()

	for _, f := range revoked {
		began := time.Now()
		mayStillWork := began.Before(f.after.Add(revocationSlack))
		if mayStillWork || f.isToken && time.Since(f.issued) > 2*time.Hour {
			continue
		}

		var a *answer
		if f.isToken {
			a = c.w.ask(who, random, request{method: "GET", path: "/api/vendor/v1/webhook", bearer: f.value})
		} else {
			a = c.tryLogIn(who, random, f.value)
		}

		if a.ok() {
			kind := "secret"
			if f.isToken {
				kind = "token"
			}
			c.w.breach("revoked-works", c.subject, "a %s that was revoked %s ago is accepted", kind, began.Sub(f.after))
		}
	}
}
