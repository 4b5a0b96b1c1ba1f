package stack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWholeUntil(t *testing.T) {
	t.Parallel()

	const set, multi, exec = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n", "*1\r\n$5\r\nMULTI\r\n", "*1\r\n$4\r\nEXEC\r\n"
	for name, c := range map[string]struct {
		file  string
		whole string
		torn  bool
	}{
		"nothing":                          {"", "", false},
		"whole":                            {set + multi + set + exec, set + multi + set + exec, false},
		"an annotation":                    {"#TS:1628217470\r\n" + set, "#TS:1628217470\r\n" + set, false},
		"within a command":                 {set + set[:9], set, true},
		"within a count":                   {set + "*", set, true},
		"within the last line break":       {set + set[:len(set)-1], set, true},
		"within a transaction's command":   {set + multi + set[:9], set, true},
		"behind a transaction's command":   {set + multi + set, set, true},
		"within a transaction's beginning": {set + multi[:7], set, true},
		"within a transaction's end":       {set + multi + set + exec[:6], set, true},
		"no command":                       {set + "hello\r\n", "", false},
		"zeros":                            {set + "\x00\x00\x00\x00\r\n", "", false},
	} {
		whole, torn, err := wholeUntil(strings.NewReader(c.file))
		if err != nil || torn != c.torn || int(whole) != len(c.whole) {
			t.Errorf("%s: %d, %t, %v; want %d, %t", name, whole, torn, err, len(c.whole), c.torn)
		}
	}
}

// A transaction that was cut off leaves nothing behind: not after the next start,
// and not after the one that follows.
func TestStart_DropsATornTransactionForGood(t *testing.T) {
	t.Parallel()

	r := startRedis(t, RedisOptions{})
	command(t, r, "SET", "before", "1")
	path := filepath.Join(r.Dir, "appendonlydir", "appendonly.aof.1.incr.aof")
	for _, cut := range []int{14, 60} {
		size := fileSize(t, path)
		command(t, r, "EVAL", "redis.call('SET','half','1') redis.call('SET','other','1') return 1", "0")
		command(t, r, "DEL", "half", "other")
		r.Kill()
		// As if the script had never been answered.
		if err := os.Truncate(path, size+int64(cut)); err != nil {
			t.Fatal(err)
		}

		for range 2 {
			if err := r.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := command(t, r, "EXISTS", "before", "half", "other"); got != "1" {
				t.Fatalf("cut after %d bytes of the transaction: %s keys are there, want 1", cut, got)
			}
			command(t, r, "EVAL", "redis.call('INCR','n') redis.call('INCR','m') return 1", "0")
			r.Kill()
		}

		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	if got := command(t, r, "GET", "n"); got != "4" {
		t.Errorf("of 4 acknowledged scripts there are %s", got)
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
