package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

func someOrders(n int) (ids []delivery.OrderID) {
	for i := range n {
		ids = append(ids, delivery.MakeOrderID(1, 20783, delivery.OrderDigest(delivery.AccountID{1}, string(rune('a'+i)))))
	}
	return ids
}

// A list is made beside the first backup, is added to, and keeps the first time of each order.
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
	if err := record(at, ids...); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no list of erasures") {
		t.Errorf("without a list: %v", err)
	}
	for range 2 {
		noError(t, makeErasures(filepath.Join(filepath.Dir(list), "20261126T030000Z/")))
	}
	noError(t, record(at, ids[0]))
	noError(t, record(at, ids[:2]...))
	noError(t, makeErasures(filepath.Join(filepath.Dir(list), "another")))
	noError(t, record(at.Add(time.Hour), ids[1:]...))
	noError(t, record(at))
	got, err := ReadErasures(ErasuresBeside(filepath.Join(filepath.Dir(list), "another")))
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
	backup, ids := filepath.Join(t.TempDir(), "b"), someOrders(20)
	noError(t, makeErasures(backup))
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			if err := (Erasures{id: time.Now()}).Record(ErasuresBeside(backup)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := ReadErasures(ErasuresBeside(backup)); err != nil || len(got) != len(ids) {
		t.Errorf("%d of %d, %v", len(got), len(ids), err)
	}
}

// A line that cannot be read may be an erasure. One that was cut off is refused, too: the list
// would go on in it.
func TestReadErasures_RefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	line := "2026-11-26T09:00:00Z " + someOrders(1)[0].String()
	for text, orders := range map[string]int{
		"": 0, line + "\n": 1, line + "\n" + line + "\n": 1,
		line: -1, line + "\n2026-11-26T09:": -1, "\n": -1, "2026-11-26 " + line[21:] + "\n": -1,
		line + " Ali Veli\n": -1, line[:40] + "\n" + line + "\n": -1, line + "\r\n": -1,
	} {
		path := filepath.Join(t.TempDir(), "erasures")
		noError(t, os.WriteFile(path, []byte(text), 0o600))
		list, err := ReadErasures(path)
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
	if _, err := ReadErasures(t.TempDir()); err == nil {
		t.Error("a folder is read as a list")
	}
}
