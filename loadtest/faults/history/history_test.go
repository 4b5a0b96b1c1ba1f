package history

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestUnknown(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		name    string
		op      Op
		unknown bool
	}{
		{"no answer", Op{}, true},
		{"accepted", Op{Status: 201}, false},
		{"refused", Op{Status: 409, Code: "DUPLICATE_ORDER"}, false},
		{"too many", Op{Status: 429, Code: "RATE_LIMITED"}, false},
		{"a 503 may follow what was committed", Op{Status: 503, Code: "SERVICE_UNAVAILABLE"}, true},
		{"no courier is decided with the order", Op{Status: 503, Code: "FLEET_UNAVAILABLE"}, false},
		{"a defect", Op{Status: 500, Code: "INTERNAL_ERROR"}, true},
	} {
		if got := one.op.Unknown(); got != one.unknown {
			t.Errorf("%s: unknown %t, want %t", one.name, got, one.unknown)
		}
	}
}

func TestLog_TakesFromManyClients(t *testing.T) {
	t.Parallel()
	log := New()
	var clients sync.WaitGroup
	for client := range 8 {
		clients.Go(func() {
			for range 100 {
				log.Add(Op{Kind: Read, Client: client})
			}
		})
	}
	clients.Wait()
	ops := log.Ops()
	if ops[0].Kind = Create; len(ops) != 800 || log.Len() != 800 || log.Ops()[0].Kind != Read {
		t.Errorf("%d operations, want 800; or the log shares its memory", len(ops))
	}
}

func drawOp(t *rapid.T) Op {
	text := rapid.StringN(0, 20, 100)
	start := time.Unix(0, rapid.Int64Range(1, 1<<62).Draw(t, "start")).UTC()
	op := Op{
		Kind: rapid.SampledFrom([]Kind{Create, Cancel, Read}).Draw(t, "kind"), Client: rapid.IntRange(0, 99).Draw(t, "client"),
		Account: "a" + text.Draw(t, "account"), Key: text.Draw(t, "key"), External: text.Draw(t, "external"), Body: text.Draw(t, "body"),
		Invalid: rapid.Bool().Draw(t, "invalid"), Order: "o" + text.Draw(t, "order"), Start: start,
		End:    start.Add(time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "took"))),
		Status: rapid.IntRange(0, 599).Draw(t, "status"), Code: text.Draw(t, "code"), Replayed: rapid.Bool().Draw(t, "replayed"),
		State: text.Draw(t, "state"), RetryAfter: time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "retry")), Answer: text.Draw(t, "answer"),
	}
	if n := rapid.IntRange(0, 3).Draw(t, "steps"); n > 0 {
		op.Steps = make([]string, n)
	}
	return op
}

func TestDecode_IsTheInverseOfEncode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ops := rapid.SliceOf(rapid.Custom(drawOp)).Draw(t, "ops")
		var file bytes.Buffer
		if err := Encode(&file, ops); err != nil {
			t.Fatal(err)
		}
		back, err := Decode(&file)
		if err != nil {
			t.Fatal(err)
		}
		if len(ops)+len(back) > 0 && !reflect.DeepEqual(ops, back) {
			t.Fatalf("wrote %+v, read %+v", ops, back)
		}
	})
}

const line = `{"kind":"read","client":1,"account":"a","order":"o","start":"2026-11-21T18:00:00.000000001Z","end":"2026-11-21T18:00:01Z"}`

func TestDecode_RefusesWhatIsNoHistory(t *testing.T) {
	t.Parallel()
	if ops, err := Decode(strings.NewReader(line + "\n\n" + line + "\n")); err != nil || len(ops) != 2 {
		t.Fatalf("%d operations, %v", len(ops), err)
	}
	for _, bad := range []string{
		"{", "null", "[]", line + line, line[:60],
		strings.Replace(line, `"read"`, `"write"`, 1),
		strings.Replace(line, `"a"`, `""`, 1),
		strings.Replace(line, `"o"`, `""`, 1),
		strings.Replace(line, "18:00:01Z", "17:00:01Z", 1),
		strings.Replace(line, `"client"`, `"customer"`, 1),
		line + "\n" + strings.Repeat("x", maxLine),
	} {
		if _, err := Decode(strings.NewReader(bad)); err == nil {
			t.Errorf("accepted %.200s", bad)
		}
	}
}

func TestFile_KeepsWhatWasWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	begin := time.Now()
	ops := []Op{{Kind: Create, Account: "a", External: "e", Start: begin, End: begin.Add(time.Second), Status: 201}}
	for range 2 { // the second time it is there already
		if err := WriteFile(path, ops); err != nil {
			t.Fatal(err)
		}
	}
	back, err := ReadFile(path)
	if err != nil || len(back) != 1 || !back[0].Start.Equal(begin) || back[0].External != "e" {
		t.Errorf("read %+v, %v", back, err)
	}
	if _, err := ReadFile(path + "x"); err == nil {
		t.Error("read a file that is not there")
	}
}

func TestContent_TellsEveryFieldApart(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{Content{}.Digest(): true}
	for _, c := range []Content{{Store: "x"}, {External: "x"}, {Recipient: "x"}, {Phone: "x"}, {Dropoff: "x"}, {Note: "x"}, {PaymentType: "x"}, {Amount: 1}, {Collected: 1}} {
		if seen[c.Digest()] {
			t.Errorf("%+v looks like another", c)
		}
		seen[c.Digest()] = true
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(line))
	f.Add([]byte(line + "\n" + line))
	f.Add([]byte(strings.Replace(line, "18:00:01Z", "17:00:01Z", 1)))
	f.Fuzz(func(t *testing.T, file []byte) {
		ops, err := Decode(bytes.NewReader(file))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := Encode(&again, ops); err != nil {
			t.Fatal(err)
		}
		back, err := Decode(&again)
		if err != nil || len(back) != len(ops) {
			t.Fatalf("%d operations became %d: %v", len(ops), len(back), err)
		}
	})
}
