package libchdb

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// registry serves one small package to the real npm.
type registry struct {
	*httptest.Server
	tarball  []byte
	requests atomic.Int32
	cut      atomic.Pointer[context.CancelFunc] // stop in the middle of the package, and call it
}

const content = "not much of a library"

func newRegistry(t *testing.T) *registry {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	for name, text := range map[string]string{
		"package/package.json": `{"name": "@test/lib", "version": "1.0.0", "scripts": {"install": "touch ran"}}`,
		"package/libchdb.so":   content,
	} {
		if err := errors.Join(archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}), write(archive, text)); err != nil {
			t.Fatal(err)
		}
	}

	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}

	r := &registry{tarball: packed.Bytes()}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.requests.Add(1)
		w.Header().Set("Content-Length", fmt.Sprint(len(r.tarball)))
		if stop := r.cut.Load(); stop != nil {
			w.Write(r.tarball[:len(r.tarball)/2])
			http.NewResponseController(w).Flush()
			(*stop)()
			<-req.Context().Done()
			return
		}

		w.Write(r.tarball)
	}))

	t.Cleanup(r.Close)

	return r
}

func write(w *tar.Writer, text string) error {
	_, err := w.Write([]byte(text))
	return err
}

// installer is one with its own folder and npm cache.
func (r *registry) installer(t *testing.T, out *strings.Builder) *installer {
	t.Helper()
	digest := sha512.Sum512(r.tarball)
	lock, err := json.Marshal(map[string]any{
		"name": "x", "lockfileVersion": 3, "requires": true,
		"packages": map[string]any{
			"": map[string]any{"name": "x", "dependencies": map[string]string{"@test/lib": "1.0.0"}},
			"node_modules/@test/lib": map[string]any{
				"version": "1.0.0", "resolved": r.URL + "/lib.tgz",
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(digest[:]),
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	return &installer{
		target:   filepath.Join(t.TempDir(), "cache", "lib"),
		name:     "@test/lib",
		manifest: []byte(`{"name": "x", "dependencies": {"@test/lib": "1.0.0"}}`),
		lock:     lock,
		out:      out,
	}
}

func setup(t *testing.T) (*registry, *installer, *strings.Builder) {
	t.Helper()
	t.Setenv("npm_config_cache", t.TempDir())
	t.Setenv("npm_config_fetch_retries", "0")
	t.Setenv("NO_PROXY", "127.0.0.1")
	r, out := newRegistry(t), &strings.Builder{}

	return r, r.installer(t, out), out
}

func installed(t *testing.T, i *installer) bool {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(i.target, "libchdb.so"))
	return err == nil && string(got) == content
}

func TestInstall_OnceForAll(t *testing.T) {
	r, i, _ := setup(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			other := *i
			other.out = &strings.Builder{}
			if err := other.install(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()
	if !installed(t, i) || r.requests.Load() != 1 {
		t.Errorf("installed %v with %d downloads", installed(t, i), r.requests.Load())
	}
	if _, err := os.Stat(filepath.Join(i.target, "ran")); err == nil {
		t.Error("the package's script ran")
	}

	entries, err := os.ReadDir(filepath.Dir(i.target))
	if err != nil || len(entries) != 2 { // the package and the lock
		t.Errorf("%v %v", entries, err)
	}
}

func TestInstall_ChecksIntegrity(t *testing.T) {
	r, i, out := setup(t)
	r.tarball = bytes.Clone(r.tarball)
	r.tarball[len(r.tarball)-5] ^= 1
	if err := i.install(t.Context()); err == nil || !strings.Contains(err.Error(), "EINTEGRITY") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(i.target); !errors.Is(err, os.ErrNotExist) || !strings.Contains(out.String(), "fetching @test/lib") {
		t.Errorf("%v, said %q", err, out)
	}
}

// A download that is cut short leaves nothing that looks installed, and the
// next one begins again.
func TestInstall_CutShort(t *testing.T) {
	r, i, _ := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.cut.Store(&cancel)
	if err := i.install(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	if _, err := os.Stat(i.target); !errors.Is(err, os.ErrNotExist) {
		t.Error("something looks installed")
	}

	// As after a kill: a half package, and a folder without its library.
	if err := errors.Join(os.MkdirAll(i.target+".partial/node_modules/@test/lib", 0o755), os.Mkdir(i.target, 0o755)); err != nil {
		t.Fatal(err)
	}

	r.cut.Store(nil)
	if err := i.install(t.Context()); err != nil || !installed(t, i) {
		t.Errorf("%v", err)
	}
}

func TestInstall_NeedsNPM(t *testing.T) {
	_, i, _ := setup(t)
	t.Setenv("PATH", t.TempDir())
	if err := i.install(t.Context()); !errors.Is(err, errNoNPM) || !strings.Contains(err.Error(), "Node.js") {
		t.Errorf("%v", err)
	}
}

func TestFind(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	t.Setenv(PathVariable, "")
	if path, err := Find(); !errors.Is(err, errNotInstalled) || !strings.Contains(err.Error(), "devclickhouse install") {
		t.Errorf("%s %v", path, err)
	}

	t.Setenv(PathVariable, filepath.Join(cache, "nowhere.so"))
	if _, err := Find(); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), PathVariable) {
		t.Errorf("%v", err)
	}
	if _, err := Install(t.Context(), &strings.Builder{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a library that was named is replaced: %v", err)
	}

	t.Setenv(PathVariable, cache)
	if _, err := Find(); err == nil || !strings.Contains(err.Error(), "not a file") {
		t.Errorf("%v", err)
	}

	t.Setenv(PathVariable, filepath.Join("testdata", "..", "package.json"))
	if path, err := Find(); err != nil || !strings.HasSuffix(path, "package.json") {
		t.Errorf("%s %v", path, err)
	}
}

// What is offered is in the lock, with its checksum, at this version.
func TestPackage_IsInTheLock(t *testing.T) {
	var lock struct {
		Packages map[string]struct{ Version, Integrity string }
	}
	if err := json.Unmarshal(packageLock, &lock); err != nil {
		t.Fatal(err)
	}
	if locked := lock.Packages["node_modules/"+packageName]; locked.Version != Version || !strings.HasPrefix(locked.Integrity, "sha512-") {
		t.Errorf("%+v", locked)
	}
}
