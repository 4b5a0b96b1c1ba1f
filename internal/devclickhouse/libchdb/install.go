package libchdb

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Version is the pinned release, as npm names it.
const Version = "26.7.3-stable.1"

// PathVariable names the environment variable that points to a library elsewhere than
// in the cache folder.
const PathVariable = "CHDB_LIBRARY"

// The package for linux/amd64, the only one in package-lock.json; others were not to be
// had when that was made, and what is not in it cannot be checked.
const (
	packageName  = "@chdb/lib-linux-x64-gnu"
	packageBytes = 569_042_824 // unpacked
	libraryFile  = "libchdb.so"
)

var (
	errNotInstalled = errors.New("libchdb is not installed")
	errNoLibrary    = errors.New("no libchdb for this platform")
	errNoNPM        = errors.New("npm is missing")
)

// The lock carries the package's SHA-512, which `npm ci` checks. Both files are part of
// the program, so that a built binary can install without the source.
//
//go:embed package.json
var packageJSON []byte

//go:embed package-lock.json
var packageLock []byte

// Find is the path of the library: what CHDB_LIBRARY names, else what Install left in
// the cache folder.
func Find() (string, error) {
	if path := os.Getenv(PathVariable); path != "" {
		if err := requireFile(path); err != nil {
			return "", fmt.Errorf("%s: %w", PathVariable, err)
		}
		return path, nil
	}

	if platform := runtime.GOOS + "/" + runtime.GOARCH; platform != "linux/amd64" {
		return "", fmt.Errorf("%w: package-lock.json has none for %s; set %s to a libchdb %s that you installed, or CLICKHOUSE_URL to a ClickHouse server",
			errNoLibrary, platform, PathVariable, Version)
	}

	i, err := newInstaller(nil)
	if err != nil {
		return "", err
	}
	if err := requireFile(i.library()); err != nil {
		return "", fmt.Errorf("%w: %w (`devclickhouse install` fetches it)", errNotInstalled, err)
	}

	return i.library(), nil
}

func requireFile(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a file")}
	}
	return err
}

// Install returns the path of the library, which is fetched with npm (180 MB, 570 MB
// unpacked) unless CHDB_LIBRARY names one or it is in the cache folder already. npm checks
// its integrity; out shows the progress.
//
// Any number of processes may call it at once: one fetches, the others wait. The library
// appears in one step: a download cut short leaves nothing that looks installed.
func Install(ctx context.Context, out io.Writer) (string, error) {
	path, err := Find()
	if !errors.Is(err, errNotInstalled) {
		return path, err
	}
	i, err := newInstaller(out)
	if err != nil {
		return "", err
	}
	if err := i.install(ctx); err != nil {
		return "", fmt.Errorf("install libchdb: %w", err)
	}

	return i.library(), nil
}

type installer struct {
	target         string // the package's folder
	name           string // the package
	manifest, lock []byte // package.json and package-lock.json
	out            io.Writer
}

// newInstaller installs into $XDG_CACHE_HOME/vendorapi or ~/.cache/vendorapi, which all
// clones share. The folder's name carries the version and the platform, since homes are
// shared between machines.
func newInstaller(out io.Writer) (*installer, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("cache folder of libchdb: %w", err)
	}
	target := filepath.Join(cache, "vendorapi", "chdb-"+Version+"-"+filepath.Base(packageName))
	return &installer{target: target, name: packageName, manifest: packageJSON, lock: packageLock, out: out}, nil
}

func (i *installer) library() string { return filepath.Join(i.target, libraryFile) }

func (i *installer) install(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(i.target), 0o755); err != nil {
		return err
	}

	held, err := i.acquire(ctx)
	if err != nil {
		return err
	}
	defer held.Close() // which is what frees the lock

	if requireFile(i.library()) == nil {
		return nil // another process was faster
	}

	return i.fetch(ctx, held)
}

func (i *installer) acquire(ctx context.Context) (*os.File, error) {
	lock, err := os.OpenFile(i.target+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}

	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return lock, nil
		}

		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(err, lock.Close())
		}

		if !waiting {
			fmt.Fprintln(i.out, "libchdb: another process installs it; waiting")
		}

		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), lock.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// fetch downloads into a folder beside the target and moves it there when it is whole
// and on the disk.
func (i *installer) fetch(ctx context.Context, held *os.File) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("%w: it comes with Node.js (https://nodejs.org, or `apt-get install npm`); "+
			"or set %s to a libchdb %s, or CLICKHOUSE_URL to a ClickHouse server", errNoNPM, PathVariable, Version)
	}

	staging := i.target + ".partial"
	defer func() { _ = os.RemoveAll(staging) }() // what stays is removed by the next one
	err = errors.Join(
		os.RemoveAll(staging), // left by a download that was cut short
		os.Mkdir(staging, 0o755),
		os.WriteFile(filepath.Join(staging, "package.json"), i.manifest, 0o644),
		os.WriteFile(filepath.Join(staging, "package-lock.json"), i.lock, 0o644))
	if err != nil {
		return err
	}

	fmt.Fprintf(i.out, "libchdb %s: fetching %s with npm into %s\n", Version, i.name, i.target)
	var progress sync.WaitGroup
	running, stop := context.WithCancel(ctx)
	progress.Go(func() { i.showProgress(running, staging) })
	err = npmCI(ctx, npm, staging, held)
	stop()
	progress.Wait()
	if err != nil {
		return err
	}

	return i.publish(filepath.Join(staging, "node_modules", filepath.FromSlash(i.name)))
}

// npmCI runs `npm ci`, which installs exactly what the lock says or fails. npm inherits
// the lock file: should this process be killed, the next installer waits until npm has
// ended.
func npmCI(ctx context.Context, npm, staging string, held *os.File) error {
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir, cmd.ExtraFiles, cmd.WaitDelay = staging, []*os.File{held}, 5*time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("npm ci: %w\n%s", cmp.Or(ctx.Err(), err), out)
	}
	return nil
}

// publish makes the fetched package the installed one. The library is written to the
// disk first: after a power cut a name must not stand for half a file.
func (i *installer) publish(fetched string) error {
	library, err := os.OpenFile(filepath.Join(fetched, libraryFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(library.Sync(), library.Close()); err != nil {
		return err
	}
	if err := os.RemoveAll(i.target); err != nil { // a folder without its library
		return err
	}

	return os.Rename(fetched, i.target)
}

// showProgress writes every few seconds how much of the package has been unpacked, which
// npm does while it downloads, until ctx ends.
func (i *installer) showProgress(ctx context.Context, dir string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Second):
		}

		var bytes int64
		_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				if info, err := e.Info(); err == nil { // else it has gone: npm is at work
					bytes += info.Size()
				}
			}
			return nil
		})

		fmt.Fprintf(i.out, "libchdb: %d of %d MB\n", bytes/1e6, packageBytes/1_000_000)
	}
}
