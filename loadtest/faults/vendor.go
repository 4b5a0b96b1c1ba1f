package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/history"
	"vendorapi/loadtest/faults/judge"
)

// vendor is one account of a round with its store, its receiver and what its
// clients have sent.
type vendor struct {
	id     delivery.AccountID
	name   string
	limits delivery.Limits
	token  string
	inbox  *judge.Inbox
	health judge.Health

	addr   string
	opened sync.Mutex
	server *http.Server
	hook   func() // told of every webhook that arrives; nil: nobody is

	mu   sync.Mutex
	sent []*sent // creations, in the order of sending
}

// sent is one creation that a client has tried.
type sent struct {
	external, key, content string
	body                   []byte
	order                  string // once an answer has told
	unclear                bool   // no answer has told whether there is an order
}

const storeName = "kadikoy-1"

// lowLimits are met at a few requests a second; the windows are short enough to
// pass several times in a round.
func lowLimits(random *rand.Rand) delivery.Limits {
	l := delivery.DefaultLimits()
	l.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: 8 + random.IntN(8), Seconds: 5}, Burst: delivery.Window{Count: 4 + random.IntN(3), Seconds: 2}}
	l.Cancel = delivery.EndpointLimit{Sustained: delivery.Window{Count: 3, Seconds: 4}}
	l.OrderStatus = delivery.EndpointLimit{Sustained: delivery.Window{Count: 5, Seconds: 3}}
	return l
}

// limitsBody is how the admin API takes limits: windows that an endpoint does not
// have are absent.
func limitsBody(l *delivery.Limits) map[string]map[string]delivery.Window {
	body := make(map[string]map[string]delivery.Window)
	for name, e := range map[string]delivery.EndpointLimit{
		"orders": l.Orders, "orderStatus": l.OrderStatus, "cancel": l.Cancel, "stores": l.Stores, "token": l.Token,
	} {
		body[name] = map[string]delivery.Window{"sustained": e.Sustained}
		if e.Burst.Count > 0 {
			body[name]["burst"] = e.Burst
		}
	}
	return body
}

// newVendors makes n fresh accounts, every second one with low limits, each with
// an active store and a receiver that is well.
func (r *rig) newVendors(ctx context.Context, round, n int, random *rand.Rand) ([]*vendor, error) {
	vendors := make([]*vendor, 0, n)
	for i := range n {
		v := &vendor{name: fmt.Sprintf("round %d vendor %d", round, i), limits: delivery.DefaultLimits(), health: judge.Healthy}
		if i%2 == 0 {
			v.limits = lowLimits(random)
		}
		vendors = append(vendors, v)
		if err := r.register(ctx, v); err != nil {
			closeAll(vendors)
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
	}
	for _, v := range vendors {
		if err := r.awaitStore(ctx, v); err != nil {
			closeAll(vendors)
			return nil, fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return vendors, nil
}

func closeAll(vendors []*vendor) {
	for _, v := range vendors {
		v.close()
	}
}

func (r *rig) register(ctx context.Context, v *vendor) (err error) {
	var account struct{ AccountID, ClientID, ClientSecret string }
	if err := r.admin.Call(ctx, http.MethodPost, "/accounts", map[string]any{"name": v.name, "limits": limitsBody(&v.limits)}, &account); err != nil {
		return err
	}
	if v.id, err = delivery.ParseAccountID(account.AccountID); err != nil {
		return err
	}
	if v.addr, err = stack.FreeAddr(); err != nil {
		return err
	}
	var hook struct{ Secret string }
	if err := r.admin.Call(ctx, http.MethodPut, "/accounts/"+account.AccountID+"/webhook", map[string]string{"url": "http://" + v.addr + "/"}, &hook); err != nil {
		return err
	}
	if v.inbox, err = judge.NewInbox(account.AccountID, hook.Secret); err != nil {
		return err
	}
	if err := v.open(); err != nil {
		return err
	}
	api := r.admin.As("http://"+r.links.gateway.Addr+"/api/vendor/v1", "")
	in, err := api.Login(ctx, "/token", account.ClientID, account.ClientSecret)
	if err != nil {
		return err
	}
	v.token = in.Bearer
	return in.Call(ctx, http.MethodPut, "/stores/"+storeName, map[string]any{
		"taxNumber": "1234567890", "name": "Kadıköy Şubesi", "phone": "02165550011", "fleetId": r.system.Demo.Fleet.FleetID,
		"address": map[string]any{"text": "Moda Caddesi No: 1, Kadıköy", "latitude": 40.9816, "longitude": 29.0258},
	}, nil)
}

// awaitStore waits until the sandbox courier has confirmed the store.
func (r *rig) awaitStore(ctx context.Context, v *vendor) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		s, err := r.ledger.Stores.Get(ctx, v.id, storeName)
		if err == nil && s.State == delivery.Active {
			return nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("the store is not confirmed: %w", err)
		}
	}
}

// open lets the receiver listen, again on its old address.
func (v *vendor) open() error {
	v.opened.Lock()
	defer v.opened.Unlock()
	if v.server != nil {
		return nil
	}
	var listener net.Listener
	var err error
	for range 100 { // between two openings the port is free for others
		if listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", v.addr); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("receiver: %w", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(v.serve), ReadHeaderTimeout: 10 * time.Second}
	v.server = server
	go func() { _ = server.Serve(listener) }() // ends with close
	return nil
}

func (v *vendor) serve(w http.ResponseWriter, req *http.Request) {
	v.opened.Lock()
	hook := v.hook
	v.opened.Unlock()
	if hook != nil {
		hook()
	}
	v.inbox.ServeHTTP(w, req)
}

// disturb notes that the receiver is not well for a part of the round.
func (v *vendor) disturb() {
	v.opened.Lock()
	defer v.opened.Unlock()
	v.health = judge.Disturbed
}

// onWebhook has hook told of every webhook that arrives. It must not wait.
func (v *vendor) onWebhook(hook func()) {
	v.opened.Lock()
	defer v.opened.Unlock()
	v.hook = hook
}

// close ends the receiver and its connections; its address refuses.
func (v *vendor) close() {
	v.opened.Lock()
	defer v.opened.Unlock()
	if v.server != nil {
		_ = v.server.Close() // what it still served is cut off, as a crash does
		v.server = nil
	}
}

// pick is one of the latest creations; nil before the first.
func (v *vendor) pick(random *rand.Rand) *sent {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.sent) == 0 {
		return nil
	}
	const latest = 12
	from := max(0, len(v.sent)-latest)
	return v.sent[from+random.IntN(len(v.sent)-from)]
}

// pickOrder is the id of one of the latest orders whose creation was answered.
func (v *vendor) pickOrder(random *rand.Rand) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	const latest = 12
	var ids []string
	for _, s := range slices.Backward(v.sent) {
		if s.order != "" {
			ids = append(ids, s.order)
		}
		if len(ids) == latest {
			break
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return ids[random.IntN(len(ids))]
}

func (v *vendor) remember(s *sent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sent = append(v.sent, s)
}

// learn notes what an answer to a creation has told.
func (v *vendor) learn(s *sent, op *history.Op) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case op.Unknown():
		s.unclear = s.order == ""
	case op.Status == http.StatusCreated:
		s.order, s.unclear = op.Order, false
	}
}

// unclear are the latest creations whose outcome no client has seen.
func (v *vendor) unclear(most int) (list []*sent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range slices.Backward(v.sent) {
		if s.unclear && len(list) < most {
			list = append(list, s)
		}
	}
	return list
}

// sleep returns early, with the reason, when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return errors.Join(errStopped, context.Cause(ctx))
	}
}
