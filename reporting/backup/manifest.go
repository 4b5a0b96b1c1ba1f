// Package backup makes a folder that holds everything the service would need to
// go on elsewhere, from a system that is running, and puts it back.
//
//	hold ----> ClickHouse's tables ----> Redis's snapshots ----> release
//	  |                                      |
//	  the exporter stood here                holds the hold
//
// ClickHouse is read first, Redis last: what Redis acknowledged before the backup began is
// in its snapshot, and nothing in ClickHouse's copy is unknown to it. The hold keeps what
// was exported in between in the streams, and its orders from being retired; it is in the
// snapshot, and the restored exporter goes on from there. Rows that come twice count once.
//
// backup.json lists the files, SHA256SUMS their sums (`sha256sum -c`). Until it is whole
// the folder has another name. It is not encrypted, and readable by its owner only.
package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Manifest is backup.json.
type Manifest struct {
	Format      int       `json:"format"`
	ID          string    `json:"id"`
	Environment string    `json:"environment"`
	Partitions  int       `json:"partitions"`
	Began       time.Time `json:"began"` // whatever was acknowledged before is in it
	Ended       time.Time `json:"ended"`
	// Hold is the consumer group that marks how far ClickHouse's copy reaches.
	Hold   string  `json:"hold"`
	Redis  []Redis `json:"redis"`
	Tables []Table `json:"tables"` // none: ClickHouse was left out
	// Included are further files, below the folder included.
	Included []string `json:"included,omitempty"`
}

// Redis is the snapshot of one master.
type Redis struct {
	File  string `json:"file"`
	Addr  string `json:"addr"`
	Slots string `json:"slots,omitempty"`
	Bytes int64  `json:"bytes"`
}

// Table is the copy of one table of ClickHouse: zstd over its Native format.
type Table struct {
	File string `json:"file"`
	Name string `json:"name"`
	Rows uint64 `json:"rows"`
}

const (
	format         = 1
	manifestFile   = "backup.json"
	sumsFile       = "SHA256SUMS"
	includedFolder = "included"
)

// ErrDamaged says that a folder is no backup, or not the one that was made.
var ErrDamaged = errors.New("not a whole backup")

// Open reads a backup and checks every file's sum.
func Open(dir string) (*Manifest, error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, manifestFile, err)
	}
	if m.Format != format {
		return nil, fmt.Errorf("backup %s has format %d, this program reads %d", dir, m.Format, format)
	}
	sums, err := readSums(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range m.files() {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%w: %s names %q", ErrDamaged, manifestFile, name)
		}
		sum, err := sumOf(filepath.Join(dir, name))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		case sums[name] == "":
			return nil, fmt.Errorf("%w: %s lacks %s", ErrDamaged, sumsFile, name)
		case sums[name] != sum:
			return nil, fmt.Errorf("%w: %s has changed since it was written", ErrDamaged, name)
		}
	}
	return &m, nil
}

func (m *Manifest) files() []string {
	names := append([]string{manifestFile}, m.Included...)
	for _, r := range m.Redis {
		names = append(names, r.File)
	}
	for _, t := range m.Tables {
		names = append(names, t.File)
	}
	return names
}

func readSums(dir string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	sums := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		sum, name, found := strings.Cut(strings.TrimRight(line, "\r\n"), "  ")
		if !found || len(sum) != 2*sha256.Size {
			return nil, fmt.Errorf("%w: %s: line %q", ErrDamaged, sumsFile, line)
		}
		sums[name] = sum
	}
	return sums, nil
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
}

// seal writes the manifest and the sums of all files, and syncs all of it.
func (m *Manifest) seal(dir string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, manifestFile), append(text, '\n')); err != nil {
		return err
	}
	var sums []byte
	for _, name := range slices.Sorted(slices.Values(m.files())) {
		sum, err := sumOf(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		sums = fmt.Appendf(sums, "%s  %s\n", sum, name)
	}
	if err := writeFile(filepath.Join(dir, sumsFile), sums); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return syncFolder(path)
	})
}

func writeFile(path string, content []byte) error {
	return create(path, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// create writes a new file, and folders that are lacking, readable by their owner only, and
// syncs the file.
func create(path string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	return create(to, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func wrap(operation string, err *error) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", operation, *err)
	}
}

// everySecond limits how often report is called.
func everySecond(report func(n uint64)) func(n uint64) {
	last := time.Now()
	return func(n uint64) {
		if time.Since(last) > time.Second {
			last = time.Now()
			report(n)
		}
	}
}
