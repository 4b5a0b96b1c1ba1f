package libchdb

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// The lock carries the package's SHA-512, which `npm ci` checks. Both files are
// part of the program, so that a built binary can install without the source.
//
//go:embed package.json
var packageJSON []byte

//go:embed package-lock.json
var packageLock []byte

// ErrNoNPM tells that npm, which fetches the library, is missing.
var ErrNoNPM = errors.New("npm is missing")

// Install makes sure that the library is there and returns its path. When
// CHDB_LIBRARY names one, or it is in the cache folder already, nothing is
// done. Otherwise it is fetched with npm (180 MB, 570 MB unpacked), which
// checks its integrity; out is told what happens.
//
// Any number of processes may call it at once: one fetches, the others wait.
// The library appears in one step, so that a download cut short by ctx, a
// crash or the network leaves nothing that looks installed.
func Install(ctx context.Context, out io.Writer) (string, error) {
	path, err := Find()
	if !errors.Is(err, ErrNotInstalled) {
		return path, err
	}
	p, err := platformOf(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return "", err
	}
	dir, err := CacheDir()
	if err != nil {
		return "", err
	}
	return (&installer{dir: dir, platform: p, manifest: packageJSON, lock: packageLock, out: out}).install(ctx)
}

// installer puts one package into one folder.
type installer struct {
	dir            string
	platform       platform
	manifest, lock []byte // package.json and package-lock.json
	out            io.Writer
}

func (i *installer) target() string { return filepath.Join(i.dir, i.platform.folder()) }

func (i *installer) install(ctx context.Context) (string, error) {
	library := filepath.Join(i.target(), i.platform.file)
	if err := os.MkdirAll(i.dir, 0o755); err != nil {
		return "", fmt.Errorf("install libchdb: %w", err)
	}
	held, err := i.acquire(ctx)
	if err != nil {
		return "", fmt.Errorf("install libchdb: %w", err)
	}
	defer held.Close() // which is what frees the lock
	if requireFile(library) == nil {
		return library, nil // somebody else was faster
	}
	if err := i.fetch(ctx, held); err != nil {
		return "", fmt.Errorf("install libchdb: %w", err)
	}
	return library, nil
}

// acquire waits for the right to install.
func (i *installer) acquire(ctx context.Context) (*os.File, error) {
	lock, err := os.OpenFile(i.target()+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for told := false; ; {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(err, lock.Close())
		}
		if !told {
			fmt.Fprintln(i.out, "libchdb: another process installs it; waiting")
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), lock.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// fetch downloads into a folder beside the target and moves it there when it
// is whole and on the disk.
func (i *installer) fetch(ctx context.Context, held *os.File) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("%w: it comes with Node.js (https://nodejs.org, or `apt-get install npm`); "+
			"or set %s to a libchdb %s, or CLICKHOUSE_URL to a ClickHouse server", ErrNoNPM, PathVariable, Version)
	}
	staging := i.target() + ".partial"
	if err := os.RemoveAll(staging); err != nil { // left by a download that was cut short
		return err
	}
	defer func() { _ = os.RemoveAll(staging) }() // what stays is removed by the next one
	if err := os.Mkdir(staging, 0o755); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"package.json": i.manifest, "package-lock.json": i.lock} {
		if err := os.WriteFile(filepath.Join(staging, name), content, 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(i.out, "libchdb %s: fetching %s with npm into %s\n", Version, i.platform.pack, i.target())
	stop := i.showProgress(staging)
	err = i.npmCI(ctx, npm, staging, held)
	stop()
	if err != nil {
		return err
	}
	return i.publish(filepath.Join(staging, "node_modules", filepath.FromSlash(i.platform.pack)))
}

// npmCI runs `npm ci`, which installs exactly what the lock says or fails. npm
// inherits the lock file: should this process be killed, the next installer
// waits until npm has ended.
func (i *installer) npmCI(ctx context.Context, npm, staging string, held *os.File) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = staging, &said, &said, []*os.File{held}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("npm ci: %w\n%s", err, said.Bytes())
	}
	return nil
}

// publish makes the fetched package the installed one. The library is written
// to the disk first: after a power cut a name must not stand for half a file.
func (i *installer) publish(fetched string) error {
	library, err := os.OpenFile(filepath.Join(fetched, i.platform.file), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(library.Sync(), library.Close()); err != nil {
		return err
	}
	if err := os.RemoveAll(i.target()); err != nil { // a folder without its library
		return err
	}
	return os.Rename(fetched, i.target())
}
