package closing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
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

// Recovery is what Recover brings entries back from.
type Recovery struct {
	// Manifests were delivered or saved. They need not be trusted: the head in Redis names the seal of the
	// entry before it, which names that of the one before.
	Manifests []string

	// TakeNewer takes manifests that follow the head as well: both databases were restored to an older
	// state. Nothing proves these but where they come from, and the rows that are made of the orders.
	TakeNewer bool
}

// Recover brings entries back that ClickHouse is missing, and rows of closings and corrections that are
// not what was sealed. Rows are made again from the orders, and must be what was sealed. It returns the
// entries of which something was brought back, also with an error.
func (b *Books) Recover(ctx context.Context, from Recovery, progress func(string)) ([]Entry, error) {
	r := &recovery{Books: b, from: from, progress: progress}
	err := b.ledger.Books.Exclusively(ctx, "recover", r.run)
	return r.recovered, err
}

// recovery is one call of Recover.
type recovery struct {
	*Books
	from      Recovery
	progress  func(string)
	recovered []Entry
}

func (r *recovery) run(ctx context.Context) error {
	_, err := r.Read(ctx) // which moves a head forward that is behind
	if err != nil && !errors.Is(err, ErrBehind) {
		return err
	}

	log, isStored, err := r.upToHead(ctx)
	if err != nil {
		return err
	}

	for i := range log {
		if err := r.bringBack(ctx, &log[i], log[:i], isStored[log[i].Seal]); err != nil {
			return err
		}
	}

	return r.bringNewer(ctx)
}

// upToHead returns the whole log, walking back from the head, and which of its entries have a row.
func (r *recovery) upToHead(ctx context.Context) (log []Entry, isStored map[string]bool, err error) {
	text, err := r.ledger.Books.Head(ctx)
	if err != nil {
		return nil, nil, err
	}

	head := journal.ParseHead(text)
	if head == nil && r.from.TakeNewer { // of a log without an entry
		return nil, nil, nil
	}
	if head == nil {
		return nil, nil, refuse("Redis has no head of the log that could prove entries")
	}
	if err := r.keys.Verify(head); err != nil {
		return nil, nil, refuse("the head of the log in Redis proves nothing: %v", err)
	}

	rows, err := r.archive.JournalRows(ctx)
	if err != nil {
		return nil, nil, err
	}

	bySeal := map[string]journal.Entry{head.Seal(): *head}
	for _, text := range r.from.Manifests {
		// A delivered manifest carries no signature. Signing it here proves nothing by itself: it is only
		// used if the verified head, or an entry that it proves, names its seal.
		signed, err := r.keys.Sign(text)
		if err != nil {
			return nil, nil, err
		}
		bySeal[signed.Seal()] = signed
	}

	isStored = map[string]bool{}
	for seal, signed := range rows.Signed() {
		bySeal[seal] = signed
		isStored[seal] = true
	}

	seal := head.Seal()
	sequence := 0 // of seal; known after the first step
	for seal != "" {
		signed, exists := bySeal[seal]
		if !exists {
			return nil, nil, refuse("entry %d, with the seal %s, is in none of the files", sequence, seal)
		}

		e, err := parse(signed)
		if err != nil {
			return nil, nil, err
		}

		log = append(log, e)
		seal, sequence = e.Previous, e.Sequence-1
	}

	slices.Reverse(log)

	return log, isStored, nil
}

// bringBack makes an entry's rows again unless they are what was sealed, and stores it unless it is stored.
func (r *recovery) bringBack(ctx context.Context, e *Entry, before []Entry, isStored bool) error {
	isWhole, err := r.isWhole(ctx, e)
	if err != nil || isWhole && isStored {
		return err
	}

	r.progress(fmt.Sprintf("entry %d, %s of %s", e.Sequence, e.Kind, e.Month))
	if !isWhole {
		if err := r.makeRowsAgain(ctx, e, before); err != nil {
			return err
		}
	}

	if !isStored {
		if err := r.archive.InsertEntry(ctx, &e.signed); err != nil {
			return err
		}
	}

	r.step("recovered")
	r.recovered = append(r.recovered, *e)

	return nil
}

// bringNewer adds the manifests that follow the head.
func (r *recovery) bringNewer(ctx context.Context) error {
	for {
		l, err := r.Read(ctx)
		if err != nil {
			return err
		}

		next := r.following(l.LastSeal())
		if len(next) == 0 {
			return nil
		}

		if !r.from.TakeNewer {
			return refuse("%d entries of the log are in both databases. The files have entry %d, which follows them, but nothing proves it: "+
				"if the files are those at the target, and both databases were restored to an older state, add --newer", len(l.Entries), len(l.Entries)+1)
		}

		if len(next) > 1 {
			return refuse("the files have %d different manifests that could be entry %d", len(next), len(l.Entries)+1)
		}
		if err := l.requireSettled(); err != nil {
			return err
		}

		if err := r.add(ctx, l, next[0]); err != nil {
			return err
		}
	}
}

// following returns the manifests, each once, that name a seal as that of the entry before.
func (r *recovery) following(seal string) []string {
	var next []string
	for _, text := range r.from.Manifests {
		var m Manifest
		err := json.Unmarshal([]byte(text), &m)
		follows := err == nil && m.Previous == seal && !slices.Contains(next, text)
		if follows {
			next = append(next, text)
		}
	}

	return next
}

// add adds a manifest to the log as it was decided, with the time that it has.
func (r *recovery) add(ctx context.Context, l *Log, text string) error {
	signed, err := r.keys.Sign(text)
	if err != nil {
		return err
	}
	e, err := parse(signed)
	if err != nil {
		return err
	}

	before := slices.Clone(l.Entries)
	if err := l.add(e); err != nil {
		return refuse("%v", err)
	}

	r.progress(fmt.Sprintf("entry %d, %s of %s", e.Sequence, e.Kind, e.Month))
	isWhole, err := r.isWhole(ctx, &e)
	if err != nil {
		return err
	}

	if !isWhole {
		if err := r.makeRowsAgain(ctx, &e, before); err != nil {
			return err
		}
	}

	err = r.ledger.Books.MoveHead(ctx, l.head, e.signed.Head(), time.Time{})
	if errors.Is(err, ledger.ErrConflict) {
		return ErrChanged
	}

	if err != nil {
		return err
	}

	r.step("recovered")
	r.recovered = append(r.recovered, e)

	return r.archive.InsertEntry(ctx, &e.signed)
}

// makeRowsAgain makes the rows of a batch as they were made before it was sealed. It makes them under
// another batch first: what is left of the rows is removed only when they can be made again.
func (b *Books) makeRowsAgain(ctx context.Context, e *Entry, before []Entry) error {
	days, err := b.archive.DigestBatch(ctx, e.Batch, e.Digest.Rows)
	if err != nil {
		return err
	}

	if archive.Sum(days) == e.Digest { // only the sums are not those of the rows
		if err := b.archive.RemoveDays(ctx, e.Batch); err != nil {
			return err
		}
		return b.archive.InsertDays(ctx, e.Batch)
	}

	trial := *e
	trial.Batch = uuid.New()
	isWhole, err := b.makeBatch(ctx, &trial, before)
	b.step("rows tried")
	removed := b.archive.RemoveBatch(context.WithoutCancel(ctx), trial.Batch)
	if err := errors.Join(err, removed); err != nil {
		return err
	}

	if !isWhole {
		return refuse("the rows of entry %d (%s of %s) are not what was sealed, and the orders are not any more what was sealed, so the rows cannot be made again; "+
			"delivered files have not all of their columns. Remove what is left (DELETE FROM closed_orders WHERE batch = '%s', the same of closed_days) "+
			"and bring the rows back from a backup that has them (`reporting restore --only-history`)", e.Sequence, e.Kind, e.Month, e.Batch)
	}

	if err := b.archive.RemoveBatch(ctx, e.Batch); err != nil {
		return err
	}

	b.step("rows removed")
	isWhole, err = b.makeBatch(ctx, e, before)
	b.step("rows made again")
	if err == nil && !isWhole {
		err = fmt.Errorf("%w: orders have changed while rows were made of them: repeat the command", delivery.ErrUnavailable)
	}

	return err
}

// makeBatch stores the rows of an entry and their sums, and reports whether they are what was sealed.
func (b *Books) makeBatch(ctx context.Context, e *Entry, before []Entry) (isWhole bool, err error) {
	if e.Kind == KindClose {
		err = b.archive.Freeze(ctx, e.Batch, e.Month.Time, e.Month.LastDay())
	} else {
		err = b.insertAgain(ctx, &e.Manifest, before)
	}

	if err != nil {
		return false, err
	}

	if err := b.archive.InsertDays(ctx, e.Batch); err != nil {
		return false, err
	}

	return b.isWhole(ctx, e)
}

// insertAgain stores the rows of a correction as they were made after the entries before it.
func (b *Books) insertAgain(ctx context.Context, m *Manifest, before []Entry) error {
	ids := make([]delivery.OrderID, len(m.Corrections))
	for i, c := range m.Corrections {
		ids[i] = c.Order
	}

	places, err := b.archive.PlacesOf(ctx, ids)
	if err != nil {
		return err
	}
	return b.insertCorrections(ctx, m, places, before)
}
