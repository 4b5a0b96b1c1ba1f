package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vendorapi/internal/delivery"
)

// Erasures is the list of what was erased on request: a line for each order, the time and the
// order's id, nothing of the person. It lies beside the backups and in none of them, so that a restore
// of one from before an erasure knows of it. It is only ever added to.
type Erasures map[delivery.OrderID]time.Time

const erasuresFile = "erasures"

// ErasuresBeside is the list that lies in the folder of a backup's folder.
func ErasuresBeside(backup string) string {
	return filepath.Join(filepath.Dir(filepath.Clean(backup)), erasuresFile)
}

// ErrNoErasures says that there is no list. An empty one would say that nothing was ever erased.
var ErrNoErasures = errors.New("no list of erasures")

// ReadErasures refuses a list with a line that cannot be read: an erasure could be forgotten.
func ReadErasures(path string) (Erasures, error) {
	f, err := openErasures(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	list, _, err := readErasures(f)
	return list, err
}

func openErasures(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %s is not there; a backup makes it beside itself: bring it, or, where nothing was erased and no backup made yet, make an empty file", ErrNoErasures, path)
	}
	return f, err
}

// readErasures returns how long the whole lines are, too. What follows them was being written when
// the machine died: nothing had been erased yet.
func readErasures(f *os.File) (list Erasures, whole int, err error) {
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, 0, err
	}
	whole, list = bytes.LastIndexByte(text, '\n')+1, make(Erasures)
	n := 0
	for line := range strings.Lines(string(text[:whole])) {
		n++
		at, id, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		erased, err := time.Parse(time.RFC3339, at)
		order, other := delivery.ParseOrderID(id)
		if err := errors.Join(err, other); err != nil {
			return nil, 0, fmt.Errorf("%s, line %d is not a time and an order's id: %w", f.Name(), n, err)
		}
		list[order] = erased
	}
	return list, whole, nil
}

// Record adds orders to the list, which must be there, and syncs it before it returns: what is erased
// afterwards is known to every restore. Orders that it has are not added again. Others who record
// wait.
func Record(path string, orders []delivery.OrderID, at time.Time) (err error) {
	f, err := openErasures(path, os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	list, whole, err := readErasures(f)
	if err != nil {
		return err
	}
	var lines []byte
	for _, id := range orders {
		if list[id].IsZero() {
			lines = fmt.Appendf(lines, "%s %s\n", at.UTC().Format(time.RFC3339), id)
		}
	}
	if _, err := f.WriteAt(lines, int64(whole)); err != nil {
		return err
	}
	return errors.Join(f.Truncate(int64(whole+len(lines))), f.Sync())
}

// makeErasures makes an empty list beside the first backup of a folder.
func makeErasures(backup string) error {
	err := writeFile(ErasuresBeside(backup), nil)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
