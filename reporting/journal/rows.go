package journal

import (
	"fmt"
	"slices"
)

const (
	// MaxNamed is how many foreign rows are kept and named. Whoever can write to ClickHouse can add any
	// number.
	MaxNamed = 100

	// BeginningSize is how much of a foreign row's text is kept, in bytes.
	BeginningSize = 300
)

// Row is a row of the table in which the log is, as far as it was read.
type Row struct {
	Entry

	// Digest is that of the whole row (Entry.Digest).
	Digest string

	// Size is how long the row's values are together, in bytes. When Entry has less, it has only their
	// beginnings.
	Size uint64

	// Block is the number of the INSERT that brought the row. ClickHouse counts them, and no INSERT can
	// choose its own.
	Block uint64
}

func (r *Row) isWhole() bool {
	return r.Size == uint64(len(r.Text)+len(r.KeyID)+len(r.Signature))
}

// Rows are what was found in the table of the log. What they need of memory does not grow with rows
// that are not signed.
type Rows struct {
	keys    Keys
	count   int
	found   signedRows
	foreign ForeignRows
}

// NewRows returns no rows, to which Add adds.
func (k Keys) NewRows() *Rows {
	return &Rows{keys: k, found: signedRows{bySeal: map[string]*signed{}, byPrevious: map[string][]*signed{}}}
}

// Add checks a row. Rows may be added in any order, and repeatedly.
func (r *Rows) Add(row Row) {
	r.count++
	if !row.isWhole() {
		r.addForeign(&row, fmt.Sprintf("it has %d bytes, which is more than an entry can have", row.Size))
		return
	}

	l, err := r.keys.check(&row.Entry)
	if err != nil {
		r.addForeign(&row, err.Error())
		return
	}

	r.found.add(&signed{Entry: row.Entry, link: l, seal: row.Seal(), rows: []string{row.Digest}, lastBlock: row.Block})
}

func (r *Rows) addForeign(row *Row, why string) {
	r.foreign.Count++
	r.foreign.LastBlock = max(r.foreign.LastBlock, row.Block)
	r.foreign.addNamed(Foreign{Digest: row.Digest, Text: beginning(row.Text), Why: why})
}

// Signed returns the entries of the rows with a valid signature by their seals, whether they belong to
// the log or not.
func (r *Rows) Signed() map[string]Entry {
	all := map[string]Entry{}
	for seal, s := range r.found.bySeal {
		all[seal] = s.Entry
	}
	return all
}

// foreignBeside returns what is foreign beside the entries of the log. First come the head and the rows
// that are signed, so that rows that anybody can write do not hide them.
func (r *Rows) foreignBeside(log []*signed, head *Foreign) ForeignRows {
	inLog := map[string]bool{}
	for _, s := range log {
		inLog[s.seal] = true
	}

	all := ForeignRows{Count: r.foreign.Count, LastBlock: r.foreign.LastBlock}
	if head != nil {
		all.addNamed(*head)
	}

	for _, s := range r.found.all {
		if inLog[s.seal] {
			continue
		}
		all.Count += len(s.rows)
		all.LastBlock = max(all.LastBlock, s.lastBlock)
		for _, digest := range s.rows {
			all.addNamed(Foreign{Digest: digest, Text: beginning(s.Text), Why: s.whyForeign(len(log))})
		}
	}

	for _, f := range r.foreign.First {
		all.addNamed(f)
	}

	return all
}

// ForeignRows are those that do not belong to the log.
type ForeignRows struct {
	// Count is how many rows there are, without the head. A row that is there twice is counted twice,
	// unless it is signed.
	Count int

	// First are at most MaxNamed of the rows. A foreign head is the first of them.
	First []Foreign

	// LastBlock is the highest Row.Block of the rows.
	LastBlock uint64
}

// AreNone reports whether there are neither foreign rows nor a foreign head.
func (r *ForeignRows) AreNone() bool { return len(r.First) == 0 }

// Unnamed is how many rows there are beside First.
func (r *ForeignRows) Unnamed() int {
	named := len(r.First)
	if named > 0 && r.First[0].IsHead {
		named--
	}
	return r.Count - named
}

// OnlyHead returns the foreign head, if there is one, without the rows.
func (r *ForeignRows) OnlyHead() ForeignRows {
	var head ForeignRows
	if !r.AreNone() && r.First[0].IsHead {
		head.addNamed(r.First[0])
	}
	return head
}

// String says how many there are, and what is wrong with the first.
func (r *ForeignRows) String() string {
	if r.AreNone() {
		return "every row belongs to the log"
	}
	if r.Count == 0 {
		return r.First[0].Why
	}
	return fmt.Sprintf("%d rows do not belong to it; the first: %s", r.Count, r.First[0].Why)
}

// Named says of each row in First what is wrong with it and how it begins, and how many others there are.
func (r *ForeignRows) Named() []string {
	var all []string
	for _, f := range r.First {
		all = append(all, fmt.Sprintf("%s: %.200q", f.Why, f.Text))
	}

	if r.Unnamed() > 0 {
		all = append(all, fmt.Sprintf("and %d further rows", r.Unnamed()))
	}
	return all
}

func (r *ForeignRows) addNamed(f Foreign) {
	if len(r.First) < MaxNamed {
		r.First = append(r.First, f)
	}
}

// Foreign is a row that does not belong to the log. A dispute about it has its JSON.
type Foreign struct {
	Digest string `json:"sha256"` // Row.Digest
	Why    string `json:"why"`
	Text   string `json:"text"` // its beginning

	// IsHead is set when it is what Redis has as the head, and no row.
	IsHead bool `json:"-"`
}

func beginning(text string) string { return text[:min(len(text), BeginningSize)] }

// signed is an entry whose signature is right.
type signed struct {
	Entry
	link
	seal string

	// rows are the digests of its rows: one for each key with which it was signed. Of a head that has no
	// row there are none.
	rows      []string
	lastBlock uint64 // of its rows
}

// whyForeign returns why a signed entry is not in a log of some length.
func (s *signed) whyForeign(length int) string {
	switch {
	case s.Sequence <= length:
		return fmt.Sprintf("it is signed, but another entry %d is in the log", s.Sequence)
	case s.Sequence == length+1:
		return fmt.Sprintf("it is signed, but not the only one that could be entry %d", s.Sequence)
	}
	return fmt.Sprintf("it is signed, but the entries before it are missing after number %d", length)
}

// signedRows are the rows with a valid signature, each seal once.
type signedRows struct {
	all        []*signed
	bySeal     map[string]*signed
	byPrevious map[string][]*signed
}

func (f *signedRows) add(s *signed) {
	found, isRepeated := f.bySeal[s.seal]
	if isRepeated {
		found.lastBlock = max(found.lastBlock, s.lastBlock)
		if !slices.Contains(found.rows, s.rows[0]) {
			found.rows = append(found.rows, s.rows[0])
		}
		return
	}

	f.all = append(f.all, s)
	f.bySeal[s.seal] = s
	f.byPrevious[s.Previous] = append(f.byPrevious[s.Previous], s)
}
