package download

import (
	"fmt"
	"sync"
	"time"

	"vendorapi/internal/delivery"
)

// slotPatience is what a client without a slot is asked to wait: most downloads
// are over by then.
const slotPatience = 5 * time.Second

// slots bound how many downloads run at once, in all and for one user or token,
// so that nobody keeps the others out.
type slots struct {
	most, mostEach int

	mu    sync.Mutex
	taken int
	by    map[string]int
}

func newSlots(most, mostEach int) *slots {
	return &slots{most: most, mostEach: mostEach, by: make(map[string]int)}
}

// take gives a slot until leave is called. RATE_LIMITED when the user has all
// that one may have, SERVICE_UNAVAILABLE when others have them all.
func (s *slots) take(user string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.by[user] >= s.mostEach:
		return nil, &delivery.Error{Code: delivery.CodeRateLimited, RetryAfter: slotPatience,
			Message: fmt.Sprintf("%d downloads of yours are in progress, which is as many as one may have", s.by[user])}
	case s.taken >= s.most:
		return nil, &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: slotPatience,
			Message: "too many downloads are in progress"}
	}
	s.taken++
	s.by[user]++
	return sync.OnceFunc(func() { s.leave(user) }), nil
}

func (s *slots) leave(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	if s.by[user]--; s.by[user] == 0 {
		delete(s.by, user)
	}
}
