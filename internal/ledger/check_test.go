package ledger

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck_NeedsNoRedis(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, []byte("no certificate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		config Config
		want   string // "": right
	}{
		{Config{URL: "redis://127.0.0.1:1", Environment: "sandbox"}, ""},
		{Config{URL: "rediss://u:geheim@h:1?addr=h2:1", Environment: "production", Partitions: 16}, ""},
		{Config{URL: "unix:///run/redis.sock", Environment: "sandbox"}, ""},
		{Config{URL: "http://u:geheim@h", Environment: "sandbox"}, "redis url: "},
		{Config{URL: "redis://u:ge%heim@h", Environment: "sandbox"}, "redis url: "},
		{Config{URL: "redis://u:123/geheim@h:6379", Environment: "sandbox"}, "redis url: invalid database number"},
		{Config{URL: "", Environment: "sandbox"}, "redis url: "},
		{Config{URL: "redis://h", Environment: "test"}, "neither production nor sandbox"},
		{Config{URL: "redis://h", Environment: "sandbox", Partitions: 1025}, "partitions: 1025"},
		{Config{URL: "redis://h", Environment: "sandbox", TLS: TLSFiles{CA: empty}}, "does not begin with rediss://"},
		{Config{URL: "rediss://h", Environment: "sandbox", TLS: TLSFiles{CA: empty}}, "holds no certificate"},
		{Config{URL: "rediss://h", Environment: "sandbox", TLS: TLSFiles{Cert: empty}}, "needed together"},
	} {
		err := c.config.Check()
		check(t, (err == nil) == (c.want == "") && (err == nil || strings.Contains(err.Error(), c.want)), "%q: got %v, want %q", c.config.URL, err, c.want)
		check(t, err == nil || !strings.Contains(err.Error(), "heim"), "the error shows the password: %v", err)
	}
}
