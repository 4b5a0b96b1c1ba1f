package closing

import (
	"context"
	"errors"
	"fmt"
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
//
// If a target does not answer, the others are compared all the same; the error is returned with their findings.
func (b *Books) CheckDelivered(ctx context.Context, targets []*deliver.Target) (wrong []string, err error) {
	isCompared := func(*Entry) bool { return true }
	found, err := b.checkDelivered(ctx, targets, isCompared)
	return slices.Concat(found.unknownRows, found.unknownFolders, found.wrong), err
}

// deliveredFindings are what a comparison with targets has found, in sentences.
type deliveredFindings struct {
	wrong []string // about sets of entries

	// unknownRows are about rows of delivery_sets, and unknownFolders about folders at targets, of which the log has
	// no entry.
	unknownRows, unknownFolders []string
}

// checkDelivered compares the sets of those entries that are to be compared, and looks for sets of which the log has no
// entry.
func (b *Books) checkDelivered(ctx context.Context, targets []*deliver.Target, isCompared func(*Entry) bool) (deliveredFindings, error) {
	// The log is read last, so it has the entry of every set that was delivered while this ran.
	var found deliveredFindings
	rows, err := b.archive.DeliverySets(ctx)
	if err != nil {
		return found, err
	}

	var checks []*targetCheck
	var failed error
	for _, target := range targets {
		folders, err := target.Folders(ctx)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		checks = append(checks, newTargetCheck(b, target, folders, rows))
	}

	l, _, err := b.readAsIs(ctx)
	if errors.Is(err, ErrBehind) { // Verify says so; what is left of the log is compared
		l, _, err = b.readWithoutHead(ctx)
	}

	if err != nil {
		return found, err
	}

	hasEntry := map[string]bool{} // by folder
	var compared []*Entry
	for _, e := range l.deliveredEntries() {
		hasEntry[e.folder()] = true
		if isCompared(e) {
			compared = append(compared, e)
		}
	}

	for _, row := range rows {
		isUnknown := entryFolder.MatchString(row.Name) && !hasEntry[row.Name]
		if isUnknown {
			found.unknownRows = append(found.unknownRows, fmt.Sprintf("delivery_sets has a row for %s at %s, and the log has no such entry.%s",
				row.Name, row.Target, whatToRecover(row.Name)))
		}
	}

	for _, c := range checks {
		err := errors.Join(c.findUnknown(ctx, hasEntry), c.compare(ctx, compared))
		found.wrong = append(found.wrong, c.wrong...)
		found.unknownFolders = append(found.unknownFolders, c.unknown...)
		failed = errors.Join(failed, err)
	}

	return found, failed
}

// whatToRecover says what to do about a folder of which the log has no entry.
func whatToRecover(folder string) string {
	return fmt.Sprintf(" Both databases were restored to an older state, or entries were removed:"+
		" `reporting month recover` with %s/%s, and those of all folders like it, brings them back. Or somebody has made it up.", folder, manifestFile)
}

// targetCheck compares what one target has with the log.
type targetCheck struct {
	books    *Books
	target   *deliver.Target
	folders  []string                        // at the target, of closings and corrections, in their order
	recorded map[string]*archive.DeliverySet // by name

	wrong   []string // about sets of entries
	unknown []string // about sets without an entry
}

func newTargetCheck(b *Books, target *deliver.Target, folders []string, rows []archive.DeliverySet) *targetCheck {
	c := &targetCheck{books: b, target: target, recorded: map[string]*archive.DeliverySet{}}
	for _, folder := range slices.Sorted(slices.Values(folders)) {
		if entryFolder.MatchString(folder) {
			c.folders = append(c.folders, folder)
		}
	}

	for i := range rows {
		if rows[i].Target == target.Name {
			c.recorded[rows[i].Name] = &rows[i]
		}
	}

	return c
}

func (c *targetCheck) find(form string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(form, args...))
}

// findUnknown finds whole sets of which the log has no entry.
func (c *targetCheck) findUnknown(ctx context.Context, hasEntry map[string]bool) error {
	for _, folder := range c.folders {
		if hasEntry[folder] {
			continue
		}

		manifest, err := c.readManifest(ctx, folder)
		if err != nil {
			return err
		}

		if manifest != nil {
			sum := (&journal.Entry{Text: string(manifest)}).Seal()
			c.unknown = append(c.unknown, fmt.Sprintf("%s at %s was delivered with the seal %.12s, and the log has no such entry.%s",
				folder, c.target.Name, sum, whatToRecover(folder)))
		}
	}

	return nil
}

// compare compares the sets of entries that are recorded as delivered, or are whole at the target.
func (c *targetCheck) compare(ctx context.Context, entries []*Entry) error {
	for _, e := range entries {
		row := c.recorded[e.folder()]
		isRecorded := row != nil && !row.DeliveredAt.IsZero()
		if !isRecorded {
			isWhole, err := c.isWhole(ctx, e.folder())
			if err != nil {
				return err
			}
			if !isWhole {
				continue
			}
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

// isWhole reports whether a folder is at the target with a manifest.
func (c *targetCheck) isWhole(ctx context.Context, folder string) (bool, error) {
	if !slices.Contains(c.folders, folder) {
		return false, nil
	}
	manifest, err := c.readManifest(ctx, folder)
	return manifest != nil, err
}

// readManifest returns nil if a folder has no manifest.
func (c *targetCheck) readManifest(ctx context.Context, folder string) ([]byte, error) {
	return c.target.Read(ctx, folder, manifestFile, journal.MaxText+1)
}

func (c *targetCheck) checkFiles(ctx context.Context, e *Entry) error {
	s, err := c.books.entrySet(e)
	if err != nil {
		return err
	}
	found, err := c.target.Check(ctx, e.folder(), s.files)
	c.wrong = append(c.wrong, found...)
	return err
}
