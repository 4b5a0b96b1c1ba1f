package world

import (
	"math/rand/v2"
	"sync"
	"time"
)

// credentials are those of an account or a fleet: its secrets and tokens with when each must end.
type credentials struct {
	w        *world
	private  bool // of a fleet
	login    string
	subject  string // of the story
	clientID string

	mu      sync.Mutex
	secret  string
	bearer  string
	fetched time.Time
	former  []former

	replaced []string // earlier secrets, which work until a rotation revokes them
}

// former is a secret, or a token, that was replaced.
type former struct {
	value   string
	isToken bool
	issued  time.Time // of a token
	after   time.Time // from when it must be refused
}

// token returns one that is good, if there is any.
func (c *credentials) token(who string, random *rand.Rand) string {
	c.mu.Lock()
	bearer, age := c.bearer, time.Since(c.fetched)
	c.mu.Unlock()
	if bearer == "" || age > 50*time.Minute {
		c.logIn(who, random)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bearer
}

func (c *credentials) logIn(who string, random *rand.Rand) *answer {
	c.mu.Lock()
	secret := c.secret
	c.mu.Unlock()
	began := time.Now()
	a := c.tryLogIn(who, random, secret)
	var data struct{ AccessToken string }
	a.into(&data)
	if a.ok() {
		c.mu.Lock()
		if secret == c.secret {
			c.bearer, c.fetched = data.AccessToken, began
		}
		c.mu.Unlock()
	}

	return a
}

func (c *credentials) tryLogIn(who string, random *rand.Rand, secret string) *answer {
	return c.w.ask(who, random, request{private: c.private, method: "POST", path: c.login,
		body: jsonOf(map[string]string{"clientId": c.clientID, "clientSecret": secret})})
}
