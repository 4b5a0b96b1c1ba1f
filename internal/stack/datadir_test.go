package stack

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vendorapi/internal/config"
)

func TestDataDir_IsLockedWhileOpen(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "data")
	first, err := openDataDir(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = openDataDir(path)
	if err == nil || !strings.Contains(err.Error(), "in use by another run (process "+strconv.Itoa(os.Getpid())+")") ||
		!strings.Contains(err.Error(), "DATA_DIR") {
		t.Errorf("second opening: %v", err)
	}

	first.unlock()
	again, err := openDataDir(path)
	if err != nil {
		t.Fatal(err)
	}

	again.unlock()
}

func TestDataDir_StaysLockedWhileItsRedisLives(t *testing.T) {
	t.Parallel()

	d, err := openDataDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, err := StartRedis(t.Context(), RedisOptions{Dir: d.file("redis"), inherit: d.lock})
	if err != nil {
		t.Fatal(err)
	}

	d.unlock()
	if _, err := openDataDir(d.path); err == nil {
		t.Error("opened beside a living Redis")
	}

	r.Stop()
	again, err := openDataDir(d.path)
	if err != nil {
		t.Fatal(err)
	}

	again.unlock()
}

func TestSecrets_AreGeneratedOnceAndReadable(t *testing.T) {
	d, err := openDataDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.unlock()

	env, err := d.secrets()
	if err != nil {
		t.Fatal(err)
	}

	before := snapshot(t, d)
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}

	for _, name := range []string{"TOKEN_KEYS", "TRACKING_KEYS", "WEBHOOK_KEYS"} {
		if ring, err := config.Keys(name); err != nil || ring.Current != "k1" {
			t.Errorf("%s: %+v, %v", name, ring, err)
		}
	}

	key, err := config.Secret("ADMIN_KEY")
	if err != nil || len(key) != 64 {
		t.Errorf("ADMIN_KEY %q, %v", key, err)
	}
	if same, err := d.adminKey(); err != nil || same != key {
		t.Errorf("adminKey %q, %v", same, err)
	}
	if _, err := d.secrets(); err != nil || !slices.Equal(before, snapshot(t, d)) {
		t.Errorf("a second call changed the keys: %v", err)
	}
}

// Another key would leave every endpoint's secret unreadable, and no webhook sent.
func TestSecrets_ALostKeyOfWebhooksIsNotReplacedBesideData(t *testing.T) {
	t.Parallel()

	d, err := openDataDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.unlock()

	if _, err := d.secrets(); err != nil {
		t.Fatal(err)
	}

	for _, lost := range []string{"engine-key", "webhook-keys"} { // releases before had no engine-key
		if err := os.Remove(d.file("keys", lost)); err != nil {
			t.Fatal(err)
		}
		if _, err := d.secrets(); err != nil {
			t.Errorf("without data: %v", err)
		}
	}

	if err := os.WriteFile(d.file("redis", "appendonly"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct{ lost, want string }{{"engine-key", "<nil>"}, {"webhook-keys", "webhook-keys is missing"}} {
		if err := os.Remove(d.file("keys", c.lost)); err != nil {
			t.Fatal(err)
		}
		if _, err := d.secrets(); !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("beside data, without %s: %v", c.lost, err)
		}
	}
}

func TestStart_RefusesAHalfRestoredDirectory(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, restoringFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "REPLACE=yes") {
		t.Errorf("started: %v", err)
	}
}

// A restore that is refused leaves the directory as it was; one that is cut off at any
// time after leaves the mark.
func TestRestore_MarksADirectoryBeforeItsFirstChange(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ there, replace, refused bool }{{true, false, true}, {true, true, false}, {false, false, false}} {
		data, err := openDataDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(data.unlock)
		s := &Stack{data: data, options: Options{Out: io.Discard}}
		demo := s.data.file(demoFile)
		if c.there {
			if err := os.WriteFile(demo, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}

		err = s.moveAside(c.replace)
		_, unmarked := os.Stat(s.data.file(restoringFile))
		_, moved := os.Stat(demo)
		if (err != nil) != c.refused || (unmarked != nil) != c.refused || c.there && (moved == nil) != c.refused {
			t.Errorf("%+v: %v; mark %v, demo.json %v", c, err, unmarked, moved)
		}
	}
}

// snapshot is the content of every key file, after a check of its mode.
func snapshot(t *testing.T, d *dataDir) (all []string) {
	t.Helper()
	for _, name := range keyFiles {
		info, err := os.Stat(d.file("keys", name))
		if err != nil {
			t.Fatal(err)
		}

		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}

		content, err := os.ReadFile(d.file("keys", name))
		if err != nil {
			t.Fatal(err)
		}

		all = append(all, string(content))
	}

	slices.Sort(all)

	return slices.Compact(all)
}

func TestRequireFree_NamesTheVariable(t *testing.T) {
	t.Parallel()

	r := startRedis(t, RedisOptions{})
	err := requireFree("OPS_ADDR", r.Addr)
	if err == nil || !strings.Contains(err.Error(), r.Addr) || !strings.Contains(err.Error(), "set OPS_ADDR") {
		t.Errorf("got %v", err)
	}
	if err := requireFree("OPS_ADDR", FreeAddr()); err != nil {
		t.Error(err)
	}
}

func TestErrorEcho_ShowsErrorsAndLogsEverything(t *testing.T) {
	t.Parallel()

	var log, out bytes.Buffer
	e := &errorEcho{log: &log, name: "worker", out: &out}
	parts := []string{"level=INFO msg=a\nlevel=ERR", "OR msg=b\n{\"level\":\"ERROR\"}\npan", "ic: c\nrest"}
	for _, p := range parts {
		if n, err := e.Write([]byte(p)); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}

	if log.String() != strings.Join(parts, "") {
		t.Errorf("log %q", log.String())
	}
	if want := "worker: level=ERROR msg=b\nworker: {\"level\":\"ERROR\"}\nworker: panic: c\n"; out.String() != want {
		t.Errorf("shown %q", out.String())
	}
}

func TestDataDir_RelativeOnesCountFromTheTopOfTheProject(t *testing.T) {
	root, err := ModuleDir()
	if err != nil {
		t.Fatal(err)
	}

	for given, want := range map[string]string{
		"":             filepath.Join(root, ".data"),
		".data":        filepath.Join(root, ".data"),
		"a/b":          filepath.Join(root, "a", "b"),
		"/var/vendors": "/var/vendors",
	} {
		t.Setenv("DATA_DIR", given)

		dir, err := DataDir()

		if err != nil || dir != want {
			t.Errorf("DATA_DIR=%q: %q, %v; want %q", given, dir, err, want)
		}
	}
}
