package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vendorapi/internal/delivery"
)

// Erasures are the orders whose recipients were erased on request. Their list, a line for each with
// the time and the order's id, lies beside the backups and in none of them, so that a restore of one
// from before an erasure knows of it. It is only ever added to.
type Erasures map[delivery.OrderID]time.Time

// ErasuresBeside is the list that lies beside a backup.
func ErasuresBeside(backup string) string {
	return filepath.Join(filepath.Dir(filepath.Clean(backup)), "erasures")
}

// ReadErasures refuses a list that is not there, which would say that nothing was ever erased, and one
// with a line that cannot be read. The last line may have been cut off by a crash: before anything
// was erased, so it can be removed.
func ReadErasures(path string) (Erasures, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no list of erasures: %w (a backup makes it beside itself: bring it, or, where nothing was erased and no backup made yet, make an empty file)", err)
	}
	list, n := make(Erasures), 0
	for line := range strings.Lines(string(text)) {
		n++
		at, rest, _ := strings.Cut(line, " ")
		id, whole := strings.CutSuffix(rest, "\n")
		erased, unread := time.Parse(time.RFC3339, at)
		order, other := delivery.ParseOrderID(id)
		if unread != nil || other != nil || !whole {
			return nil, fmt.Errorf("%s, line %d: %q is not a time and an order's id", path, n, line)
		}
		list[order] = erased
	}
	return list, err
}

// Record adds the orders that the list lacks, and syncs it before it returns: what is erased
// afterwards is known to every restore. Several may record at once.
func (e Erasures) Record(path string) error {
	list, err := ReadErasures(path)
	if err != nil {
		return err
	}
	var lines []byte
	for id, at := range e {
		if list[id].IsZero() {
			lines = fmt.Appendf(lines, "%s %s\n", at.UTC().Format(time.RFC3339), id)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(lines)
	return errors.Join(err, f.Sync(), f.Close())
}

// makeErasures makes an empty list beside the first backup of a folder.
func makeErasures(backup string) error {
	if err := writeFile(ErasuresBeside(backup), nil); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
