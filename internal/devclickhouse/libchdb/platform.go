package libchdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Version is the pinned release, as npm names it.
const Version = "26.7.3-stable.1"

// PathVariable names the environment variable that points to a library
// elsewhere than in the cache folder.
const PathVariable = "CHDB_LIBRARY"

// ErrNotInstalled tells that the library is not where it should be, and could
// be installed.
var ErrNotInstalled = errors.New("libchdb is not installed")

// ErrNoLibrary tells that this platform has no library that could be installed.
var ErrNoLibrary = errors.New("no libchdb for this platform")

// platform is one build of the library.
type platform struct {
	pack   string // npm package; empty: published, but not in package-lock.json
	file   string // the library in it
	unpack int64  // bytes when unpacked, for the progress shown
}

// platforms are the builds that exist. Those without a package were not
// reachable when package-lock.json was made, and what is not in the lock cannot
// be checked, so it is not fetched.
var platforms = map[string]platform{
	"linux/amd64":  {pack: "@chdb/lib-linux-x64-gnu", file: "libchdb.so", unpack: 569_042_824},
	"linux/arm64":  {file: "libchdb.so"},
	"darwin/amd64": {file: "libchdb.so"},
	"darwin/arm64": {file: "libchdb.so"},
}

func platformOf(goos, goarch string) (platform, error) {
	name := goos + "/" + goarch
	p, known := platforms[name]
	switch {
	case !known:
		return p, fmt.Errorf("%w: there is none for %s; set CLICKHOUSE_URL to a ClickHouse server instead", ErrNoLibrary, name)
	case p.pack == "":
		return p, fmt.Errorf("%w: package-lock.json has none for %s; set %s to a libchdb %s that you installed, or CLICKHOUSE_URL to a ClickHouse server",
			ErrNoLibrary, name, PathVariable, Version)
	}
	return p, nil
}

// Find is the path of the library: what CHDB_LIBRARY names, else what Install
// left in the cache folder. The errors are ErrNotInstalled, ErrNoLibrary, or
// that CHDB_LIBRARY names no file.
func Find() (string, error) {
	if path := os.Getenv(PathVariable); path != "" {
		if err := requireFile(path); err != nil {
			return "", fmt.Errorf("%s: %w", PathVariable, err)
		}
		return path, nil
	}
	p, err := platformOf(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, p.folder(), p.file)
	if err := requireFile(path); err != nil {
		return "", fmt.Errorf("%w: %w (`reporting engine install` fetches it)", ErrNotInstalled, err)
	}
	return path, nil
}

// CacheDir is where Install puts the library: $XDG_CACHE_HOME/vendorapi or
// ~/.cache/vendorapi, on macOS ~/Library/Caches/vendorapi. Half a gigabyte that
// is the same for every clone and every DATA_DIR does not belong into either,
// and `make clean` must not fetch it anew.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache folder of libchdb: %w", err)
	}
	return filepath.Join(dir, "vendorapi"), nil
}

// folder is the name of the installed package in the cache folder. It carries
// the version and the platform: homes are shared between machines, and clones
// of different ages want different releases.
func (p platform) folder() string { return "chdb-" + Version + "-" + filepath.Base(p.pack) }

func requireFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "open", Path: path, Err: errors.New("not a file")}
	}
	return nil
}
