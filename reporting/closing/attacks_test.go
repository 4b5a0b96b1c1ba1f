package closing

import (
	"fmt"
	"strings"
	"testing"

	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/deliver"
)

// Somebody with all of reporting's environment can make up other books, which look right by themselves. What
// was delivered says what they were.
func TestAttack_WithTheKeysWhatWasDeliveredIsTheProof(t *testing.T) {
	e, _ := twoMonths(t)
	b, r := newBucket(t, "erp"), &receiver{}
	e.newDeliverer(r, b).mustDeliver(t)
	last := e.log().Entries[3]

	signed, err := archiveenv.BooksKeys.Sign(strings.Replace(last.JSON, `"by":"ece"`, `"by":"efe"`, 1))
	testenv.Must(t, err)
	e.lose("journal", "sequence = 4")
	testenv.Must(t, e.Archive.InsertEntry(t.Context(), &signed))
	e.Do("SET", headKey, signed.Head())

	if v := e.verify(); len(v.Findings) > 0 {
		t.Errorf("the books contradict themselves, which an attacker with the keys can avoid: %+v", v)
	}

	wrong, err := e.books.CheckDelivered(t.Context(), []*deliver.Target{b.target})
	testenv.Must(t, err)
	wantContains(t, "what is found", strings.Join(wrong, "\n"),
		"2025-11-closing-000004/"+manifestFile+" at erp is not what was delivered.",
		fmt.Sprintf("is recorded as delivered in 2025-11-closing-000004 with the manifest %.12s, sealed is %.12s.", last.Seal, signed.Seal()))
}

// A person with their own password of the panel is one person, whatever they decide.
func TestAttack_OnePersonIsNotTwo(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.holdAMonth() // by ayse
	m := month("2025-10")

	if err := decide(t.Context(), e.books, KindClose, m, "ayse", ""); !IsRefusal(err) || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("ayse closes what she holds: %v", err)
	}

	e.garbage(1, 10)
	testenv.Must(t, decide(t.Context(), e.books, KindDispute, Month{}, "ayse", "nobody here"))
	if err := decide(t.Context(), e.books, KindSetAside, Month{}, "ayse", ""); !IsRefusal(err) || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("ayse sets aside what she disputes: %v", err)
	}
	if l := e.log(); len(l.Entries) != 2 || l.Closed(m) || l.Entries[1].By != "ayse" {
		t.Errorf("%+v", l.Entries)
	}
}
