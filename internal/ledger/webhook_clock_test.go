package ledger

import (
	"testing"
	"time"
)

// jump moves the scripts' clock alone, as when Redis's machine loses the time.
func (s *env) jump(t *testing.T, d time.Duration) {
	t.Helper()
	s.setClock(t, s.ms.Load()*1000+d.Microseconds())
}

// What Redis planned with its clock an hour ahead is not an hour late once the
// clock is right again.
func TestClock_EndpointsAreLookedAtAfterAJumpBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		ahead func(t *testing.T, s *env) // what happens with the clock ahead
	}{
		{"breaker opened", func(t *testing.T, s *env) {
			s.ends(t, failsFor(time.Minute), s.lease(t, s.breaker)...)
			require(t, s.endpoint(t).BreakerOpen, "the breaker is not open")
		}},
		{"asked to be left alone", func(t *testing.T, s *env) {
			s.ends(t, isBusy(10*time.Second), s.lease(t, s.breaker)[0])
		}},
		{"leased by a process that died", func(t *testing.T, s *env) { s.lease(t, s.breaker) }},
		{"lost leases taken back", func(t *testing.T, s *env) {
			s.lease(t, s.breaker)
			s.jump(t, time.Hour+lease)
			s.lease(t, s.breaker)
		}},
		{"nothing", func(*testing.T, *env) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newWebhookEnv(t, 3)
			s.publish(t, s.breaker)
			s.jump(t, time.Hour)
			c.ahead(t, s)
			s.jump(t, 0)
			delivered := 0
			for passed := time.Duration(0); passed < 5*time.Minute; passed += time.Second {
				s.pass(t, time.Second)
				s.unpaced(t)
				ds, _ := get2(s.Lease(t.Context(), 0, grant(100)))(t)
				for _, d := range ds {
					s.ends(t, accepts, d)
					if !d.Ping {
						delivered++
					}
				}
			}
			check(t, delivered == s.breaker, "%d of %d events were handed out within five minutes of the jump back", delivered, s.breaker)
		})
	}
}

// Small differences, and a clock that stood still, change nothing.
func TestClock_SmallStepsBackChangeNoPlans(t *testing.T) {
	s := opened(t, 1, 20*time.Hour)
	before, _ := s.gate(t)
	for range 20 {
		s.jump(t, -900*time.Millisecond)
		s.lease(t, 0)
		s.jump(t, 0)
		s.lease(t, 0)
	}
	after, there := s.gate(t)
	check(t, there && after == before, "the gate was %+v, is %+v", before, after)
}
