package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/validate"
)

// admin returns an operator's request to the admin API.
func admin(method, path, body string) request {
	return request{private: true, method: method, path: "/api/admin/v1" + path, body: body, bearer: adminKey}
}

// populate makes two fleets and three vendors. The first vendor's receiver is healthy. The second has low limits, and
// a receiver that fails at times. The third has such a receiver, too, and a manager who changes its settings.
func (w *world) populate() {
	random := w.chance("populate")
	ask := func(r request, into any) {
		a := w.askUntil("operator", random, r)
		if !a.ok() {
			w.breach("setup", r.path, "%s was answered %d %s", r.method, a.status, a.raw)
		}
		a.into(into)
	}

	for i := range 2 {
		var created struct{ FleetID, ClientID, ClientSecret string }
		name := fmt.Sprintf("fleet-%d", i+1)
		ask(admin("POST", "/fleets", fleetBody(name)), &created)

		f := &fleet{w: w, name: name, id: created.FleetID}
		f.credentials = &credentials{
			w:        w,
			private:  true,
			login:    "/api/fleet/v1/token",
			subject:  name,
			clientID: created.ClientID,
			secret:   created.ClientSecret,
		}
		w.fleets = append(w.fleets, f)
	}

	time.Sleep(5 * time.Minute) // until each gateway has read the fleets

	for i := range 3 {
		var created struct{ AccountID, ClientID, ClientSecret string }
		v := &vendor{w: w, name: fmt.Sprintf("vendor-%d", i+1), limits: delivery.DefaultLimits(), prone: i > 0, changes: i == 2}
		body := map[string]any{"name": v.name}
		if i == 1 {
			v.limits.Orders = delivery.EndpointLimit{
				Sustained: delivery.Window{Count: 10, Seconds: 5},
				Burst:     delivery.Window{Count: 4, Seconds: 1},
			}
			body["limits"] = map[string]any{"orders": map[string]any{
				"sustained": map[string]int{"count": 10, "seconds": 5},
				"burst":     map[string]int{"count": 4, "seconds": 1},
			}}
		}

		ask(admin("POST", "/accounts", jsonOf(body)), &created)
		v.id = created.AccountID
		v.credentials = &credentials{
			w:        w,
			login:    "/api/vendor/v1/token",
			subject:  v.name,
			clientID: created.ClientID,
			secret:   created.ClientSecret,
		}
		v.receiver = &receiver{account: v.id, random: w.chance("receiver of " + v.name)}
		w.vendors = append(w.vendors, v)

		as := func(method, path, body string) request {
			return request{method: method, path: "/api/vendor/v1" + path, body: body, bearer: v.credentials.token(v.name, random)}
		}
		fleet := w.fleets[i%2]
		ask(as("PUT", "/stores/s1", storeBody(fleet.id)), &struct{}{})
		ask(request{
			private: true,
			method:  "POST",
			path:    "/api/fleet/v1/stores/" + v.id + "/s1/confirm",
			bearer:  fleet.credentials.token(fleet.name, random),
		}, &struct{}{})

		var registered struct{ Secret string }
		ask(as("PUT", "/webhook", jsonOf(map[string]string{"url": v.receiverURL() + "1"})), &registered)
		v.receiver.secrets = []*secret{{value: registered.Secret, issued: time.Now()}}
	}
}

// act lets vendors' clients, managers, receivers and couriers act, each in a goroutine, and returns when the plan or ctx has
// ended and all have stopped.
func (w *world) act(ctx context.Context) {
	var people sync.WaitGroup
	for i, v := range w.vendors {
		for n := range 2 {
			who := fmt.Sprintf("%s/%d", v.name, n+1)
			c := &client{vendor: v, number: 2*i + n, who: who, random: w.chance(who)}
			people.Go(func() { w.repeat(ctx, c.random, c.do) })
		}

		if v.changes {
			who := "manager of " + v.name
			m := &manager{vendor: v, who: who, random: w.chance(who)}
			people.Go(func() { m.manage(ctx) })
		}

		if v.prone && w.plan.outages > 0 {
			people.Go(func() { v.changeMoods(ctx) })
		}
	}

	for i, f := range w.fleets {
		for n := range 2 {
			who := fmt.Sprintf("%s/%d", f.name, n+1)
			c := &courier{
				fleet:  f,
				number: 100 + 2*i + n,
				who:    who,
				phone:  fmt.Sprintf("555999887%d", 2*i+n),
				random: w.chance(who),
			}
			people.Go(func() { w.repeat(ctx, c.random, c.do) })
		}
	}

	people.Wait()
}

// repeat calls act again and again, after the pauses that the plan draws, until the plan or ctx ends.
func (w *world) repeat(ctx context.Context, random *rand.Rand, act func()) {
	for {
		wait, isOver := w.plan.nextAct(random)
		if isOver {
			return
		}

		pause(ctx, wait)
		if ctx.Err() != nil {
			return
		}

		act()
	}
}

// log keeps an operation that has ended, for the checks at the end.
func (w *world) log(op validate.Operation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.operations = append(w.operations, op)
}
