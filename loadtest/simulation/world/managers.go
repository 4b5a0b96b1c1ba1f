package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// manage changes an account's secrets while its people act, and tries those that have ended.
func (v *vendor) manage(ctx context.Context) {
	who := "manager of " + v.name
	random := v.w.chance(who)
	for {
		wait, over := v.w.plan.nextAct(random)
		if over {
			return
		}
		pause(ctx, wait*5+time.Duration(random.Int64N(int64(10*time.Minute))))
		if ctx.Err() != nil {
			return
		}
		chance := random.IntN(10)
		switch {
		case chance < 3:
			v.rotateWebhookSecret(who, random)
		case chance < 5:
			v.credentials.rotate(v.id, who, random)
		case chance < 6:
			since := time.Now().Add(-time.Duration(random.IntN(120)) * time.Minute).UTC().Format(time.RFC3339)
			v.w.ask(who, random, request{method: "POST", path: "/api/vendor/v1/webhook/replay",
				body: jsonOf(map[string]string{"since": since}), bearer: v.credentials.token(who, random)})
		default:
			v.credentials.tryFormer(who, random)
		}
	}
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
	if !a.ok() && !a.unknown() { // refused: so many earlier ones still work
		v.receiver.mu.Lock()
		v.receiver.secrets = before
		v.receiver.mu.Unlock()
		return
	}
	for !a.ok() {
		pause(context.Background(), time.Minute)
		revoke = true // of those that nobody knows
		asked = time.Now()
		before = nil
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
	v.receiver.secrets = append(before, &secret{value: data.Secret, issued: a.ended})
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
	if !revoke {
		return
	}
	c.former = append(c.former, former{value: before, after: a.ended})
	if bearer != "" {
		c.former = append(c.former, former{value: bearer, isToken: true, issued: fetched, after: a.ended})
	}
	c.bearer = ""
}

// tryFormer tries what has ended: it must be refused for ever.
func (c *credentials) tryFormer(who string, random *rand.Rand) {
	c.mu.Lock()
	former := append([]former(nil), c.former...)
	c.mu.Unlock()
	for _, f := range former {
		began := time.Now()
		if began.Before(f.after.Add(3*time.Minute)) || f.isToken && time.Since(f.issued) > 2*time.Hour {
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

// checkReports: what a fleet was acknowledged is in the order's history, or refused where operators see it, or the
// order has ended; and no two couriers have one order.
func (w *world) checkReports(ctx context.Context) {
	refused, err := w.ledger.Monitor.RefusedUpdates(ctx, 1000)
	if err != nil {
		w.breach("unreadable", "refused updates", "%v", err)
		return
	}
	wasRefused := make(map[string]bool)
	for _, r := range refused {
		wasRefused[r.Update.Order.String()+r.Update.Status.String()] = true
	}
	type known struct {
		reached map[string]bool
		ended   bool
	}
	orders := make(map[string]known)
	for _, o := range w.facts.Orders {
		k := known{reached: map[string]bool{o.Status: true}}
		for _, c := range o.Changes {
			k.reached[c.Status] = true
		}
		k.ended = k.reached["Failed"] || k.reached["Cancelled"] || k.reached["Delivered"]
		orders[o.ID] = k
	}

	takers := make(map[string]map[string]bool)
	swapped := make(map[string]bool)
	for _, f := range w.fleets {
		for _, r := range f.reports {
			if r.kind == "swap" {
				swapped[r.order] = true
			}
			if r.kind == "accept" && r.isAcknowledged {
				if takers[r.order] == nil {
					takers[r.order] = make(map[string]bool)
				}
				takers[r.order][f.name+r.courier] = true
			}
			k, isThere := orders[r.order]
			if r.kind == "status" && r.isAcknowledged && isThere && !k.reached[r.status] && !wasRefused[r.order+r.status] {
				w.breach("report-lost", r.order, "%s was acknowledged at %s, and is neither in the history nor refused",
					r.status, r.ended.Format(time.RFC3339))
			}
		}
	}
	for order, couriers := range takers {
		if len(couriers) > 1 && !swapped[order] {
			w.breach("two-couriers", order, "%s", fmt.Sprint(len(couriers), " couriers were answered that they have it"))
		}
	}
}
