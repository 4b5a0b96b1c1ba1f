package backup

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
)

func someOrders(n int) (ids []delivery.OrderID) {
	for i := range n {
		ids = append(ids, delivery.MakeOrderID(1, 20783, delivery.OrderDigest(delivery.AccountID{1}, string(rune('a'+i)))))
	}
	return ids
}

// A list is added to, and keeps the first time of each order.
func TestRecord_AddsEachOrderOnce(t *testing.T) {
	t.Parallel()

	list, ids, at := filepath.Join(t.TempDir(), "backups", "erasures"), someOrders(3), time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)
	record := func(at time.Time, ids ...delivery.OrderID) error {
		e := make(Erasures)
		for _, id := range ids {
			e[id] = at
		}
		return e.Record(list)
	}

	noError(t, os.Mkdir(filepath.Dir(list), 0o700))
	if err := record(at, ids...); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no list of erasures") {
		t.Errorf("without a list: %v", err)
	}

	noError(t, addTo(list, nil))
	noError(t, record(at, ids[0]))
	noError(t, record(at, ids[:2]...))
	noError(t, record(at.Add(time.Hour), ids[1:]...))
	noError(t, record(at))
	got, _, err := ReadErasures(ErasuresBeside(filepath.Join(filepath.Dir(list), "20261126T030000Z/")))
	noError(t, err)
	if len(got) != 3 || !got[ids[1]].Equal(at) || !got[ids[2]].Equal(at.Add(time.Hour)) {
		t.Errorf("%v", got)
	}

	text, err := os.ReadFile(list)
	noError(t, err)
	if want := "2026-11-26T09:00:00Z " + ids[0].String() + "\n"; !strings.HasPrefix(string(text), want) || strings.Count(string(text), "\n") != 3 {
		t.Errorf("%s", text)
	}
	if info, err := os.Stat(list); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestRecord_LosesNothingAtOnce(t *testing.T) {
	t.Parallel()

	list, ids := filepath.Join(t.TempDir(), "erasures"), someOrders(20)
	noError(t, addTo(list, nil))
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			if err := (Erasures{id: time.Now()}).Record(list); err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()
	if got, _, err := ReadErasures(list); err != nil || len(got) != len(ids) {
		t.Errorf("%d of %d, %v", len(got), len(ids), err)
	}
}

// A line that cannot be read may be an erasure. One that was cut off is refused, too: the list
// would go on in it.
func TestReadErasures_RefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()

	line, id := "2026-11-26T09:00:00Z "+someOrders(1)[0].String(), "list "+rand.Text()
	for text, orders := range map[string]int{
		"": 0, line + "\n": 1, line + "\n" + line + "\n": 1,
		line: -1, line + "\n2026-11-26T09:": -1, "\n": -1, "2026-11-26 " + line[21:] + "\n": -1,
		line + " Ali Veli\n": -1, line[:40] + "\n" + line + "\n": -1, line + "\r\n": -1,
		id + "\n": 0, line + "\n" + id + "\n" + id + "\n": 1, id: -1, id + " \n": -1, "list\n": -1, "list " + id[6:] + "\n": -1,
	} {
		path := filepath.Join(t.TempDir(), "erasures")
		noError(t, os.WriteFile(path, []byte(text), 0o600))
		list, _, err := ReadErasures(path)
		if (err != nil) != (orders < 0) || len(list) != max(orders, 0) {
			t.Errorf("%q: %v, %v", text, list, err)
		}

		recorded := Erasures{someOrders(2)[1]: time.Now()}.Record(path)
		after, again := os.ReadFile(path)
		noError(t, again)
		if (recorded != nil) != (err != nil) || (recorded != nil) != (string(after) == text) {
			t.Errorf("%q and one more: %q, %v", text, after, recorded)
		}
	}

	if _, _, err := ReadErasures(t.TempDir()); err == nil {
		t.Error("a folder is read as a list")
	}
}

// However many folders have backups, one list is written to, and a backup is restored with no other.
func TestMake_NamesTheOneListOfErasures(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	l, dir, said := s.OpenAs(stack.BackupUser), t.TempDir(), ""
	makeBackup := func(name string, uploaded bool) *Manifest {
		t.Helper()
		to := filepath.Join(dir, name)
		said = ""
		_, err := Make(t.Context(), l, nil, Options{To: to, uploaded: uploaded, Progress: func(text string) { said += text + "\n" }})
		noError(t, err)
		m, err := Open(to)
		noError(t, err)

		return m
	}

	list := func(folder string) string { return filepath.Join(dir, folder, "erasures") }
	early := makeBackup("s3/early", true)
	if _, err := os.Stat(list("s3")); early.Erasures != "" || err == nil {
		t.Errorf("an upload made the list %s", early.Erasures)
	}

	first := makeBackup("first/one", false)
	id := first.Erasures
	text, err := os.ReadFile(list("first"))
	noError(t, err)
	if string(text) != "list "+id+"\n" || strings.Contains(said, "list of erasures") {
		t.Errorf("the list %s is %q; said %s", id, text, said)
	}
	if info, err := os.Stat(list("first")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if m := makeBackup("first/two", false); m.Erasures != id || strings.Contains(said, "list of erasures") {
		t.Errorf("beside the list: %q, said %s", m.Erasures, said)
	}

	other := makeBackup("other/one", false)
	if _, err := os.Stat(list("other")); other.Erasures != id || err == nil || !strings.Contains(said, "the line `list "+id+"`, which does not lie beside it") {
		t.Errorf("elsewhere: %q, said %s", other.Erasures, said)
	}
	if found, there, err := FindErasures(t.Context(), l, list("other")); found != id || there || err != nil {
		t.Errorf("another is found: %s, %t, %v", found, there, err)
	}

	refused := func(what string) {
		t.Helper()
		if _, _, err := other.ReadErasures(list("other")); err == nil || !strings.Contains(err.Error(), "`list "+id+"`") || !strings.Contains(err.Error(), "--erasures FILE") {
			t.Errorf("%s: %v", what, err)
		}
	}

	refused("no list")
	noError(t, addTo(list("other"), nil))
	refused("an empty list")
	if _, _, err := early.ReadErasures(list("other")); err != nil {
		t.Errorf("a backup that names no list: %v", err)
	}

	noError(t, addTo(list("other"), []byte("list "+rand.Text()+"\n")))
	refused("another list")
	noError(t, Erasures{someOrders(1)[0]: time.Now()}.Record(list("first")))
	text, err = os.ReadFile(list("first"))
	noError(t, err)
	noError(t, addTo(list("other"), text)) // joined
	if got, lists, err := other.ReadErasures(list("other")); err != nil || len(got) != 1 || len(lists) != 2 {
		t.Errorf("joined: %v, %v, %v", got, lists, err)
	}

	noError(t, os.WriteFile(list("first"), text[:len(text)-1], 0o600))
	if m := makeBackup("first/three", false); m.Erasures != id || !strings.Contains(said, "line 2") {
		t.Errorf("beside a list that cannot be read: %q, said %s", m.Erasures, said)
	}
}

func TestFindErasures_MakesOneWhateverHappensAtOnce(t *testing.T) {
	t.Parallel()

	l, dir := newEnv(t).OpenAs(stack.BackupUser), t.TempDir()
	var all sync.WaitGroup
	var found [8]string
	for i := range found {
		all.Go(func() {
			path := filepath.Join(dir, string(rune('a'+i%4)))
			if id, there, err := FindErasures(t.Context(), l, path); err != nil {
				t.Error(err)
			} else if there {
				found[i] = path + id
			}
		})
	}

	all.Wait()
	set := map[string]bool{}
	for _, one := range found {
		set[one] = one != ""
	}

	delete(set, "")
	if len(set) != 1 {
		t.Errorf("%q", found)
	}
	if _, _, err := FindErasures(t.Context(), l, filepath.Join(dir, "missing", "erasures")); err != nil {
		t.Error(err) // it is not there, and that is all
	}
	if _, _, err := FindErasures(t.Context(), newEnv(t).OpenAs(stack.BackupUser), filepath.Join(dir, "missing", "erasures")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder is made: %v", err)
	}
}
