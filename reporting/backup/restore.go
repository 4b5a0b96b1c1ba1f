package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// With appendonly yes Redis reads nothing but the files that the list in this folder names,
// the first of which may be an RDB file.
const (
	appendFolder = "appendonlydir"
	appendBase   = "appendonly.aof.1.base.rdb"
	appendList   = "appendonly.aof.manifest"
)

// PlaceRedis puts the snapshot of one master, counted from 0, into the folder of a Redis
// that is not running and has no data.
func (m *Manifest) PlaceRedis(from string, node int, dir string) (err error) {
	defer wrap("restore", &err)
	if node < 0 || node >= len(m.Redis) {
		return fmt.Errorf("the backup has %d masters, counted from 0: there is no %d", len(m.Redis), node)
	}
	target := filepath.Join(dir, appendFolder)
	for _, path := range []string{target, filepath.Join(dir, "dump.rdb")} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is there already: move it elsewhere first", path)
		}
	}
	// The folder gets its name when all is in it: Redis makes an empty one again
	// when a file is missing.
	partial := target + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := os.MkdirAll(partial, 0o700); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(from, m.Redis[node].File), filepath.Join(partial, appendBase)); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(partial, appendList), []byte("file "+appendBase+" seq 1 type b\n")); err != nil {
		return err
	}
	return errors.Join(syncFolder(partial), os.Rename(partial, target), syncFolder(dir))
}

// PlaceIncluded puts the included files below a folder, and overwrites none.
func (m *Manifest) PlaceIncluded(from, dir string) (err error) {
	defer wrap("restore", &err)
	for _, name := range m.Included {
		rel, err := filepath.Rel(includedFolder, name)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, rel)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		err = copyFile(filepath.Join(from, name), target)
		if err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		there, err := sumOf(target)
		wanted, other := sumOf(filepath.Join(from, name))
		if err := errors.Join(err, other); err != nil {
			return err
		}
		if there != wanted {
			return fmt.Errorf("%s is there already, and not the one of the backup: move it elsewhere first", target)
		}
	}
	return nil
}

// ErrHistory says that ClickHouse has rows already.
var ErrHistory = errors.New("ClickHouse is not empty")

// Finish loads ClickHouse and makes the restored Redis fit to go on. a is nil where
// ClickHouse has survived or was restored by other means. Without merge it refuses a
// ClickHouse that has rows. It may be repeated after an error, with merge.
func (m *Manifest) Finish(ctx context.Context, from string, l *ledger.Ledger, a *archive.Archive, merge bool, progress func(string)) (_ ledger.Resumed, err error) {
	defer wrap("restore", &err)
	if l.Environment() != m.Environment || l.Partitions() != m.Partitions {
		return ledger.Resumed{}, fmt.Errorf("the backup is of %s with %d partitions, the settings say %s with %d",
			m.Environment, m.Partitions, l.Environment(), l.Partitions())
	}
	if err := l.Backup.Resumable(ctx, m.ID); err != nil {
		return ledger.Resumed{}, err
	}
	if a != nil {
		if err := m.load(ctx, from, a, merge, progress); err != nil {
			return ledger.Resumed{}, err
		}
	}
	return l.Backup.Resume(ctx, m.ID, m.Hold, time.Now())
}

func (m *Manifest) load(ctx context.Context, from string, a *archive.Archive, merge bool, progress func(string)) error {
	counts, err := a.RowCounts(ctx)
	if err != nil {
		return err
	}
	var has []string
	for _, name := range archive.Tables() {
		if counts[name] > 0 {
			has = append(has, fmt.Sprintf("%d rows of %s", counts[name], name))
		}
	}
	if len(has) > 0 && !merge {
		return fmt.Errorf("%w: it has %s", ErrHistory, strings.Join(has, ", "))
	}
	for _, t := range m.Tables {
		if err := t.load(ctx, from, a, progress); err != nil {
			return err
		}
		progress(fmt.Sprintf("ClickHouse %s: %d rows", t.Name, t.Rows))
	}
	return nil
}

func (t *Table) load(ctx context.Context, from string, a *archive.Archive, progress func(string)) error {
	f, err := os.Open(filepath.Join(from, t.File))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	plain, err := zstd.NewReader(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return err
	}
	defer plain.Close()
	return a.Load(ctx, t.Name, plain, t.Rows, everySecond(func(rows uint64) {
		progress(fmt.Sprintf("ClickHouse %s: %d of %d rows", t.Name, rows, t.Rows))
	}))
}
