package backup

import (
	"bufio"
	"cmp"
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

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/operations"
	"vendorapi/reporting/archive"
)

// Options say what is copied where.
type Options struct {
	To string
	// Include are further files and folders to copy, such as the keys.
	Include []string
	// Recipients may decrypt the files; none: nothing is encrypted.
	Recipients []age.Recipient
	// Keep is how many whole ones Place.Take leaves there; 0: it removes nothing.
	Keep int
	// Progress is called with what has been copied so far.
	Progress func(string)

	uploaded bool // and so no list of erasures lies beside it
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

	began, err := l.ServerTime(ctx) // what the backup holds back expires by that clock
	if err != nil {
		return nil, err
	}

	m := &Manifest{Format: format, ID: rand.Text(), Environment: l.Environment(), Ledger: l.ID(), Partitions: l.Partitions(), Began: began.UTC(),
		Encrypted: len(o.Recipients) > 0, recipients: o.Recipients}

	for _, path := range o.Include {
		if err := m.include(partial, path); err != nil {
			return nil, fmt.Errorf("include: %w", err)
		}
	}

	if err := m.nameErasures(ctx, l, &o); err != nil {
		return nil, err
	}
	if err := m.copyBoth(ctx, l, a, partial, o.Progress); err != nil {
		return nil, err
	}

	m.Ended = l.Now().UTC()
	if err := m.seal(partial); err != nil {
		return nil, err
	}
	if err := os.Rename(partial, o.To); err != nil {
		return nil, err
	}

	return m, syncFolder(filepath.Dir(o.To))
}

// nameErasures says which list a restore needs. The first backup makes it beside itself, unless it is
// uploaded: then the first erasure does. A list that cannot be read is no reason to make no backup.
func (m *Manifest) nameErasures(ctx context.Context, l *ledger.Ledger, o *Options) (err error) {
	there := false
	m.Erasures, err = l.Backup.ErasureList(ctx, "")
	if err == nil && !o.uploaded {
		m.Erasures, there, err = FindErasures(ctx, l, ErasuresBeside(o.To))
	}

	switch {
	case errors.Is(err, delivery.ErrUnavailable):
		return err
	case err != nil:
		o.Progress(fmt.Sprintf("the list of erasures beside it: %v", err))
	case m.Erasures != "" && !there:
		o.Progress(fmt.Sprintf("a restore needs the list of erasures with the line `list %s`, which does not lie beside it (--erasures FILE)", m.Erasures))
	}

	return nil
}

func (m *Manifest) copyBoth(ctx context.Context, l *ledger.Ledger, a *archive.Archive, dir string, progress func(string)) (err error) {
	m.Hold, err = l.Backup.Hold(ctx, m.ID, m.Began)
	if err != nil {
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

	return l.Backup.Snapshots(ctx, func(node operations.Node, rdb io.Reader) error {
		return m.copyRedis(dir, node, rdb, progress)
	})
}

func (m *Manifest) copyTable(ctx context.Context, a *archive.Archive, dir, name string, progress func(string)) error {
	counts, err := a.RowCounts(ctx)
	if err != nil {
		return err
	}

	t := Table{File: name + ".native.zst", Name: name}
	err = m.create(dir, t.File, func(w io.Writer) error {
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

func (m *Manifest) copyRedis(dir string, node operations.Node, rdb io.Reader, progress func(string)) error {
	r := Redis{File: "redis-" + strconv.Itoa(len(m.Redis)) + ".rdb", Addr: node.Addr, Slots: node.Slots}
	var sum operations.RDBSum
	err := m.create(dir, r.File, func(w io.Writer) (err error) {
		counted := &counter{report: everySecond(func(n uint64) { progress(fmt.Sprintf("Redis %s: %d MB", node.Addr, n>>20)) })}
		buffered := bufio.NewWriterSize(w, 1<<20)
		r.Bytes, err = io.Copy(io.MultiWriter(buffered, &sum, counted), rdb)
		return errors.Join(err, buffered.Flush())
	})
	if err := cmp.Or(err, sum.Check()); err != nil {
		return err
	}

	progress(fmt.Sprintf("Redis %s: %d bytes", node.Addr, r.Bytes))
	m.Redis = append(m.Redis, r)

	return nil
}

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

		m.Included = append(m.Included, name)

		return m.create(dir, name, content(os.Open(from)))
	})
}

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
	if err := errors.Join(
		create(filepath.Join(partial, appendBase), content(m.open(from, m.Redis[node].File))),
		writeFile(filepath.Join(partial, appendList), []byte("file "+appendBase+" seq 1 type b\n")),
		syncFolder(partial)); err != nil {
		return err
	}

	return errors.Join(os.Rename(partial, target), syncFolder(dir))
}

// PlaceIncluded puts the included files below a folder, and overwrites none.
func (m *Manifest) PlaceIncluded(from, dir string) (err error) {
	defer wrap("restore", &err)
	for _, name := range m.Included {
		rel, err := filepath.Rel(includedFolder, name)
		if err != nil {
			return err
		}

		if !filepath.IsLocal(rel) {
			return fmt.Errorf("%w: %s includes %q", ErrDamaged, manifestFile, name)
		}

		target := filepath.Join(dir, rel)
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			if err := create(target, content(m.open(from, name))); err != nil {
				return err
			}
			continue
		}

		there, err := sumOf(os.Open(target))
		wanted, other := sumOf(m.open(from, name))
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
func (m *Manifest) Finish(ctx context.Context, from string, l *ledger.Ledger, a *archive.Archive, merge bool, progress func(string)) (_ operations.Resumed, err error) {
	defer wrap("restore", &err)
	if l.Environment() != m.Environment || l.Partitions() != m.Partitions {
		return operations.Resumed{}, fmt.Errorf("the backup is of %s with %d partitions, the settings say %s with %d",
			m.Environment, m.Partitions, l.Environment(), l.Partitions())
	}

	err = l.Backup.Resumable(ctx, m.ID)
	if err == nil && a != nil {
		err = m.load(ctx, from, a, merge, progress)
	}

	if err != nil {
		return operations.Resumed{}, err
	}

	return l.Backup.Resume(ctx, m.ID, m.Hold)
}

// ErrOtherLedger reports that a backup belongs to another ledger, or does not say to which. LoadHistory would mix
// their rows.
var ErrOtherLedger = errors.New("the backup belongs to another ledger, or its backup.json does not say to which")

// LoadHistory loads ClickHouse from the backup and leaves Redis, which has gone on since, as it is. A row that is
// there already is not counted twice. It may be repeated after an error.
func (m *Manifest) LoadHistory(ctx context.Context, from string, l *ledger.Ledger, a *archive.Archive, progress func(string)) (err error) {
	defer wrap("restore", &err)
	if m.Ledger != l.ID() {
		return ErrOtherLedger
	}
	if len(m.Tables) == 0 {
		return errors.New("the backup was made without ClickHouse")
	}

	return m.load(ctx, from, a, true, progress)
}

func (m *Manifest) load(ctx context.Context, from string, a *archive.Archive, merge bool, progress func(string)) error {
	counts, err := a.RowCounts(ctx)
	if err != nil {
		return err
	}

	var has []string
	for _, name := range archive.Tables() {
		if counts[name] > 0 && name != archive.Identity { // whoever made the tables wrote whose they are
			has = append(has, fmt.Sprintf("%d rows of %s", counts[name], name))
		}
	}

	if len(has) > 0 && !merge {
		return fmt.Errorf("%w: it has %s", ErrHistory, strings.Join(has, ", "))
	}

	for _, t := range m.Tables {
		if err := m.loadTable(ctx, &t, from, a, progress); err != nil {
			return err
		}
		progress(fmt.Sprintf("ClickHouse %s: %d rows", t.Name, t.Rows))
	}

	return nil
}

func (m *Manifest) loadTable(ctx context.Context, t *Table, from string, a *archive.Archive, progress func(string)) error {
	f, err := m.open(from, t.File)
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
