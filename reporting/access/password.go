package access

import (
	"context"
	"time"

	"github.com/alexedwards/argon2id"
	"golang.org/x/sync/semaphore"

	"vendorapi/internal/delivery"
)

// checkPatience is how long a sign-in waits for its turn.
const checkPatience = 5 * time.Second

// passwordChecks compares passwords, a few at a time: each takes the memory that
// its hash was made with.
type passwordChecks struct {
	turns *semaphore.Weighted
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
	return &passwordChecks{turns: semaphore.NewWeighted(int64(atOnce)), nobody: nobody}, err
}

// fits tells whether it is the user's password; user may be nil.
// SERVICE_UNAVAILABLE when its turn does not come.
func (c *passwordChecks) fits(ctx context.Context, user *User, password string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	if err := c.turns.Acquire(ctx, 1); err != nil {
		return false, &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: unavailableFor,
			Message: "too many people sign in at the moment"}
	}
	defer c.turns.Release(1)
	hash := c.nobody
	if user != nil {
		hash = user.hash
	}
	fits, err := argon2id.ComparePasswordAndHash(password, hash)
	return fits && user != nil, err
}
