package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// At whichever step of a start Redis cannot serve, the program may wait for it:
// here it refuses one command after the other.
func TestOpen_UnavailableAtAnyStepIsSaidToPass(t *testing.T) {
	t.Parallel()

	own, _ := ownServer(t)
	for _, command := range []string{"info", "hsetnx", "hmget", "zadd"} {
		get(own.Command(t.Context(), "ACL", "SETUSER", "starting", "reset", "on", "nopass", "~*", "+@all", "-"+command))(t)
		l, err := Open(t.Context(), core.Config{URL: "redis://starting:any@" + own.Addr, Environment: "sandbox"})
		check(t, errors.Is(err, delivery.ErrUnavailable), "without %s: %v, want ErrUnavailable", command, err)
		if err == nil {
			_ = l.Close()
		}
	}
}

func TestJoinCounted_NamesTheSameOnce(t *testing.T) {
	t.Parallel()
	equal(t, core.JoinCounted([]error{nil, nil}), nil, "nothing went wrong")
	eof := func() error { return core.Failure(errors.New("EOF")) }
	err := core.JoinCounted([]error{eof(), nil, eof(), errors.New("another"), eof()})
	check(t, errors.Is(err, delivery.ErrUnavailable) && strings.Count(err.Error(), "EOF") == 1 && strings.Contains(err.Error(), "(3 times)") && strings.Contains(err.Error(), "another"),
		"%v", err)
}

func TestCheck_NeedsNoRedis(t *testing.T) {
	t.Parallel()

	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, []byte("no certificate\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		config core.Config
		want   string // "": right
	}{
		{core.Config{URL: "redis://127.0.0.1:1", Environment: "sandbox"}, ""},
		{core.Config{URL: "rediss://u:geheim@h:1?addr=h2:1", Environment: "production", Partitions: 16}, ""},
		{core.Config{URL: "unix:///run/redis.sock", Environment: "sandbox"}, ""},
		{core.Config{URL: "http://u:geheim@h", Environment: "sandbox"}, "redis url: "},
		{core.Config{URL: "redis://u:ge%heim@h", Environment: "sandbox"}, "redis url: "},
		{core.Config{URL: "redis://u:123/geheim@h:6379", Environment: "sandbox"}, "redis url: invalid database number"},
		{core.Config{URL: "", Environment: "sandbox"}, "redis url: "},
		{core.Config{URL: "redis://h", Environment: "test"}, "neither production nor sandbox"},
		{core.Config{URL: "redis://h", Environment: "sandbox", Partitions: 1025}, "partitions: 1025"},
		{core.Config{URL: "redis://h", Environment: "sandbox", TLS: core.TLSFiles{CA: empty}}, "does not begin with rediss://"},
		{core.Config{URL: "rediss://h", Environment: "sandbox", TLS: core.TLSFiles{CA: empty}}, "holds no certificate"},
		{core.Config{URL: "rediss://h", Environment: "sandbox", TLS: core.TLSFiles{Cert: empty}}, "needed together"},
	} {
		err := c.config.Check()
		check(t, (err == nil) == (c.want == "") && (err == nil || strings.Contains(err.Error(), c.want)), "%q: got %v, want %q", c.config.URL, err, c.want)
		check(t, err == nil || !strings.Contains(err.Error(), "heim"), "the error shows the password: %v", err)
	}
}

// What a program says of a URL that is wrong ends in a log.
func TestOpen_NeverRepeatsThePassword(t *testing.T) {
	t.Parallel()

	for _, url := range []string{
		"redis://gateway:hunter2/x@127.0.0.1:6379",
		"redis://gateway:123/hunter2@127.0.0.1:6379",
		"redis://gateway:123?hunter2=1@127.0.0.1:6379",
		"hunter2://gateway@127.0.0.1:6379",
		"redis://gateway:hunter2%zz@127.0.0.1:6379",
		"redis://gateway:hunter2@127.0.0.1:port",
		"redis://gateway:hunter2@127.0.0.1:6379/database",
		"redis://gateway:hunter2@127.0.0.1:6379?unknown=1",
		"http://gateway:hunter2@127.0.0.1:6379",
		"redis://gateway:hunter2 @127.0.0.1:6379",
		"redis://gateway:hunter2@127.0.0.1:1",
	} {
		l, err := Open(t.Context(), core.Config{URL: url, Environment: "sandbox"})
		if err == nil {
			t.Errorf("%s was opened", url)
			l.Close()
			continue
		}
		check(t, !strings.Contains(err.Error(), "hunter2"), "%s: %v", url, err)
	}
}
