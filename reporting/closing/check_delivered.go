package closing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"vendorapi/reporting/archive"
	"vendorapi/reporting/deliver"
	"vendorapi/reporting/journal"
)

// entryFolder is the form of Entry.folder.
var entryFolder = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-(closing|correction)-[0-9]{6,}$`)

// CheckDelivered compares what targets have of closings and corrections with the log, in both directions:
// files of entries that are missing or differ, and sets that were delivered of which the log has no entry.
// It returns one sentence for each. Files of days are not compared: nothing sealed says what they were.
func (b *Books) CheckDelivered(ctx context.Context, targets []*deliver.Target) (wrong []string, err error) {
	l, _, err := b.readAsIs(ctx)
	if errors.Is(err, ErrBehind) { // Verify says so; what is left of the log is compared
		l, _, err = b.readWithoutHead(ctx)
	}
	if err != nil {
		return nil, err
	}
	all, err := b.archive.DeliverySets(ctx)
	if err != nil {
		return nil, err
	}

	entries := map[string]*Entry{} // by folder
	for i := range l.Entries {
		e := &l.Entries[i]
		if e.Kind == KindClose || e.Kind == KindCorrection {
			entries[e.folder()] = e
		}
	}
	for _, row := range all {
		isUnknown := entryFolder.MatchString(row.Name) && entries[row.Name] == nil
		if isUnknown {
			wrong = append(wrong, fmt.Sprintf("delivery_sets has a row for %s at %s, and the log has no such entry.%s", row.Name, row.Target, whatToRecover(row.Name)))
		}
	}
	for _, target := range targets {
		c := &deliveredCheck{Books: b, target: target, entries: entries, recorded: map[string]*archive.DeliverySet{}}
		for i := range all {
			if all[i].Target == target.Name {
				c.recorded[all[i].Name] = &all[i]
			}
		}
		err := c.run(ctx)
		wrong = append(wrong, c.wrong...)
		if err != nil {
			return wrong, err
		}
	}
	return wrong, nil
}

// whatToRecover says what to do about a folder of which the log has no entry.
func whatToRecover(folder string) string {
	return fmt.Sprintf(" Both databases were restored to an older state, or entries were removed:"+
		" `reporting month recover` with %s/%s, and those of all folders like it, brings them back.", folder, ManifestFile)
}

// deliveredCheck compares what one target has.
type deliveredCheck struct {
	*Books
	target   *deliver.Target
	entries  map[string]*Entry               // of the log, by folder
	recorded map[string]*archive.DeliverySet // by name

	wrong []string
}

func (c *deliveredCheck) find(form string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(form, args...))
}

func (c *deliveredCheck) run(ctx context.Context) error {
	folders, err := c.target.Folders(ctx)
	if err != nil {
		return err
	}
	slices.Sort(folders)

	isThere := map[string]bool{}
	for _, folder := range folders {
		if !entryFolder.MatchString(folder) {
			continue
		}
		manifest, err := c.target.Read(ctx, folder, ManifestFile, journal.MaxText+1)
		if err != nil {
			return err
		}
		isWhole := manifest != nil
		if !isWhole {
			continue
		}
		isThere[folder] = true
		if c.entries[folder] == nil {
			sum := (&journal.Entry{Text: string(manifest)}).Seal()
			c.find("%s at %s was delivered with the seal %.12s, and the log has no such entry.%s", folder, c.target.Name, sum, whatToRecover(folder))
		}
	}

	for _, e := range slices.SortedFunc(maps.Values(c.entries), func(a, b *Entry) int { return a.Sequence - b.Sequence }) {
		row := c.recorded[e.folder()]
		isRecorded := row != nil && !row.DeliveredAt.IsZero()
		if !isRecorded && !isThere[e.folder()] {
			continue
		}
		if isRecorded && (row.Folder != e.folder() || row.Manifest != e.Seal) {
			c.find("%s at %s is recorded as delivered in %s with the manifest %.12s, sealed is %.12s.",
				e.folder(), c.target.Name, row.Folder, row.Manifest, e.Seal)
		}
		if err := c.checkFiles(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

func (c *deliveredCheck) checkFiles(ctx context.Context, e *Entry) error {
	s, err := c.entrySet(e)
	if err != nil {
		return err
	}
	found, err := c.target.Check(ctx, e.folder(), s.files)
	c.wrong = append(c.wrong, found...)
	return err
}
