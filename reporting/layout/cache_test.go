package layout

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counting reads its own number after a while.
func counting(took time.Duration) (*Cache[int64], *atomic.Int64) {
	var reads atomic.Int64
	return &Cache[int64]{MaxAge: 3 * time.Second, Timeout: 10 * time.Second, Read: func(ctx context.Context) (int64, error) {
		n := reads.Add(1)
		select {
		case <-time.After(took):
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}}, &reads
}

func wantGot(t *testing.T, c *Cache[int64], want int64) {
	t.Helper()
	if got, err := c.Get(t.Context()); got != want || err != nil {
		t.Errorf("got %d, %v, want %d", got, err, want)
	}
}

func TestGet_ReadsOnceForAllWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, reads := counting(time.Second)
		began := time.Now()
		var all sync.WaitGroup
		for range 15 {
			all.Go(func() { wantGot(t, c, 1) })
		}

		all.Wait()
		if reads.Load() != 1 || time.Since(began) != time.Second {
			t.Errorf("%d reads in %v", reads.Load(), time.Since(began))
		}
	})
}

// The age counts from the end of the read: what takes longer to read than it may
// be old is shared all the same.
func TestGet_AgeCountsFromTheEndOfTheRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := counting(5 * time.Second)
		wantGot(t, c, 1)
		time.Sleep(3 * time.Second)
		wantGot(t, c, 1)
		time.Sleep(time.Millisecond)
		wantGot(t, c, 2)
	})
}

func TestGet_WhoGoesAwayDoesNotWaitAndTheOthersAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, reads := counting(4 * time.Second)
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := c.Get(gone); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}

		wantGot(t, c, 1)
		if reads.Load() != 1 {
			t.Errorf("%d reads", reads.Load())
		}
	})
}

func TestGet_ErrorsAreForThoseWhoWaitedAndNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, reads := counting(time.Minute) // beyond the timeout
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, err := c.Get(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}

		all.Wait()
		if _, err := c.Get(t.Context()); err == nil || reads.Load() != 2 {
			t.Errorf("%v, %d reads", err, reads.Load())
		}
	})
}

func TestGet_StaleValueIsReturnedWhileItIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := counting(time.Second)
		c.MaxStale = time.Minute
		wantGot(t, c, 1)
		time.Sleep(10 * time.Second)
		began := time.Now()
		wantGot(t, c, 1)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v", waited)
		}

		time.Sleep(time.Second)
		synctest.Wait()
		wantGot(t, c, 2)
		time.Sleep(2 * time.Minute)
		wantGot(t, c, 3) // too old to be shown
	})
}

func TestForget_NobodySeesWhatWasReadBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := counting(time.Second)
		wantGot(t, c, 1)
		c.Forget()
		var all sync.WaitGroup
		all.Go(func() { wantGot(t, c, 2) })
		synctest.Wait()
		c.Forget() // while the second read is in progress
		all.Go(func() { wantGot(t, c, 3) })
		all.Wait()
		wantGot(t, c, 3)
	})
}
