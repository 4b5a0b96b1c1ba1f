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
// the folder has another name. It is readable by its owner only. With recipients every
// file but these two is encrypted with age as it is written, and its name ends in .age.
package backup

import (
	"bytes"
	"cmp"
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

	"filippo.io/age"
)

// Manifest is backup.json.
type Manifest struct {
	Format      int       `json:"format"`
	ID          string    `json:"id"`
	Environment string    `json:"environment"`
	Ledger      string    `json:"ledger"` // its ID
	Partitions  int       `json:"partitions"`
	Began       time.Time `json:"began"` // whatever was acknowledged before is in it
	Ended       time.Time `json:"ended"`
	// Hold is the consumer group that marks how far ClickHouse's copy reaches.
	Hold   string  `json:"hold"`
	Redis  []Redis `json:"redis"`
	Tables []Table `json:"tables"` // none: ClickHouse was left out
	// Included are further files, below the folder included.
	Included []string `json:"included,omitempty"`
	// Erasures is the list of erasures without which it is not restored; empty: any will do.
	Erasures string `json:"erasures,omitempty"`
	// Encrypted: the files' names end in .age, besides what is listed.
	Encrypted bool `json:"encrypted,omitempty"`

	recipients []age.Recipient
	identities []age.Identity
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

// Open reads a backup and checks every file's sum. identities are files with private keys of
// age: what is encrypted is read with them later.
func Open(dir string, identities ...string) (*Manifest, error) {
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

	for _, file := range identities {
		text, err := os.ReadFile(file)
		keys, malformed := age.ParseIdentities(bytes.NewReader(text))
		if err := cmp.Or(err, malformed); err != nil {
			return nil, fmt.Errorf("age's identity %s: %w", file, err)
		}
		m.identities = append(m.identities, keys...)
	}

	sums, err := readSums(dir)
	if err != nil {
		return nil, err
	}

	for _, name := range m.files() {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%w: %s names %q", ErrDamaged, manifestFile, name)
		}

		sum, err := sumOf(os.Open(filepath.Join(dir, name)))
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

// files are those that have sums, by their names in the folder.
func (m *Manifest) files() []string {
	names := []string{manifestFile}
	for _, name := range m.Included {
		names = append(names, m.stored(name))
	}

	for _, r := range m.Redis {
		names = append(names, m.stored(r.File))
	}

	for _, t := range m.Tables {
		names = append(names, m.stored(t.File))
	}

	return names
}

func (m *Manifest) stored(name string) string {
	if m.Encrypted {
		return name + ".age"
	}
	return name
}

// create writes a listed file.
func (m *Manifest) create(dir, name string, write func(io.Writer) error) error {
	return create(filepath.Join(dir, m.stored(name)), func(w io.Writer) error {
		if !m.Encrypted {
			return write(w)
		}

		sealed, err := age.Encrypt(w, m.recipients...)
		if err != nil {
			return err
		}
		return errors.Join(write(sealed), sealed.Close())
	})
}

// ErrIdentity says that an encrypted backup cannot be read with what was given.
var ErrIdentity = errors.New("the backup is encrypted, and no identity opens it")

// open reads a listed file as it was before it was encrypted.
func (m *Manifest) open(dir, name string) (io.ReadCloser, error) {
	f, err := os.Open(filepath.Join(dir, m.stored(name)))
	if err != nil || !m.Encrypted {
		return f, err
	}
	plain, err := age.Decrypt(f, m.identities...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrIdentity, err), f.Close())
	}

	return struct {
		io.Reader
		io.Closer
	}{plain, f}, nil
}

// content copies what was opened, or has the error of opening it.
func content(in io.ReadCloser, err error) func(io.Writer) error {
	return func(w io.Writer) error {
		if err != nil {
			return err
		}
		defer func() { _ = in.Close() }() // only read
		_, err := io.Copy(w, in)
		return err
	}
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

func sumOf(in io.ReadCloser, err error) (string, error) {
	h := sha256.New()
	err = content(in, err)(h)
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
		sum, err := sumOf(os.Open(filepath.Join(dir, name)))
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
// syncs the file. What could not be written is removed.
func create(path string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = write(f)
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(path))
	}

	return errors.Join(f.Sync(), f.Close())
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
