package archive

import (
	"crypto/sha256"
	"fmt"
	"testing"
)

// The digest of rows does not depend on their order, and on nothing else than the rows.
func TestDigestOf_IsThatOfASetOfRows(t *testing.T) {
	t.Parallel()
	var rows []RowDigest
	for i := range 1000 {
		rows = append(rows, sha256.Sum256(fmt.Append(nil, i)))
	}
	whole := DigestOf(rows)
	if whole.Rows != 1000 || whole.SHA256 == "" {
		t.Fatalf("%+v", whole)
	}

	reversed := make([]RowDigest, len(rows))
	for i, r := range rows {
		reversed[len(rows)-1-i] = r
	}
	if got := DigestOf(reversed); got != whole {
		t.Errorf("in another order it is %+v, was %+v", got, whole)
	}

	other := sha256.Sum256([]byte("another row"))
	for name, changed := range map[string][]RowDigest{
		"one less":  rows[1:],
		"one twice": append([]RowDigest{rows[0]}, rows...),
		"one other": append([]RowDigest{other}, rows[1:]...),
	} {
		if got := DigestOf(changed); got == whole {
			t.Errorf("%s: the digest is the same", name)
		}
	}
	if got := DigestOf(nil); got != (Digest{}) {
		t.Errorf("of no rows it is %+v", got)
	}
}
