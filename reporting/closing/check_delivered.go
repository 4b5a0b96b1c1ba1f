package closing

import (
	"context"
	"fmt"

	"vendorapi/reporting/archive"
	"vendorapi/reporting/deliver"
)

// CheckDelivered compares what targets have of each closing and correction, as far as it was delivered, with
// what was sealed. It returns one sentence for each file that is missing or differs. Files of days are not
// compared: nothing sealed says what they were.
func (b *Books) CheckDelivered(ctx context.Context, targets []*deliver.Target) (wrong []string, err error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	all, err := b.archive.DeliverySets(ctx)
	if err != nil {
		return nil, err
	}
	recorded := map[[2]string]*archive.DeliverySet{}
	for i := range all {
		recorded[[2]string{all[i].Target, all[i].Name}] = &all[i]
	}

	for i := range l.Entries {
		e := &l.Entries[i]
		for _, target := range targets {
			row := recorded[[2]string{target.Name, e.folder()}]
			if row == nil || row.DeliveredAt.IsZero() {
				continue
			}

			found, err := b.checkEntry(ctx, e, row, target)
			if err != nil {
				return wrong, err
			}
			wrong = append(wrong, found...)
		}
	}
	return wrong, nil
}

func (b *Books) checkEntry(ctx context.Context, e *Entry, row *archive.DeliverySet, target *deliver.Target) (wrong []string, err error) {
	if row.Folder != e.folder() || row.Manifest != e.Seal {
		wrong = append(wrong, fmt.Sprintf("%s at %s is recorded as delivered in %s with the manifest %.12s, sealed is %.12s.",
			e.folder(), target.Name, row.Folder, row.Manifest, e.Seal))
	}

	s, err := b.entrySet(e)
	if err != nil {
		return wrong, err
	}
	found, err := target.Check(ctx, e.folder(), s.files)
	return append(wrong, found...), err
}
