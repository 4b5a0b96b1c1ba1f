package ledger

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv/testserver"
)

func settleAll(t *testing.T, l *Ledger, role core.Role) (settled int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mark := get(l.Streams.Mark(t.Context(), role))(t)
	done := make(chan error, 1)
	go func() {
		done <- l.Streams.Run(ctx, partitions.Feed{Role: role, Consumer: "test", Every: time.Millisecond, Handle: func(ctx context.Context, batch []partitions.Entry) error {
			settled += len(batch)
			return l.Streams.Ack(ctx, role, batch...)
		}})
	}()

	testserver.Await(t, "all is settled", func() bool { return get(l.Streams.Passed(t.Context(), role, mark))(t) })
	cancel()
	<-done

	return settled
}

func settleForAll(t *testing.T, l *Ledger) (exported int) {
	t.Helper()
	settleAll(t, l, core.RoleStatus)
	settleAll(t, l, core.RoleWebhook)
	return settleAll(t, l, core.RoleExport)
}

func (s *env) eventsHeld(t *testing.T) int64 {
	t.Helper()
	return get(s.core.Redis.XLen(t.Context(), s.core.PartitionOf(s.account).Key(core.KindEvents)).Result())(t)
}

// Operators are told the latest backup, and a restored Redis knows of those before its own.
func TestNote_KeepsTheLatestBackup(t *testing.T) {
	t.Parallel()

	l := openTest(t)
	if at := get(l.Monitor.LastBackup(t.Context()))(t); !at.IsZero() {
		t.Errorf("there was none, and it says %s", at)
	}

	for _, began := range []time.Time{time.Unix(1_700_000_000, 0), time.Unix(1_800_000_000, 0)} {
		require(t, l.Backup.Note(t.Context(), began) == nil, "it cannot be noted")
		if at := get(l.Monitor.LastBackup(t.Context()))(t); !at.Equal(began) {
			t.Errorf("it says %s, not %s", at, began)
		}
	}
}

// While a hold is there, nothing that was exported after it began is trimmed; a
// hold that nobody has released for a day keeps nothing.
func TestHold_KeepsWhatIsExportedAfterIt(t *testing.T) {
	s := newEnv(t)
	partition := s.core.PartitionOf(s.account).Number
	trim := func(l *Ledger) {
		t.Helper()
		get(l.Streams.Trim(t.Context(), partition, -time.Hour))(t)
	}

	s.create(t, "before")
	settleForAll(t, s.Ledger)
	hold := get(s.Backup.Hold(t.Context(), "b1", time.Now()))(t)
	s.create(t, "after")
	settleForAll(t, s.Ledger)
	trim(s.Ledger)
	if n := s.eventsHeld(t); n < 1 {
		t.Errorf("%d events are left of the one that came after the hold", n)
	}

	must(t, s.Backup.Release(t.Context(), hold))
	must(t, s.Backup.Release(t.Context(), hold))
	trim(s.Ledger)
	released := s.eventsHeld(t)

	get(s.Backup.Hold(t.Context(), "b2", time.Now().Add(-core.HoldLifetime-time.Minute)))(t)
	s.create(t, "expired")
	settleForAll(t, s.Ledger)
	trim(s.Ledger)
	if n := s.eventsHeld(t); n > released {
		t.Errorf("%d events are left behind a hold that has expired", n)
	}

	_, err := s.Backup.Hold(t.Context(), "b3", time.Now())
	check(t, err == nil, "beside an expired hold: %v", err)
	groups := get(s.core.Redis.XInfoGroups(t.Context(), s.core.PartitionOf(s.account).Key(core.KindEvents)).Result())(t)
	if len(groups) != 4 { // three roles and b3
		t.Errorf("groups: %+v", groups)
	}
}

// Resume sets the exporter back to where it stood, ends sessions, and refuses a Redis that does not hold
// the backup.
func TestResume_GoesOnFromTheHold(t *testing.T) {
	s := newEnv(t)
	wantError(t, errOf(s.Backup.Resume(t.Context(), "b1", "backup@1")), operations.ErrOtherCopy)
	s.create(t, "before")
	settleForAll(t, s.Ledger)
	hold := get(s.Backup.Hold(t.Context(), "b1", time.Now()))(t)
	s.create(t, "after")
	settleForAll(t, s.Ledger)
	must(t, s.core.Redis.Set(t.Context(), s.Sessions.SessionKey("somebody's"), "x", 0).Err())

	done := get(s.Backup.Resume(t.Context(), "b1", hold))(t)
	equal(t, get(s.core.Redis.Exists(t.Context(), s.Sessions.SessionKey("somebody's")).Result())(t), 0, "sessions afterwards")
	check(t, !done.Before && done.Sessions == 1 && done.Streams >= 3, "%+v", done)
	equal(t, settleAll(t, s.Ledger, core.RoleExport), 1, "events are exported again, 1 came after the hold")
	again := get(s.Backup.Resume(t.Context(), "b1", hold))(t)
	check(t, again == operations.Resumed{Before: true}, "a second time: %+v", again)
	must(t, s.Backup.Resumable(t.Context(), "b1"))
	wantError(t, errOf(s.Backup.Resume(t.Context(), "b0", hold)), operations.ErrOtherCopy)
}

func TestIDBefore_IsTheGreatestThatIsLess(t *testing.T) {
	for id, want := range map[string]string{
		"5-3": "5-2", "5-0": "4-" + strconv.FormatUint(math.MaxUint64, 10), "0-0": "0-0", "0-1": "0-0",
	} {
		got := operations.IdBefore(id)
		check(t, got == want, "before %s: %s, want %s", id, got, want)
	}
}

// testMark begins nowhere within itself, as 40 random bytes do not either.
const testMark = "q7f0e1d2c3b4a5968778695a4b3c2d1e0f9e8d7c"

// Whatever the pieces in which it arrives, what comes before the mark is the file;
// a stream that ends without the mark is an error.
func TestSnapshotBody_EndsAtItsMarkAndNowhereElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Beginnings of the mark in the middle of the file are no end of it.
		piece := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 100),
			rapid.Custom(func(t *rapid.T) []byte { return []byte(testMark[:rapid.IntRange(0, 39).Draw(t, "cut")]) }))
		file := bytes.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "pieces"), nil)
		header, wire := "$EOF:"+testMark, append(bytes.Clone(file), testMark...)
		if rapid.Bool().Draw(t, "sized") && len(file) > 0 {
			header, wire = "$"+strconv.Itoa(len(file)), append(bytes.Clone(file), "what follows"...)
		}

		pieces := func(b []byte) *bufio.Reader {
			return bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(b)), 64)
		}
		body := get(operations.SnapshotBody(header, pieces(wire)))(t)
		got, err := io.ReadAll(body)
		require(t, err == nil && bytes.Equal(got, file), "read %q, %v, want %q", got, err, file)
		cut := rapid.IntRange(0, max(len(file)-1, 0)).Draw(t, "broken after")
		body, err = operations.SnapshotBody(header, pieces(wire[:cut]))
		if err == nil {
			_, err = io.ReadAll(body)
		}

		require(t, errors.Is(err, io.ErrUnexpectedEOF), "a connection that broke after %d bytes: %v", cut, err)
	})
}

func TestRequestSnapshot_NamesWhatWasRefused(t *testing.T) {
	for name, c := range map[string]struct{ answers, want string }{
		"wrong password": {"-WRONGPASS invalid\r\n", "AUTH: WRONGPASS"},
		"no right":       {"+OK\r\n+OK\r\n+OK\r\n-NOPERM no\r\n", "SYNC: NOPERM"},
		"an old server":  {"+OK\r\n+OK\r\n-ERR Unrecognized\r\n", "REPLCONF"},
		"nonsense":       {"+OK\r\n+OK\r\n+OK\r\n\n\n+what\r\n", "SYNC answers"},
		"an empty file":  {"+OK\r\n+OK\r\n+OK\r\n$0\r\n", "SYNC answers"},
		"it disconnects": {"+OK\r\n+OK\r\n+OK\r\n\n\n", "EOF"},
	} {
		_, err := operations.RequestSnapshot(io.Discard, bufio.NewReader(strings.NewReader(c.answers)), "backup", "geheim")
		check(t, err != nil && strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "geheim"), "%s: %v", name, err)
	}
}

func TestSnapshots_AreWholeAndSayIfNot(t *testing.T) {
	l := openTest(t)
	newAccount(t, l, plenty())
	var file []byte
	err := l.Backup.Snapshots(t.Context(), func(node operations.Node, rdb io.Reader) (err error) {
		file, err = io.ReadAll(rdb)
		return err
	})

	must(t, err)
	must(t, sumOf(file))
	for _, at := range []int{0, 9, len(file) / 2, len(file) - 1} {
		changed := bytes.Clone(file)
		changed[at] ^= 1
		check(t, sumOf(changed) != nil, "byte %d of %d was changed and nobody saw it", at, len(file))
		check(t, sumOf(file[:at]) != nil, "cut after %d bytes and nobody saw it", at)
	}
}

func sumOf(b []byte) error {
	var sum operations.RDBSum
	for _, part := range [][]byte{b[:len(b)/3], b[len(b)/3:]} {
		_, _ = sum.Write(part) // never fails
	}
	return sum.Check()
}

// Zeros stand for a sum where Redis does not compute one, but only behind the
// end mark: a file that was cut where zeros stand is not whole.
func TestRDBSum_TakesZerosForASumBehindTheEndMarkOnly(t *testing.T) {
	zeros := make([]byte, 8)
	body := []byte("REDIS0011 some keys ")
	must(t, sumOf(slices.Concat(body, []byte{operations.RdbEnd}, zeros)))
	for name, file := range map[string][]byte{
		"no end mark":            slices.Concat(body, zeros),
		"another byte before":    slices.Concat(body, []byte{operations.RdbEnd, 0}, zeros),
		"cut among the zeros":    slices.Concat(body, []byte{operations.RdbEnd}, zeros[:7]),
		"something behind them":  slices.Concat(body, []byte{operations.RdbEnd}, zeros, []byte{1}),
		"a sum that is not zero": slices.Concat(body, []byte{operations.RdbEnd}, zeros[:7], []byte{1}),
		"not an RDB file":        slices.Concat([]byte("RADIS0011"), []byte{operations.RdbEnd}, zeros),
	} {
		check(t, errors.Is(sumOf(file), operations.ErrSnapshot), "%s: %v", name, sumOf(file))
	}
}
