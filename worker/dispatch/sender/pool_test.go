package sender

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pooled is a connection that counts itself while it is open.
func pooled(open *atomic.Int64) *connection {
	near, far := net.Pipe()
	_ = far.Close()
	open.Add(1)
	conn := &counted{Conn: near, open: open}
	return &connection{Conn: conn}
}

func TestPool_KeepsConnectionsOfAURLApart(t *testing.T) {
	var open atomic.Int64
	p := pool{maxIdle: 10, perURL: 2, timeout: time.Hour}
	defer p.closeIdle()
	first, second := pooled(&open), pooled(&open)
	p.put("a", first)
	p.put("a", second)
	p.put("a", pooled(&open)) // one too many
	p.put("b", pooled(&open))

	if open.Load() != 3 {
		t.Errorf("%d are open", open.Load())
	}
	if p.take("a") != second || p.take("a") != first || p.take("a") != nil {
		t.Error("not the one that was used last")
	}
	if p.take("b") == nil || p.take("c") != nil || p.count != 0 {
		t.Errorf("%d are idle in the end", p.count)
	}
}

func TestPool_ClosesTheOldestBeyondItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 16
		var open atomic.Int64
		p := pool{maxIdle: bound, perURL: bound, timeout: time.Hour}
		defer p.closeIdle()
		for i := range 10 * bound {
			p.put(fmt.Sprint(i), pooled(&open))
			time.Sleep(time.Second)
			if n := open.Load(); n > bound || n != int64(p.count) || i > bound && n < bound/2 {
				t.Fatalf("%d are open, %d are idle", n, p.count)
			}
		}

		if p.take("0") != nil || p.take(fmt.Sprint(10*bound-1)) == nil {
			t.Error("not the oldest were closed")
		}
	})
}

func TestPool_ClosesWhatIsIdleForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		p := pool{maxIdle: 100, perURL: 100, timeout: time.Minute}
		for i := range 4 {
			p.put(fmt.Sprint(i%2), pooled(&open))
			time.Sleep(20 * time.Second)
		}

		for passed := 80; passed < 140; passed += 20 {
			synctest.Wait()
			if want := int64((140 - passed) / 20); open.Load() != want-1 && open.Load() != want {
				t.Errorf("after %d s %d are open, want %d", passed, open.Load(), want)
			}
			time.Sleep(20 * time.Second)
		}

		synctest.Wait()
		if open.Load() != 0 || len(p.idle) != 0 || p.sweep != nil {
			t.Errorf("%d are open, of %d URLs", open.Load(), len(p.idle))
		}
	})
}
