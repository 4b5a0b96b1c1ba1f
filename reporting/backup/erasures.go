package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Erasures are the orders whose recipients were erased on request. Their list, a line for each with
// the time and the order's id, lies beside the backups and in none of them, so that a restore of one
// from before an erasure knows of it. It is only ever added to.
//
// An environment has one list, however many folders have its backups: two would each lack what the
// other has. A line `list ID` says which it is, Redis and each backup have the ID. Lists that are
// joined are each of them.
type Erasures map[delivery.OrderID]time.Time

// ErasuresBeside is the list that lies beside a backup.
func ErasuresBeside(backup string) string {
	return filepath.Join(filepath.Dir(filepath.Clean(backup)), "erasures")
}

var listID = regexp.MustCompile(`^list [A-Z2-7]{26}\n$`)

// ReadErasures refuses a list that is not there, which would say that nothing was ever erased, and one
// with a line that cannot be read. The last line may have been cut off by a crash: before anything
// was erased, so it can be removed. lists are the IDs.
func ReadErasures(path string) (erasures Erasures, lists []string, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("no list of erasures: %w (bring it, or, where nothing was ever erased, make an empty file)", err)
	}

	erasures, n := make(Erasures), 0
	for line := range strings.Lines(string(text)) {
		n++
		if listID.MatchString(line) {
			lists = append(lists, line[len("list "):len(line)-1])
			continue
		}

		at, rest, _ := strings.Cut(line, " ")
		id, whole := strings.CutSuffix(rest, "\n")
		erased, unread := time.Parse(time.RFC3339, at)
		order, other := delivery.ParseOrderID(id)
		if unread != nil || other != nil || !whole {
			return nil, nil, fmt.Errorf("%s, line %d: %q is not a time and an order's id", path, n, line)
		}

		erasures[order] = erased
	}

	return erasures, lists, err
}

// ReadErasures reads the list, and refuses one that is not that of the backup's environment.
func (m *Manifest) ReadErasures(path string) (erasures Erasures, lists []string, err error) {
	erasures, lists, err = ReadErasures(path)
	if m.Erasures != "" && (errors.Is(err, fs.ErrNotExist) || err == nil && !slices.Contains(lists, m.Erasures)) {
		err = fmt.Errorf("the backup needs the list of erasures with the line `list %s`, which %s is not: bring that list (--erasures FILE); only where nothing was ever erased, write that line into a file", m.Erasures, path)
	}
	return erasures, lists, err
}

// FindErasures is the ID of the environment's list of erasures, and whether path is that list. Where
// there is none yet, it becomes it: on the disk before in Redis, which never names a list that is not.
func FindErasures(ctx context.Context, l *ledger.Ledger, path string) (list string, there bool, err error) {
	list, err = l.Backup.ErasureList(ctx, "")
	_, lists, unread := ReadErasures(path)
	if err == nil && !errors.Is(unread, fs.ErrNotExist) {
		err = unread
	}

	if list == "" && err == nil {
		fresh := rand.Text()
		err = addTo(path, []byte("list "+fresh+"\n"))
		if err == nil {
			list, err = l.Backup.ErasureList(ctx, fresh)
			_, lists, _ = ReadErasures(path) // another's that came at once may have become it
		}
	}

	return list, slices.Contains(lists, list), err
}

// Record adds the orders that the list lacks, and syncs it before it returns: what is erased
// afterwards is known to every restore. Several may record at once.
func (e Erasures) Record(path string) error {
	erasures, _, err := ReadErasures(path)
	if err != nil {
		return err
	}

	var lines []byte
	for id, at := range e {
		if erasures[id].IsZero() {
			lines = fmt.Appendf(lines, "%s %s\n", at.UTC().Format(time.RFC3339), id)
		}
	}

	return addTo(path, lines)
}

// addTo makes the list if it is not there, but no folder: its path may be mistyped.
func addTo(path string, lines []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(lines)
	return errors.Join(err, f.Sync(), f.Close(), syncFolder(filepath.Dir(path)))
}
