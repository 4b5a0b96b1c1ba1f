package backup

import (
	"errors"
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
	if err := Record(list, ids, at); !errors.Is(err, ErrNoErasures) {
		t.Errorf("without a list: %v", err)
	}
	for range 2 {
		noError(t, makeErasures(filepath.Join(filepath.Dir(list), "20261126T030000Z/")))
	}
	noError(t, Record(list, ids[:2], at))
	noError(t, makeErasures(filepath.Join(filepath.Dir(list), "another")))
	noError(t, Record(list, ids[1:], at.Add(time.Hour)))
	noError(t, Record(list, nil, at))
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
			if err := Record(ErasuresBeside(backup), []delivery.OrderID{id}, time.Now()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := ReadErasures(ErasuresBeside(backup)); err != nil || len(got) != len(ids) {
		t.Errorf("%d of %d, %v", len(got), len(ids), err)
	}
}

// A line that was cut off by the end of the machine was never acted on; any other that cannot be
// read may be an erasure.
func TestReadErasures_RefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	line := "2026-11-26T09:00:00Z " + someOrders(1)[0].String()
	for text, orders := range map[string]int{
		"": 0, line + "\n": 1, line: 0, line + "\n2026-11-26T09:": 1,
		"\n": -1, "2026-11-26 " + line[21:] + "\n": -1, line + " Ali Veli\n": -1, line[:40] + "\n" + line + "\n": -1, line + "\r\n": -1,
	} {
		path := filepath.Join(t.TempDir(), "erasures")
		noError(t, os.WriteFile(path, []byte(text), 0o600))
		list, err := ReadErasures(path)
		if (err != nil) != (orders < 0) || len(list) != max(orders, 0) {
			t.Errorf("%q: %v, %v", text, list, err)
		}
		recorded := Record(path, someOrders(2)[1:], time.Now())
		list, again := ReadErasures(path)
		if (recorded != nil) != (err != nil) || (again != nil) != (err != nil) || len(list) != max(orders+1, 0) {
			t.Errorf("%q and one more: %v, %v, %v", text, list, recorded, again)
		}
	}
}
