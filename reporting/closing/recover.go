package closing

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/journal"
)

// ManifestsIn returns the manifests in a file that was delivered or saved: a manifest.json, a log.jsonl
// with one in each line, or the answer of /reports/closings.json.
func ManifestsIn(file []byte) ([]string, error) {
	var answer struct {
		Data struct {
			Entries []struct {
				Sealed string `json:"sealed"`
			} `json:"entries"`
		} `json:"data"`
	}
	err := json.Unmarshal(file, &answer)
	if err == nil && len(answer.Data.Entries) > 0 {
		var texts []string
		for _, e := range answer.Data.Entries {
			texts = append(texts, e.Sealed)
		}
		return texts, nil
	}

	texts := strings.Split(strings.TrimRight(string(file), "\n"), "\n")
	for i, text := range texts {
		var m Manifest
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return nil, fmt.Errorf("line %d is no manifest: %w", i+1, err)
		}
		if m.Sequence < 1 {
			return nil, fmt.Errorf("line %d is no manifest: it has no sequence", i+1)
		}
	}
	return texts, nil
}

// Recover brings entries back that ClickHouse is missing, from manifests that were delivered or saved.
// The files need not be trusted: the head in Redis names the seal of the entry before it, which
// names that of the one before. Rows of closings and corrections are made again from the orders, and
// must be what was sealed. It returns the entries that were brought back, also with an error.
func (b *Books) Recover(ctx context.Context, manifests []string, progress func(string)) ([]Entry, error) {
	var recovered []Entry
	err := b.ledger.Exclusively(ctx, "recover", func(ctx context.Context) error {
		missing, err := b.missing(ctx, manifests)
		if err != nil {
			return err
		}
		for i := range missing {
			e := &missing[i]
			progress(fmt.Sprintf("entry %d, %s of %s", e.Sequence, e.Kind, e.Month))
			if err := b.recoverEntry(ctx, e); err != nil {
				return err
			}
			recovered = append(recovered, *e)
		}
		return nil
	})
	return recovered, err
}

// missing returns the entries without a row, in their order, walking back from the head.
func (b *Books) missing(ctx context.Context, manifests []string) ([]Entry, error) {
	text, err := b.ledger.Books.Head(ctx)
	if err != nil {
		return nil, err
	}
	head := journal.ParseHead(text)
	if head == nil {
		return nil, refuse("Redis has no head of the log that could prove entries")
	}
	if err := b.keys.Verify(head); err != nil {
		return nil, refuse("the head of the log in Redis proves nothing: %v", err)
	}
	rows, err := b.archive.JournalRows(ctx)
	if err != nil {
		return nil, err
	}

	bySeal := map[string]journal.Entry{head.Seal(): *head}
	for _, text := range manifests {
		// A delivered manifest carries no signature. Signing it here proves nothing by itself: it is only
		// used if the verified head, or an entry that it proves, names its seal.
		signed, err := b.keys.Sign(text)
		if err != nil {
			return nil, err
		}
		bySeal[signed.Seal()] = signed
	}
	stored := rows.Signed()
	maps.Copy(bySeal, stored)

	var missing []Entry
	seal := head.Seal()
	sequence := 0 // of seal; known after the first step
	for seal != "" {
		signed, exists := bySeal[seal]
		if !exists {
			return nil, refuse("entry %d, with the seal %s, is in none of the files", sequence, seal)
		}
		e, err := parse(signed)
		if err != nil {
			return nil, err
		}
		_, isStored := stored[seal]
		if !isStored {
			missing = append(missing, e)
		}
		seal, sequence = e.Previous, e.Sequence-1
	}
	slices.Reverse(missing)
	return missing, nil
}

// recoverEntry makes an entry's rows again unless they are there, and stores it.
func (b *Books) recoverEntry(ctx context.Context, e *Entry) error {
	isWhole, err := b.isWhole(ctx, e)
	if err != nil {
		return err
	}
	if !isWhole {
		if err := b.makeRowsAgain(ctx, e); err != nil {
			return err
		}
	}
	return b.archive.InsertEntry(ctx, &e.signed)
}

// makeRowsAgain makes the rows of a batch as they were made before it was sealed.
func (b *Books) makeRowsAgain(ctx context.Context, e *Entry) error {
	if e.Batch == uuid.Nil {
		return nil
	}
	if err := b.archive.RemoveBatch(ctx, e.Batch); err != nil {
		return err
	}

	var err error
	if e.Kind == KindClose {
		err = b.archive.Freeze(ctx, e.Batch, e.Month.Time, e.Month.LastDay())
	} else {
		err = b.insertAgain(ctx, &e.Manifest)
	}
	if err != nil {
		return err
	}
	if err := b.archive.InsertDays(ctx, e.Batch); err != nil {
		return err
	}

	isWhole, err := b.isWhole(ctx, e)
	if err == nil && !isWhole {
		err = refuse("the rows of entry %d (%s of %s) are gone, and the orders are not any more what was sealed: restore a backup of ClickHouse that has the rows (`reporting restore --merge`)",
			e.Sequence, e.Kind, e.Month)
	}
	return err
}

// insertAgain stores the rows of a correction as they were made before it was sealed.
func (b *Books) insertAgain(ctx context.Context, m *Manifest) error {
	ids := make([]delivery.OrderID, len(m.Corrections))
	for i, c := range m.Corrections {
		ids[i] = c.Order
	}
	all, err := b.archive.PlacesOf(ctx, ids)
	if err != nil {
		return err
	}
	places := map[delivery.OrderID]archive.Place{}
	for _, p := range all {
		places[p.Order] = p
	}
	return b.insertCorrections(ctx, m, places)
}
