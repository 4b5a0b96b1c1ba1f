package ledger

import (
	"context"
	"sync"
	"testing"
	"time"
)

func TestServers_SayWhatOperatorsWatch(t *testing.T) {
	t.Parallel()
	l := openTest(t)
	all := get(l.Servers(t.Context()))(t)
	require(t, len(all) != 0, "no server")
	for _, s := range all {
		check(t, s.Addr != "" && s.MemoryUsed > 0 && s.Clients > 0 && s.Commands > 0 && !s.AOFBroken, "%+v", s)
	}
}

func TestParseServer_TellsABrokenAOF(t *testing.T) {
	t.Parallel()
	healthy := "# Memory\r\nused_memory:100\r\nmaxmemory:200\r\n# Persistence\r\naof_enabled:1\r\naof_last_write_status:ok\r\naof_last_bgrewrite_status:ok\r\naof_delayed_fsync:3\r\n"
	if s := parseServer("a:1", healthy); s.MemoryUsed != 100 || s.MemoryMax != 200 || !s.AOF || s.AOFBroken || s.AOFDelayed != 3 || s.Addr != "a:1" {
		t.Errorf("%+v", s)
	}
	for _, broken := range []string{"aof_last_write_status:err", "aof_last_bgrewrite_status:err"} {
		if s := parseServer("a:1", healthy+broken+"\r\n"); !s.AOFBroken {
			t.Errorf("%s: %+v", broken, s)
		}
	}
	if s := parseServer("a:1", ""); s.AOF || s.AOFBroken {
		t.Errorf("nothing told: %+v", s)
	}
}

func TestEpochs_DifferUnderAProcessThatOutlivesARestore(t *testing.T) {
	t.Parallel()
	l := openTest(t)
	own, stored := get2(l.Epochs(t.Context()))(t)
	check(t, own == stored && own != 0, "epochs %d and %d", own, stored)
	must(t, l.rdb.HIncrBy(t.Context(), l.global.prefix+"meta", "epoch", 1).Err())
	before, after, err := l.Epochs(t.Context())
	check(t, err == nil && before == own && after == own+1, "after a restore: %d and %d, %v", before, after, err)
}

func TestObserve_HearsOfEveryCall(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	calls := map[string]int{}
	start := time.Now()
	s := newEnv(t, func(c *Config) {
		c.Observe = func(operation string) CallObserver {
			return func(ctx context.Context, began time.Time, err error) {
				mu.Lock()
				defer mu.Unlock()
				calls[operation]++
				check(t, ctx != nil && err == nil && !began.Before(start), "%s began %s: %v", operation, began, err)
			}
		}
	})
	s.create(t, "one")
	s.create(t, "two")
	mu.Lock()
	defer mu.Unlock()
	check(t, calls["create_order"] == 2 && calls["write_store"] != 0 && calls["cancel_order"] == 0, "%v", calls)
}
