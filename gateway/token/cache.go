package token

import "sync"

// cacheSize is how many verified tokens one generation holds, in about 5 MB.
const cacheSize = 16_384

// cache remembers tokens whose signature has been verified. Only such tokens enter, so
// strangers cannot flush it. A full young generation becomes the old one, which is
// dropped; a token in use moves back to the young one.
type cache struct {
	mu         *sync.RWMutex
	young, old map[string]verified
}

type verified struct {
	subject [16]byte
	issued  int64 // Unix seconds
	expires int64 // Unix seconds; the token is good before that
}

func newCache() cache {
	return cache{mu: new(sync.RWMutex), young: make(map[string]verified)}
}

func (c *cache) get(token []byte) (verified, bool) {
	c.mu.RLock()
	v, young := c.young[string(token)]
	if young {
		c.mu.RUnlock()
		return v, true
	}
	v, old := c.old[string(token)]
	c.mu.RUnlock()
	if old {
		c.put(string(token), v)
	}
	return v, old
}

func (c *cache) put(token string, v verified) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young) >= cacheSize {
		c.old, c.young = c.young, make(map[string]verified, cacheSize)
	}
	c.young[token] = v
}
