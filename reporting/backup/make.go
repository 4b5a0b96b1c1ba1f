package backup

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// Options say what is copied where.
type Options struct {
	// To is the folder that is made; it must not exist.
	To string
	// Include are further files and folders to copy, such as the keys.
	Include []string
	// Progress, which is optional, is called with what has been copied so far.
	Progress func(string)
}

// longest is well within the life of a hold.
const longest = ledger.HoldLifetime / 2

// releaseTimeout is for giving the hold back after the context has ended.
const releaseTimeout = 30 * time.Second

// Make copies a running system. a is nil where ClickHouse has a backup of its own. After an
// error nothing is left; a killed process leaves a folder *.partial, and a hold that expires.
func Make(ctx context.Context, l *ledger.Ledger, a *archive.Archive, o Options) (_ *Manifest, err error) {
	defer wrap("backup", &err)
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if _, err := os.Stat(o.To); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is there already", o.To)
	}
	partial := strings.TrimRight(o.To, "/") + ".partial"
	if err := os.MkdirAll(filepath.Dir(partial), 0o700); err != nil {
		return nil, err
	}
	if err := os.Mkdir(partial, 0o700); err != nil {
		return nil, fmt.Errorf("%w (left by one that was killed? then remove it)", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	m := &Manifest{Format: format, ID: rand.Text(), Environment: l.Environment(), Partitions: l.Partitions(), Began: time.Now().UTC()}
	for _, path := range o.Include {
		if err := m.include(partial, path); err != nil {
			return nil, fmt.Errorf("include: %w", err)
		}
	}
	if err := m.copyBoth(ctx, l, a, partial, o.Progress); err != nil {
		return nil, err
	}
	m.Ended = time.Now().UTC()
	if err := m.seal(partial); err != nil {
		return nil, err
	}
	if err := os.Rename(partial, o.To); err != nil {
		return nil, err
	}
	return m, syncFolder(filepath.Dir(o.To))
}

func (m *Manifest) copyBoth(ctx context.Context, l *ledger.Ledger, a *archive.Archive, dir string, progress func(string)) (err error) {
	if m.Hold, err = l.Backup.Hold(ctx, m.ID, m.Began); err != nil {
		return err
	}
	defer func() {
		releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		err = errors.Join(err, l.Backup.Release(releasing, m.Hold))
	}()
	if a != nil {
		for _, name := range archive.Tables() {
			if err := m.copyTable(ctx, a, dir, name, progress); err != nil {
				return err
			}
		}
	}
	return l.Backup.Snapshots(ctx, func(node ledger.Node, rdb io.Reader) error {
		return m.copyRedis(dir, node, rdb, progress)
	})
}

func (m *Manifest) copyTable(ctx context.Context, a *archive.Archive, dir, name string, progress func(string)) error {
	counts, err := a.RowCounts(ctx)
	if err != nil {
		return err
	}
	t := Table{File: name + ".native.zst", Name: name}
	err = create(filepath.Join(dir, t.File), func(w io.Writer) error {
		packed, err := zstd.NewWriter(w)
		if err != nil {
			return err
		}
		t.Rows, err = a.Dump(ctx, name, packed, everySecond(func(rows uint64) {
			progress(fmt.Sprintf("ClickHouse %s: %d of about %d rows", name, rows, counts[name]))
		}))
		return errors.Join(err, packed.Close())
	})
	if err != nil {
		return err
	}
	progress(fmt.Sprintf("ClickHouse %s: %d rows", name, t.Rows))
	m.Tables = append(m.Tables, t)
	return nil
}

func (m *Manifest) copyRedis(dir string, node ledger.Node, rdb io.Reader, progress func(string)) error {
	r := Redis{File: "redis-" + strconv.Itoa(len(m.Redis)) + ".rdb", Addr: node.Addr, Slots: node.Slots}
	var sum ledger.RDBSum
	err := create(filepath.Join(dir, r.File), func(w io.Writer) error {
		counted := &counter{report: everySecond(func(n uint64) { progress(fmt.Sprintf("Redis %s: %d MB", node.Addr, n>>20)) })}
		buffered := bufio.NewWriterSize(w, 1<<20)
		var err error
		r.Bytes, err = io.Copy(io.MultiWriter(buffered, &sum, counted), rdb)
		return errors.Join(err, buffered.Flush())
	})
	if err == nil {
		err = sum.Check()
	}
	if err != nil {
		return err
	}
	progress(fmt.Sprintf("Redis %s: %d bytes", node.Addr, r.Bytes))
	m.Redis = append(m.Redis, r)
	return nil
}

// counter reports how much has been written to it.
type counter struct {
	written uint64
	report  func(uint64)
}

func (c *counter) Write(b []byte) (int, error) {
	c.written += uint64(len(b))
	c.report(c.written)
	return len(b), nil
}

// include copies a file, or a folder with all in it, below its own name.
func (m *Manifest) include(dir, path string) error {
	path = filepath.Clean(path)
	return filepath.WalkDir(path, func(from string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(filepath.Dir(path), from)
		if err != nil {
			return err
		}
		name := filepath.Join(includedFolder, rel)
		switch {
		case e.IsDir():
			return os.MkdirAll(filepath.Join(dir, name), 0o700)
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is neither a file nor a folder", from)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			return err
		}
		m.Included = append(m.Included, name)
		return copyFile(from, filepath.Join(dir, name))
	})
}
