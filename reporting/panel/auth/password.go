package auth

import (
	"context"
	"time"

	"github.com/alexedwards/argon2id"

	"vendorapi/internal/delivery"
)

// checkPatience is how long a sign-in waits for its turn; proxies commonly wait a
// minute for an answer.
const checkPatience = 50 * time.Second

// passwordChecks compares passwords, a few at a time: each takes the memory that
// its hash was made with.
type passwordChecks struct {
	// known is for browsers in which the user has signed in before.
	known, others turns
	// nobody is a hash that no password fits, and costs as much as those of the
	// users, so that an unknown name takes as long as a wrong password.
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

// fits tells whether it is the user's password, once it is the attempt's turn;
// user may be nil. SERVICE_UNAVAILABLE, or RATE_LIMITED after too many, when its
// turn does not come.
func (c *passwordChecks) fits(ctx context.Context, a *attempt, user *User, password string) (fits bool, err error) {
	queue := &c.others
	if a.known {
		queue = &c.known
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	if !queue.take(ctx, a) {
		if a.many != nil {
			return false, a.many
		}
		return false, &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: unavailableFor,
			Message: "too many people sign in at the moment"}
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
