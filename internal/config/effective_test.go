package config

import (
	"strings"
	"testing"
	"time"
)

func TestWriteEffective_ShowsWhatIsInForceAndNoSecret(t *testing.T) {
	t.Setenv("W_TOKEN", "geheim-1")
	t.Setenv("W_TOKEN_FILE", "")
	t.Setenv("W_KEYS", "")
	t.Setenv("W_KEYS_FILE", "/run/secrets/keys")
	t.Setenv("CFG_ADDR", "[::1]:9000")
	path := whole(t, `count: 7
roles: [status]
addr: ${CFG_ADDR:-127.0.0.1:1}
wait: 90s
label: http://host:8123/db?username=u&password=geheim-2
inner:
  redis: redis://gateway:geheim-3@redis:6379
`)

	var s settings
	if err := Load(path, &s); err != nil {
		t.Fatal(err)
	}

	var out strings.Builder
	if err := WriteEffective(&out, path, &s, "W_TOKEN", "W_KEYS", "W_NONE"); err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{
		"# " + path + ": ok\n", "[::1]:9000", "count: 7\n", "1m30s", "- status\n",
		"redis://gateway:xxxxx@redis:6379", "http://host:8123/db?password=xxxxx&username=u",
		"W_TOKEN        from the environment\n", "W_KEYS         from the file /run/secrets/keys\n", "W_NONE         not set\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}

	if strings.Contains(out.String(), "geheim") {
		t.Errorf("a secret is shown:\n%s", out.String())
	}

	// What is written can be read again.
	var again settings
	if err := Load(write(t, out.String()), &again); err != nil || again.Count != 7 || again.Wait != 90*time.Second {
		t.Errorf("read again: %+v, %v\n%s", again, err, out.String())
	}
}

func TestWithoutPassword(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:8080":                      "127.0.0.1:8080",
		"redis://127.0.0.1:6379":              "redis://127.0.0.1:6379",
		"redis://u@h:1?addr=h2:1":             "redis://u@h:1?addr=h2:1",
		"rediss://u:p%2Fw@h:1":                "rediss://u:xxxxx@h:1",
		"http://u:p w%zz@h":                   "xxxxx",
		"unix:///run/redis.sock?db=1":         "unix:///run/redis.sock?db=1",
		"https://h/?Api_Key=abc&compress=lz4": "https://h/?Api_Key=xxxxx&compress=lz4",
	} {
		if got := withoutPassword(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
