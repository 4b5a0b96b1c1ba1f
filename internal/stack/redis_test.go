package stack

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func startRedis(t *testing.T, o RedisOptions) *Redis {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}

	r, err := StartRedis(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(r.Stop)

	return r
}

func command(t *testing.T, r *Redis, args ...string) string {
	t.Helper()
	reply, err := r.Command(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

func TestStartRedis_KeepsEveryWriteOverKillAndStop(t *testing.T) {
	t.Parallel()

	r := startRedis(t, RedisOptions{})
	command(t, r, "SET", "a", "1")
	first := r.PID()
	r.Kill()
	if err := syscall.Kill(first, 0); err == nil {
		t.Errorf("process %d still runs after Kill", first)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.PID() == first {
		t.Error("same process id after a restart")
	}

	command(t, r, "INCR", "a")
	r.Stop()
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := command(t, r, "GET", "a"); got != "2" {
		t.Errorf("a = %s after kill and stop", got)
	}
}

func TestStartRedis_RunsWithTheDurableSettings(t *testing.T) {
	t.Parallel()

	r := startRedis(t, RedisOptions{Extra: []string{"--maxmemory", "64mb"}})
	info := command(t, r, "INFO")
	for _, want := range []string{"aof_enabled:1", "maxmemory:67108864", "maxmemory_policy:noeviction"} {
		if !strings.Contains(info, want+"\r\n") {
			t.Errorf("INFO lacks %s", want)
		}
	}

	for setting, want := range map[string]string{"appendfsync": "always", "save": ""} {
		if got := command(t, r, "CONFIG", "GET", setting); got != setting+"\n"+want {
			t.Errorf("%q, want %s", got, want)
		}
	}
}

func TestStartRedis_HasALimitOfMemory(t *testing.T) {
	t.Parallel()
	limit := command(t, startRedis(t, RedisOptions{}), "CONFIG", "GET", "maxmemory")
	if limit != "maxmemory\n"+DefaultMaxMemory() || limit == "maxmemory\n0" {
		t.Errorf("%q, want %s", limit, DefaultMaxMemory())
	}
}

func TestStartRedis_ListensOnAUnixSocket(t *testing.T) {
	t.Parallel()

	r := startRedis(t, RedisOptions{Unix: true, Dir: filepath.Join(t.TempDir(), strings.Repeat("long/", 30))})
	if !strings.HasPrefix(r.URL, "unix://") {
		t.Errorf("URL = %s", r.URL)
	}

	for range 2 {
		if reply, err := r.Command(t.Context(), "PING"); err != nil || reply != "PONG" {
			t.Fatal(reply, err)
		}
		r.Kill()
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStartRedis_Refuses(t *testing.T) {
	t.Parallel()

	taken := startRedis(t, RedisOptions{})
	for name, c := range map[string]struct {
		o    RedisOptions
		want string
	}{
		"no folder":    {RedisOptions{}, "no folder"},
		"no port":      {RedisOptions{Dir: t.TempDir(), Addr: "127.0.0.1"}, "missing port"},
		"taken port":   {RedisOptions{Dir: t.TempDir(), Addr: taken.Addr}, "Address already in use"},
		"bad setting":  {RedisOptions{Dir: t.TempDir(), Extra: []string{"--no-such-setting", "1"}}, "no-such-setting"},
		"not a folder": {RedisOptions{Dir: notAFolder(t)}, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := StartRedis(t.Context(), c.o)
			if err == nil {
				r.Stop()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func notAFolder(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(path, "below")
}

func TestStartRedis_GivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if r, err := StartRedis(ctx, RedisOptions{Dir: t.TempDir()}); err == nil {
		r.Stop()
		t.Error("started in no time")
	}
}

func TestStartCluster_RefusesFewerThanThree(t *testing.T) {
	t.Parallel()
	if _, err := StartCluster(t.Context(), t.TempDir(), 2, 0); err == nil {
		t.Error("two masters accepted")
	}
}
