package ledger

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

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
		body := get(snapshotBody(header, pieces(wire)))(t)
		got, err := io.ReadAll(body)
		require(t, err == nil && bytes.Equal(got, file), "read %q, %v, want %q", got, err, file)
		cut := rapid.IntRange(0, max(len(file)-1, 0)).Draw(t, "broken after")
		if body, err = snapshotBody(header, pieces(wire[:cut])); err == nil {
			_, err = io.ReadAll(body)
		}
		require(t, errors.Is(err, io.ErrUnexpectedEOF), "a connection that broke after %d bytes: %v", cut, err)
	})
}

func TestRequestSnapshot_TellsWhatWasRefused(t *testing.T) {
	for name, c := range map[string]struct{ answers, want string }{
		"wrong password": {"-WRONGPASS invalid\r\n", "AUTH: WRONGPASS"},
		"no right":       {"+OK\r\n+OK\r\n+OK\r\n-NOPERM no\r\n", "SYNC: NOPERM"},
		"an old server":  {"+OK\r\n+OK\r\n-ERR Unrecognized\r\n", "REPLCONF"},
		"nonsense":       {"+OK\r\n+OK\r\n+OK\r\n\n\n+what\r\n", "SYNC answers"},
		"an empty file":  {"+OK\r\n+OK\r\n+OK\r\n$0\r\n", "SYNC answers"},
		"it goes away":   {"+OK\r\n+OK\r\n+OK\r\n\n\n", "EOF"},
	} {
		_, err := requestSnapshot(io.Discard, bufio.NewReader(strings.NewReader(c.answers)), "backup", "geheim")
		check(t, err != nil && strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "geheim"), "%s: %v", name, err)
	}
}

// Every snapshot of a real server is whole; with any byte changed or cut off it is
// not.
func TestSnapshots_AreWholeAndSayIfNot(t *testing.T) {
	l := openTest(t)
	newAccount(t, l, plenty())
	var file []byte
	err := l.Snapshots(t.Context(), func(node Node, rdb io.Reader) (err error) {
		file, err = io.ReadAll(rdb)
		return err
	})
	must(t, err)
	judge := func(b []byte) error {
		var sum RDBSum
		for _, part := range [][]byte{b[:len(b)/3], b[len(b)/3:]} {
			_, _ = sum.Write(part) // never fails
		}
		return sum.Check()
	}
	must(t, judge(file))
	for _, at := range []int{0, 9, len(file) / 2, len(file) - 1} {
		changed := bytes.Clone(file)
		changed[at] ^= 1
		check(t, judge(changed) != nil, "byte %d of %d was changed and nobody saw it", at, len(file))
		check(t, judge(file[:at]) != nil, "cut after %d bytes and nobody saw it", at)
	}
}
