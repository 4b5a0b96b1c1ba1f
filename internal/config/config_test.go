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

// whole writes a file with text, and with each key that text does not have, without effect.
func whole(t *testing.T, text string) string {
	t.Helper()
	for _, line := range []string{"addr: ''", "count: 0", "wait: 0s", "on: false", "rate: 0.0", "label: ''", "roles: []", "inner: {redis: ''}"} {
		key, _, _ := strings.Cut(line, ":")
		if !strings.Contains("\n"+text, "\n"+key+":") {
			text += line + "\n"
		}
	}
	return write(t, text)
}

func TestLoad_ExpandsVariables(t *testing.T) {
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

// complete has every key, with lists and texts that need no value.
const complete = `addr:
count: 0
wait: 0s
on: false
rate: 1
label: ""
roles: []
inner:
  redis:
`

func TestLoad_RefusesAFileWithoutOneOfItsKeys(t *testing.T) {
	if err := Load(write(t, complete), &settings{}); err != nil {
		t.Fatalf("a file with every key: %v", err)
	}

	for name, c := range map[string]struct{ old, replacement, want string }{
		"text":              {"addr:\n", "", "program.yaml: addr: missing"},
		"number":            {"count: 0\n", "", "program.yaml: count: missing"},
		"time":              {"wait: 0s\n", "", "program.yaml: wait: missing"},
		"truth":             {"on: false\n", "", "program.yaml: on: missing"},
		"list":              {"roles: []\n", "", "program.yaml: roles: missing"},
		"section":           {"inner:\n  redis:\n", "", "program.yaml: inner.redis: missing"},
		"in a section":      {"  redis:\n", "", ":8: inner.redis: missing"},
		"in braces":         {"inner:\n  redis:\n", "inner: {}\n", ":8: inner.redis: missing"},
		"commented out":     {"count: 0", "# count: 0", "program.yaml: count: missing"},
		"number, no value":  {"count: 0", "count:", ":2: count: has no value"},
		"number, null":      {"count: 0", "count: null", ":2: count: has no value"},
		"number, variable":  {"count: 0", "count: ${CFG_NONE:-}", ":2: count: has no value"},
		"time, no value":    {"wait: 0s", "wait: ~", ":3: wait: has no value"},
		"truth, no value":   {"on: false", "on:", ":4: on: has no value"},
		"fraction, nothing": {"rate: 1", "rate:", ":5: rate: has no value"},
		"time, no unit":     {"wait: 0s", "wait: 10", ":3: wait: want a time such as 500ms, 10s or 1h"},
	} {
		text := strings.Replace(complete, c.old, c.replacement, 1)
		err := Load(write(t, text), &settings{})
		if err == nil || !strings.HasSuffix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line that ends in %q", name, err, c.want)
		}
	}

	err := Load(write(t, "# nothing here\n"), &settings{})
	if err == nil || strings.Count(err.Error(), ": missing") != 8 {
		t.Errorf("an empty file: %v", err)
	}
}

// targets is a list whose elements have keys.
type targets struct {
	Targets []struct {
		Name string `yaml:"name"`
		Size int    `yaml:"size"`
	} `yaml:"targets"`
}

func (*targets) Validate() error { return nil }

func TestLoad_RefusesAnElementWithoutOneOfItsKeys(t *testing.T) {
	for text, want := range map[string]string{
		"targets: []\n": "",
		"targets: [{name: a, size: 1}, {name: b, size: 2}]\n": "",
		"x: &x {size: 1}\n":                                     "unknown field",
		"targets: [{name: a, size: 1}, {name: b}]\n":            ":1: targets[1].size: missing",
		"targets:\n- {size: 1}\n":                               ":1: targets[0].name: missing",
		"targets:\n- name: a\n  size:\n":                        ":1: targets[0].size: has no value",
		"targets:\n- &a {name: a, size: 1}\n- *a\n- {<<: *a}\n": "",
		"targets:\n- &a {name: a}\n- {<<: *a}\n":                ":1: targets[1].size: missing",
	} {
		err := Load(write(t, text), &targets{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestLoad_NumbersInQuotesStayStrings(t *testing.T) {
	for quoted, want := range map[string]string{`"${CFG_NONE:-0123}"`: "0123", `'${CFG_NONE:-null}'`: "null"} {
		var got settings

		err := Load(whole(t, "label: "+quoted+"\n"), &got)

		if err != nil || got.Label != want {
			t.Errorf("label: %s is %q, %v", quoted, got.Label, err)
		}
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
	path := whole(t, "# first\naddr: a\ninner:\n  redis: r\n")
	for _, c := range []struct{ refusal, want string }{
		{"addr: missing", path + ":2: addr: missing"},
		{"inner.redis: no URL", path + ":4: inner.redis: no URL"},
		{"inner: redis ftp://x: no", path + ":4: inner: redis ftp://x: no"},
		{"inner.pool: missing", path + ":3: inner.pool: missing"},
		{"other: want 1 or more", path + ": other: want 1 or more"}, // not in the file
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
	if err := Load(whole(t, "count: 3\n"), &settings{refuse: broken}); !errors.Is(err, broken) {
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

func TestLoad_TakesAVariableFromAFile(t *testing.T) {
	file := write(t, "redis://gateway:geheim@redis:6379\r\n")
	text := "label: ${CFG_URL:-redis://127.0.0.1:6379}\ncount: ${CFG_COUNT:-1}\n"
	for name, c := range map[string]struct{ value, path, count, want, refusal string }{
		"file":         {path: file, want: "redis://gateway:geheim@redis:6379"},
		"number":       {count: write(t, "7\n"), want: "redis://127.0.0.1:6379"},
		"not set":      {want: "redis://127.0.0.1:6379"},
		"variable":     {value: "redis://other", want: "redis://other"},
		"both":         {value: "redis://other", path: file, refusal: ":1: label: CFG_URL and CFG_URL_FILE are both set"},
		"no file":      {path: file + ".none", refusal: ":1: label: CFG_URL_FILE: open "},
		"folder":       {path: t.TempDir(), refusal: ":1: label: CFG_URL_FILE: "},
		"empty file":   {path: write(t, ""), refusal: ":1: label: CFG_URL_FILE: "},
		"only newline": {path: write(t, "\n"), refusal: "is empty"},
		"no number":    {count: write(t, "7\n8\n"), refusal: ":2: count: want a whole number"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CFG_URL", c.value)
			t.Setenv("CFG_URL_FILE", c.path)
			t.Setenv("CFG_COUNT_FILE", c.count)
			var got settings
			err := Load(whole(t, text), &got)
			wantCount := 1 // what stands in the text
			if c.count != "" {
				wantCount = 7
			}
			if c.refusal == "" && (err != nil || got.Label != c.want || got.Count != wantCount) {
				t.Errorf("%q, %d, %v", got.Label, got.Count, err)
			}

			if c.refusal != "" && (err == nil || !strings.Contains(err.Error(), c.refusal) || strings.Contains(err.Error(), "geheim")) {
				t.Errorf("got %v, want %q", err, c.refusal)
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
