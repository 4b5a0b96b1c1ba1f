package ledger

import (
	"errors"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
)

// bucket is what redis_rate keeps, exactly and by the test's clock.
type bucket struct {
	rate, asked int
	free        float64
	at          time.Time
}

func newBucket(rate int, at time.Time) *bucket {
	return &bucket{rate: rate, free: float64(accounts.FleetBurst * rate), at: at}
}

func (b *bucket) take(now *time.Time) accounts.TakePermits {
	return func(rate, n int) (*redis_rate.Result, error) {
		b.asked++
		b.free = min(b.free+now.Sub(b.at).Seconds()*float64(rate), float64(accounts.FleetBurst*rate))
		b.at = *now
		result := &redis_rate.Result{RetryAfter: -1}
		if b.free < 1 {
			result.RetryAfter = time.Duration((1 - b.free) / float64(rate) * float64(time.Second))
			return result, nil
		}

		got := min(b.free, float64(n))
		b.free -= got
		result.Allowed = int(got)

		return result, nil
	}
}

func limited(t *testing.T, err error) time.Duration {
	t.Helper()
	if err == nil {
		return 0
	}
	refusal := wantCode(t, err, delivery.CodeRateLimited)
	require(t, refusal.RetryAfter > 0, "no RetryAfter")
	return refusal.RetryAfter
}

// A flood at two gateways gets what the bucket has and its rate, the blocks aside,
// and asks Redis no more often than there are blocks.
//
//rule:fleets-and-operators/a-fleet-s-requests-are-held fleets-and-operators/gateways-take-permits-from-redis
func TestFleetGuard_AdmitsTheRateAndAsksSeldom(t *testing.T) {
	for _, rate := range []int{1, 7, 200} {
		now := time.Now()
		b := newBucket(rate, now)
		var gateways [2]accounts.FleetGuard
		admitted, seconds := 0, 20
		step := time.Second / time.Duration(10*rate)
		for end := now.Add(time.Duration(seconds) * time.Second); now.Before(end); now = now.Add(step) {
			for i := range gateways {
				if limited(t, gateways[i].Admit(rate, now, b.take(&now))) == 0 {
					admitted++
				}
			}
		}

		most := (accounts.FleetBurst + seconds) * rate
		check(t, admitted <= most && admitted >= most*9/10-2, "%d a second: %d admitted, want %d", rate, admitted, most)
		// A gateway that finds less than a block asks once more before it waits.
		blocks := accounts.FleetBlocks * (accounts.FleetBurst + 3*len(gateways)*seconds)
		check(t, b.asked <= blocks, "%d a second: Redis was asked %d times, at most %d are blocks", rate, b.asked, blocks)
	}
}

//rule:fleets-and-operators/a-fleet-s-requests-are-held
func TestFleetGuard_RefusesNobodyWhoStaysWithin(t *testing.T) {
	for _, rate := range []int{1, 3, 200} {
		now := time.Now()
		b := newBucket(rate, now)
		var gateways [3]accounts.FleetGuard
		for n := range 100 * rate {
			wait := limited(t, gateways[n%3].Admit(rate, now, b.take(&now)))
			require(t, wait == 0, "%d a second: request %d has to wait %s", rate, n, wait)
			now = now.Add(time.Second / time.Duration(rate))
		}
	}
}

//rule:fleets-and-operators/a-fleet-s-requests-are-held
func TestFleetGuard_RetryAfterIsTrue(t *testing.T) {
	for _, rate := range []int{1, 3, 7, 200} {
		for _, n := range []int{0, 1, 50, 500, 1_000_000} {
			now := time.Now()
			b := newBucket(rate, now)
			var g accounts.FleetGuard
			admit := func() error { return g.Admit(rate, now, b.take(&now)) }
			for what, try := range map[string]func() error{
				"a request": admit,
				"a batch":   func() error { return g.Charge(n, now, b.take(&now)) },
			} {
				must(t, admit())
				wait := limited(t, try())
				for range 10 * accounts.FleetBurst * rate {
					if wait > 0 {
						break
					}
					wait = limited(t, try())
				}

				if wait == 0 && n == 0 {
					continue // a batch of nothing
				}

				asked := b.asked
				now = now.Add(wait - time.Nanosecond)
				check(t, limited(t, try()) > 0 && b.asked == asked, "%d a second, %d more: a refusal of %s asks Redis", rate, n, what)
				now = now.Add(time.Nanosecond)
				again := limited(t, try())
				check(t, again == 0, "%d a second, %d more: after %s %s has to wait %s more", rate, n, wait, what, again)
				now = now.Add(time.Hour)
			}
		}
	}
}

// A request with a batch, or a page, counts twice: itself, and what it is about. Who waits
// as the refusal of the second says has permits for both.
//
//rule:fleets-and-operators/a-fleet-s-requests-are-held
func TestFleetGuard_RetryAfterIsTrueForARequestWithItsBatch(t *testing.T) {
	for _, rate := range []int{1, 3, 7, 10, 200} {
		for _, n := range []int{1, 10, 50, 500, 1_000_000} {
			for spent := range accounts.FleetBurst * rate {
				now := time.Now()
				b := newBucket(rate, now)
				var g accounts.FleetGuard
				for range spent {
					must(t, g.Admit(rate, now, b.take(&now)))
				}

				must(t, g.Admit(rate, now, b.take(&now)))
				wait := limited(t, g.Charge(n, now, b.take(&now)))
				if wait == 0 {
					continue
				}

				now = now.Add(wait)
				must(t, g.Admit(rate, now, b.take(&now)))
				again := limited(t, g.Charge(n, now, b.take(&now)))
				require(t, again == 0, "%d a second, %d more after %d: after %s it has to wait %s more", rate, n, spent, wait, again)
			}
		}
	}
}

func TestFleetGuard_SpendsWhatWorkCosts(t *testing.T) {
	now := time.Now()
	b := newBucket(200, now)
	var g accounts.FleetGuard
	admit := func() error { return g.Admit(200, now, b.take(&now)) }
	must(t, admit())
	must(t, g.Charge(500, now, b.take(&now)))
	check(t, limited(t, g.Charge(500, now, b.take(&now))) > 0, "a second batch is done with what is left")
	must(t, admit()) // a single request is not held up by the batch
	// Another limit begins with nothing held.
	b.free = 0
	wait := limited(t, g.Admit(100, now, b.take(&now)))
	check(t, wait > 0, "permits of another limit are spent")
	lost := errors.New("lost")
	var other accounts.FleetGuard
	err := other.Admit(200, now, func(int, int) (*redis_rate.Result, error) { return nil, lost })
	check(t, errors.Is(err, lost) && errors.Is(err, delivery.ErrUnavailable), "got %v", err)
}

func TestAdmitFleet_CountsInRedisAndTellsOperators(t *testing.T) {
	l := openTest(t)
	f := newFleet(t, l)
	f.RequestsPerSecond = 1
	now := time.Now()
	admitted := 0
	for limited(t, l.Fleets.Admit(t.Context(), f, now)) == 0 {
		admitted++
		require(t, admitted < 1000, "no limit")
	}

	check(t, admitted >= accounts.FleetBurst, "%d admitted at once", admitted)
	must(t, l.Fleets.FlushLimited(t.Context()))
	got := get(l.Fleets.Limited(t.Context()))(t)
	check(t, len(got) == 1 && got[f.ID].Equal(now.Truncate(time.Millisecond)), "limited %v", got)
}
