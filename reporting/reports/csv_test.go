package reports

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

//rule:finance/cells-that-begin-with
func TestCSV_EscapesWhatCouldBeAFormula(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"":                "",
		"Moda Şubesi":     "Moda Şubesi",
		"=1+1":            "'=1+1",
		"+cmd|' /C calc'": "'+cmd|' /C calc'",
		"-2+3":            "'-2+3",
		"@SUM(A1:A9)":     "'@SUM(A1:A9)",
		"\t=1":            "\"'\t=1\"",
		"\r=1":            "\"'\r=1\"",
		"\n=1":            "\"'\n=1\"",
		"  =1":            "\"'  =1\"",
		"\u00a0=1":        "'\u00a0=1",
		"\u200b=1":        "'\u200b=1",
		"＝1+1":            "'＝1+1",
		"＠SUM":            "'＠SUM",
		`=HYPERLINK("x")`: `"'=HYPERLINK(""x"")"`,
		"a=1":             "a=1",
		" a":              "\" a\"",
		"a;b":             `"a;b"`,
		"a,b":             `"a,b"`,
		`a"b`:             `"a""b"`,
		"'quoted":         "'quoted",
	} {
		for _, d := range []style{spreadsheetCSV, commaCSV} {
			if got := string(newCSV(d)(nil).(*csvSink).appendText(nil, text)); got != want {
				t.Errorf("%q: got %s, wanted %s", text, got, want)
			}
		}
	}
}

// hostileTexts are texts that a writer of CSV could change, or make equal to another one.
var hostileTexts = []string{
	"", "'", "''", "-1001", "'-1001", "''-1001", "=1+1", "'=1+1", "+1", "@SUM(A1)", "＝1", "\t=1", "\r=1", "\n=1", "\t", "\r", "\n", "\r\n", "\n\r",
	" ", " x", "x ", "\u00a0=1", "\ufeff", "\ufeff-1001", "\u200b=1", `"`, `""`, `"x"`, `x"y`, `="x"`, ",", ";", "a,b", "a;b", "a\tb", "a\nb", "a\r\nb",
	`\`, `\n`, "#", "\x00", "\x00=1", "\xff", "\xff\xfe=1", "-\xc3", "İğdır", "007", "1e5", "NULL", `\N`,
}

// plainFile is an exceptions report as csv-plain, in each row of which all columns of texts
// have the row's text.
func plainFile(t rapid.TB, texts []string) []byte {
	t.Helper()

	var file bytes.Buffer
	sink := CSVPlain.Sink(&file)
	cells := make([]Cell, len(exceptions.Columns))

	err := sink.Begin(exceptions, Params{})
	for _, text := range texts {
		for i := range cells {
			cells[i] = Cell{Text: text}
		}
		err = cmp.Or(err, sink.Row(cells))
	}

	if err := cmp.Or(err, sink.End(Summary{})); err != nil {
		t.Fatalf("%v", err)
	}

	return file.Bytes()
}

// requireExact checks that a program reads just these texts from the plain CSV.
func requireExact(t rapid.TB, texts []string) {
	t.Helper()

	file := plainFile(t, texts)
	rows, err := csv.NewReader(bytes.NewReader(file)).ReadAll()
	if err != nil || len(rows) != 1+len(texts) {
		t.Fatalf("%d rows of %d and a header, %v:\n%s", len(rows), len(texts), err, file)
	}

	for n, text := range texts {
		read := strings.ReplaceAll(text, "\r\n", "\n") // encoding/csv reads the one as the other
		for i := range exceptions.Columns {
			want := ""
			if exceptions.Columns[i].Kind == Text {
				want = read
			}
			if got := rows[1+n][i]; got != want {
				t.Fatalf("%q: %s is %q", text, exceptions.Columns[i].Key, got)
			}
		}

		if !bytes.Contains(file, []byte(strings.ReplaceAll(text, `"`, `""`))) {
			t.Fatalf("%q is not in the file byte for byte:\n%s", text, file)
		}
	}
}

//rule:finance/cells-that-begin-with
func TestPlainCSV_HasEveryTextAsItIs(t *testing.T) {
	t.Parallel()

	requireExact(t, hostileTexts)

	pieces := rapid.OneOf(rapid.SampledFrom(hostileTexts), rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	texts := rapid.Map(rapid.SliceOfN(pieces, 1, 4), func(parts []string) string { return strings.Join(parts, "") })
	rapid.Check(t, func(t *rapid.T) {
		requireExact(t, rapid.SliceOfN(texts, 1, 5).Draw(t, "texts"))
	})
}

func TestMoney_IsWrittenWithTwoDecimals(t *testing.T) {
	t.Parallel()

	for n, want := range map[int64]string{0: "0.00", 1: "0.01", 10: "0.10", 99: "0.99", 100: "1.00", 24990: "249.90", 999_999_999: "9999999.99", -1: "-0.01", -12345: "-123.45"} {
		if got := string(appendMoney(nil, n, '.')); got != want {
			t.Errorf("%d: %s, wanted %s", n, got, want)
		}
	}

	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<62).Draw(t, "n")
		if got := string(appendMoney(nil, n, '.')); got != lira(n) {
			t.Fatalf("%d: %s", n, got)
		}
	})
}

func FuzzCSVText(f *testing.F) {
	for _, s := range []string{"", "=1", `a"b;c,d`, "satır\r\nsonu", " x ", "＝", "'", "\r\r\n", "\x00", "\xd1\u00a0", "\n\n\"\n"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		want := strings.ReplaceAll(s, "\r\n", "\n") // encoding/csv reads the one as the other
		for separator, d := range map[rune]style{';': spreadsheetCSV, ',': plainCSV} {
			c := newCSV(d)(nil).(*csvSink)
			line := append(c.appendText(nil, s), byte(separator), 'x')
			r := csv.NewReader(bytes.NewReader(line))
			r.Comma = separator
			row, err := r.Read()
			if err != nil || len(row) != 2 || row[1] != "x" {
				t.Fatalf("%q becomes %q: %q, %v", s, line, row, err)
			}

			disarmed := d.disarm && row[0] == "'"+want
			if row[0] != want && !disarmed {
				t.Fatalf("%q becomes %q", s, row[0])
			}
			if !d.disarm {
				continue
			}
			if first, _ := utf8.DecodeRuneInString(strings.TrimSpace(row[0])); strings.ContainsRune("=+-@", first) && first != utf8.RuneError {
				t.Fatalf("%q begins a formula", row[0])
			}
		}
	})
}

func FuzzJSONText(f *testing.F) {
	for _, s := range []string{"", `"`, "\x00", "İğdır </script>", "\xff", "\f\b", "\xf2\xb3\xa0\xe2"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(appendJSONText(nil, s), &got); err != nil || utf8.ValidString(s) && got != s {
			t.Fatalf("%q: %q, %v", s, got, err)
		}
	})
}

func TestValues_Parse(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 21, 21, 30, 0, 0, time.UTC) // the 22nd in Turkey
	id := sampleAccounts[1].String()
	for name, c := range map[string]struct {
		values Values
		want   string
	}{
		"nothing":    {Values{}, "2026-11-01 to 2026-11-22"},
		"from":       {Values{From: "2026-10-15"}, "2026-10-15 to 2026-11-22"},
		"to":         {Values{To: "2026-02-10"}, "2026-02-01 to 2026-02-10"},
		"one day":    {Values{From: "2028-02-29", To: "2028-02-29"}, "2028-02-29 to 2028-02-29"},
		"all":        {Values{"2026-01-01", "2026-12-31", id, fleets[0].String(), "şube", "LateDelivery", "known", "2026-11-20"}, "2026-01-01 to 2026-12-31, account " + id + ", fleet " + fleets[0].String() + ", store şube, kind LateDelivery, basis known, as of 2026-11-20"},
		"basis":      {Values{Basis: "paid"}, "basis: is booked or known"},
		"booked":     {Values{Basis: "booked"}, "2026-11-01 to 2026-11-22"},
		"not over":   {Values{AsOf: "2026-11-22"}, "as_of: must be a day that is over: the last one is 21 Nov 2026"},
		"backwards":  {Values{From: "2026-11-02", To: "2026-11-01"}, "to: 1 Nov 2026 is before the first day, 2 Nov 2026"},
		"no day":     {Values{From: "2026-02-29"}, "from: there is no day 2026-02-29"},
		"with time":  {Values{To: "2026-02-28T00:00:00"}, `to: "2026-02-28T00:00:00" is not a day such as 2026-11-21`},
		"too early":  {Values{From: "1999-12-31"}, "from: 31 Dec 1999 is not between 1 Jan 2000 and 31 Dec 2100"},
		"too late":   {Values{To: "2101-01-01"}, "to: 1 Jan 2101 is not between 1 Jan 2000 and 31 Dec 2100"},
		"account":    {Values{Account: "42"}, `account: "42" is neither the id of an account nor the name of exactly one`},
		"zero":       {Values{Account: "00000000-0000-0000-0000-000000000000"}, `account: "00000000-0000-0000-0000-000000000000" is neither the id of an account nor the name of exactly one`},
		"fleet":      {Values{Fleet: id + " "}, "fleet: \"" + id + " \" is neither the id of a fleet nor the name of exactly one"},
		"tomorrow":   {Values{From: "2026-11-23"}, "from: 23 Nov 2026 lies in the future: give the last day, too"},
		"month 13":   {Values{From: "2026-13-01"}, `from: "2026-13-01" is not a day such as 2026-11-21`},
		"kind":       {Values{Kind: "late"}, "kind: is no kind of exceptions; there is CollectionDiffers, CollectionMissing, CollectionOnPrepaid, CollectionUndelivered, CourierMissing, LateDelivery, PaymentTypeMissing"},
		"both days":  {Values{From: "22.11.2026", To: "30.11.2026"}, `to: "30.11.2026" is not a day such as 2026-11-21; from: "22.11.2026" is not a day such as 2026-11-21`},
		"long store": {Values{Store: strings.Repeat("ş", 65)}, "store: must be the vendor's id of a store, at most 64 characters"},
		"bad store":  {Values{Store: "\xff"}, "store: must be the vendor's id of a store, at most 64 characters"},
	} {
		p, err := c.values.Parse(now)
		got := p.String()
		if err != nil {
			got = err.Error()
			if _, ok := err.(ParamErrors); !ok {
				t.Errorf("%s: %T", name, err)
			}
		}

		if got != c.want {
			t.Errorf("%s: %s, wanted %s", name, got, c.want)
		}
	}
}

func FuzzParseDay(f *testing.F) {
	for _, s := range []string{"2026-11-21", "2028-02-29", "2000-01-01", "x"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseDay(s); err == nil && d.String() != s {
			t.Fatalf("%q is read as %s", s, d)
		}
	})
}
