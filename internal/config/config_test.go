package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type settings struct {
	Addr  string        `yaml:"addr"`
	Count int           `yaml:"count"`
	Wait  time.Duration `yaml:"wait"`
	On    bool          `yaml:"on"`
	Rate  float64       `yaml:"rate"`
	Label string        `yaml:"label"`
	Roles []string      `yaml:"roles"`
	Inner struct {
		Redis string `yaml:"redis"`
	} `yaml:"inner"`
	refuse error
}

func (s *settings) Validate() error { return s.refuse }

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad_ExpandsVariablesAndKeepsDefaults(t *testing.T) {
	t.Setenv("CFG_ADDR", "[::1]:9000")
	t.Setenv("CFG_EMPTY", "")
	t.Setenv("CFG_LABEL", "a: b # c")
	path := write(t, `# ${IGNORED_IN_COMMENTS}
addr: ${CFG_ADDR:-127.0.0.1:8080}
count: ${CFG_COUNT:-5}
wait: ${CFG_WAIT:-1m30s}
on: ${CFG_ON:-true}
rate: ${CFG_RATE:-0.5}
label: ${CFG_LABEL}
roles: [status, "${CFG_EMPTY:-webhook}"]
inner:
  redis: redis://${CFG_HOST:-127.0.0.1}:${CFG_PORT:-6379}/0
`)
	var got settings
	if err := Load(path, &got); err != nil {
		t.Fatal(err)
	}
	if got.Addr != "[::1]:9000" || got.Count != 5 || got.Wait != 90*time.Second || !got.On || got.Rate != 0.5 {
		t.Errorf("scalars: %+v", got)
	}
	if got.Label != "a: b # c" {
		t.Errorf("label = %q", got.Label)
	}
	if strings.Join(got.Roles, ",") != "status,webhook" || got.Inner.Redis != "redis://127.0.0.1:6379/0" {
		t.Errorf("nested: %+v", got)
	}
}

func TestLoad_KeepsWhatTheFileDoesNotName(t *testing.T) {
	got := settings{Count: 7, Wait: time.Second}
	if err := Load(write(t, "count: 8\n"), &got); err != nil {
		t.Fatal(err)
	}
	if got.Count != 8 || got.Wait != time.Second {
		t.Errorf("got %+v", got)
	}
	if err := Load(write(t, "# nothing here\n"), &got); err != nil || got.Count != 8 {
		t.Errorf("empty file: %v, %+v", err, got)
	}
}

func TestLoad_NumbersInQuotesStayStrings(t *testing.T) {
	var got settings
	if err := Load(write(t, "label: \"${CFG_NUMBER:-0123}\"\n"), &got); err != nil || got.Label != "0123" {
		t.Errorf("label = %q, %v", got.Label, err)
	}
}

func TestLoad_Refuses(t *testing.T) {
	t.Setenv("CFG_INJECT", "x\nunknown: 1")
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":         {"addr: a\nsurprise: 1\n", ":2: surprise: unknown field \"surprise\""},
		"unknown nested key":  {"inner:\n  rediss: a\n", ":2: inner.rediss: unknown field \"rediss\""},
		"repeated key":        {"addr: a\naddr: b\n", ":2: mapping key \"addr\" already defined"},
		"wrong type":          {"count: many\n", ":1: count: want a whole number"},
		"wrong expanded type": {"addr: a\ncount: ${CFG_NONE:-many}\n", ":2: count: want a whole number"},
		"wrong time":          {"wait: soon\n", ":1: wait: want a time such as"},
		"unset variable":      {"addr: ${CFG_NONE}\n", ":1: addr: the variable CFG_NONE is not set"},
		"unset nested":        {"count: 1\ninner:\n  redis: ${CFG_NONE}\n", ":3: inner.redis: the variable CFG_NONE is not set"},
		"bad expression":      {"addr: ${CFG NONE:-x}\n", "is not ${NAME}"},
		"open brace":          {"addr: \"${CFG_NONE\"\n", "closing brace"},
		"two documents":       {"addr: a\n---\naddr: b\n", "more than one"},
		"not YAML":            {"addr: [\n", "program.yaml:1: "},
		"injection":           {"count: ${CFG_INJECT}\n", ":1: count: want a whole number"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, c.text)
			err := Load(path, &settings{})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path) {
				t.Errorf("got %v, want it to begin with the path and to contain %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than one line", err)
			}
		})
	}
}

func TestLoad_SaysWhereAWrongValueStands(t *testing.T) {
	path := write(t, "# first\naddr: a\ninner:\n  redis: r\n")
	for _, c := range []struct{ refusal, want string }{
		{"addr: missing", path + ":2: addr: missing"},
		{"inner.redis: no URL", path + ":4: inner.redis: no URL"},
		{"inner: redis ftp://x: no", path + ":4: inner: redis ftp://x: no"},
		{"inner.pool: missing", path + ":3: inner.pool: missing"},
		{"count: want 1 or more", path + ": count: want 1 or more"}, // not in the file: its default
	} {
		if err := Load(path, &settings{refuse: errors.New(c.refusal)}); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.refusal, err, c.want)
		}
	}
	both := errors.Join(errors.New("addr: one"), errors.Join(nil, errors.New("inner.redis: two")))
	want := path + ":2: addr: one\n" + path + ":4: inner.redis: two"
	if err := Load(path, &settings{refuse: both}); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestLocate_FindsTheLineOfAKey(t *testing.T) {
	path := write(t, "addr: ${CFG_NONE}\ninner:\n  redis: r\n")
	for text, want := range map[string]string{
		"inner redis: no such host":   path + ":3: inner redis: no such host",
		"inner: certificate: no file": path + ":2: inner: certificate: no file",
		"something else went wrong":   path + ": something else went wrong",
		"addr: wrong\ninner: as well": path + ":1: addr: wrong\ninner: as well",
	} {
		if got := Locate(path, errors.New(text)); got.Error() != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	if Locate(path, nil) != nil {
		t.Error("nothing is wrong, and Locate finds a fault")
	}
}

func TestLoad_AsksValidateLast(t *testing.T) {
	broken := errors.New("count must be even")
	if err := Load(write(t, "count: 3\n"), &settings{refuse: broken}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if err := Load(filepath.Join(t.TempDir(), "none.yaml"), &settings{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestSecret(t *testing.T) {
	file := write(t, "from file\n")
	for name, c := range map[string]struct{ value, path, want, refusal string }{
		"environment": {value: "direct", want: "direct"},
		"file":        {path: file, want: "from file"},
		"both":        {value: "direct", path: file, refusal: "both set"},
		"none":        {refusal: "set S_TEST, or S_TEST_FILE"},
		"empty file":  {path: write(t, "\n"), refusal: "is empty"},
		"no file":     {path: file + ".none", refusal: "S_TEST_FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("S_TEST", c.value)
			t.Setenv("S_TEST_FILE", c.path)
			got, err := Secret("S_TEST")
			if c.refusal != "" {
				if err == nil || !strings.Contains(err.Error(), c.refusal) {
					t.Errorf("got %q, %v, want %q", got, err, c.refusal)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	const a, b = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
	t.Setenv("K_TEST", "new:"+b+", old:"+a)
	ring, err := Keys("K_TEST")
	if err != nil {
		t.Fatal(err)
	}
	if ring.Current != "new" || len(ring.Keys) != 2 || ring.Keys["new"][0] != 1 || len(ring.Keys["old"]) != KeySize {
		t.Errorf("ring = %+v", ring)
	}
	for name, c := range map[string]struct{ value, refusal string }{
		"no kid":     {a, "kid:base64"},
		"empty kid":  {":" + a, "kid:base64"},
		"odd kid":    {"a b:" + a, "kid:base64"},
		"not base64": {"k:!!", "not base64"},
		"short":      {"k:AAAA", "has 3 bytes, want 32"},
		"twice":      {"k:" + a + ",k:" + b, "occurs twice"},
		"trailing":   {"k:" + a + ",", "kid:base64"},
		"unset":      {"", "set K_TEST"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("K_TEST", c.value)
			_, err := Keys("K_TEST")
			if err == nil || !strings.Contains(err.Error(), c.refusal) {
				t.Errorf("got %v, want %q", err, c.refusal)
			}
			if c.value != "" && err != nil && strings.Contains(err.Error(), a) {
				t.Error("the error shows the key")
			}
		})
	}
}
