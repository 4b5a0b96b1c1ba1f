package auth

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alexedwards/argon2id"

	"vendorapi/internal/delivery"
	"vendorapi/internal/service"
)

const checkTimeout = 50 * time.Second // for a turn; proxies commonly wait a minute

// passwordChecks compares a few passwords at a time: each takes its hash's memory.
type passwordChecks struct {
	// known is for browsers in which the user has signed in before.
	known, others turns
	// nobody is a hash as costly as the users', so that an unknown name takes as long.
	nobody string
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
	password, _, err := NewToken("nobody", nil) // 32 random bytes, forgotten at once
	if err != nil {
		return nil, err
	}
	nobody, err := argon2id.CreateHash(password, &cost)
	return &passwordChecks{known: turns{free: 1}, others: turns{free: atOnce}, nobody: nobody}, err
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
	fits, err = argon2id.ComparePasswordAndHash(password, hash)
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
	t.mu.Lock()
	t.waiting = append(t.waiting, a)
	t.next()
	if len(t.waiting) > mostWaiting {
		t.answer(slices.MaxFunc(t.waiting, t.order()), false)
	}
	t.mu.Unlock()
	select {
	case mine := <-a.turn:
		return mine
	case <-ctx.Done():
	}
	t.mu.Lock()
	if slices.Contains(t.waiting, a) {
		t.answer(a, false)
	}
	t.mu.Unlock()
	return <-a.turn // it may have come in between
}

func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.next()
}

func (t *turns) next() {
	for t.free > 0 && len(t.waiting) > 0 {
		t.free--
		t.answer(slices.MinFunc(t.waiting, t.order()), true)
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

// clientAddress stands for who asks when attempts are counted. X-Forwarded-For is
// read from its end, as far as trusted proxies have written it.
func (g *Gate) clientAddress(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	address := peer.Addr().Unmap().WithZone("")
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		before, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil || !trusted(g.proxies, address) {
			break
		}
		address = before.Unmap().WithZone("")
	}
	return service.Network(address).String()
}

func trusted(proxies []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(address) })
}
