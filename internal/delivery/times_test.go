package delivery

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

//rule:order-creation-request/orderedAt decisions/timestamps
func TestParseTime_ReadsISO8601(t *testing.T) {
	for in, want := range map[string]string{
		"2026-11-21T12:30:00+03:00":           "2026-11-21T12:30:00+03:00",
		"2026-11-21T12:30:00":                 "2026-11-21T12:30:00+03:00",
		"2026-11-21T12:30":                    "2026-11-21T12:30:00+03:00",
		"2026-11-21T12:30Z":                   "2026-11-21T12:30:00Z",
		"2026-11-21T12:30:00Z":                "2026-11-21T12:30:00Z",
		"2026-11-21T12:30:00+0300":            "2026-11-21T12:30:00+03:00",
		"2026-11-21T12:30:00+03":              "2026-11-21T12:30:00+03:00",
		"2026-11-21T12:30+03":                 "2026-11-21T12:30:00+03:00",
		"2026-11-21T12:30:00-05:30":           "2026-11-21T12:30:00-05:30",
		"2026-11-21T12:30:00-00:00":           "2026-11-21T12:30:00Z",
		"2026-11-21T12:30:00+14:00":           "2026-11-21T12:30:00+14:00",
		"2026-11-21T12:30:00.5":               "2026-11-21T12:30:00.5+03:00",
		"2026-11-21T12:30:00.123Z":            "2026-11-21T12:30:00.123Z",
		"2026-11-21T12:30:00,123Z":            "2026-11-21T12:30:00.123Z",
		"2026-11-21T12:30:00.123456789+03:00": "2026-11-21T12:30:00.123456789+03:00",
		"2028-02-29T23:59:59":                 "2028-02-29T23:59:59+03:00",
		"2000-01-01T00:00:00":                 "2000-01-01T00:00:00+03:00",
		"2100-12-31T23:59:59.999":             "2100-12-31T23:59:59.999+03:00",
	} {
		expected, err := time.Parse(time.RFC3339Nano, want)
		must(t, err)
		got, err := ParseTime(in)
		check(t, err == nil && got.Equal(expected) && got.Location() == Istanbul, "%s: got %v, %v, want %v", in, got, err, want)
	}
}

func TestParseTime_RefusesOtherNotations(t *testing.T) {
	for _, in := range []string{
		"", "2026", "2026-11-21", "2026-11-21T", "2026-11-21T12", "2026-11-21 12:30:00", "2026-11-21t12:30:00", "20261121T123000",
		"2026-11-21T12:30:00z", "2026-11-21T24:00:00", "2026-11-21T12:60:00", "2026-11-21T12:30:60", "2026-02-29T12:30:00",
		"2026-13-01T12:30:00", "2026-00-10T12:30:00", "2026-11-00T12:30:00", "2026-11-31T12:30:00",
		"2026-11-21T12:30:00.", "2026-11-21T12:30:00.1234567890", "2026-11-21T12:30.5",
		"2026-11-21T12:30:00+", "2026-11-21T12:30:00+3", "2026-11-21T12:30:00+03:", "2026-11-21T12:30:00+03:0", "2026-11-21T12:30:00+15:00",
		"2026-11-21T12:30:00+03:60", "2026-11-21T12:30:00+03:00 ", " 2026-11-21T12:30:00", "2026-11-21T12:30:00+03:00Z",
		"2026-11-21T12:30:00Europe/Istanbul", "1800000000", "-026-11-21T12:30:00", "+2026-11-21T12:30:00", "2026-11-21T1٢:30:00",
		"2026-11-21T12:30:0", "2026-1-21T12:30:00", "2026-11-21T12:30:00+030", "2026-11-21T12:30:00:00",
	} {
		got, err := ParseTime(in)
		check(t, err != nil && got.IsZero(), "%q: got %v, %v", in, got, err)
	}
}

//rule:introduction/timestamps-are-iso-8601-strings decisions/timestamps
func TestAppendTime_WritesTheLocalOffset(t *testing.T) {
	at := time.Date(2026, 11, 21, 22, 30, 0, 123_999_999, time.UTC)
	if got := string(AppendTime([]byte("x"), at)); got != "x2026-11-22T01:30:00.123+03:00" {
		t.Error(got)
	}
	if got := FormatTime(at.Truncate(time.Second)); got != "2026-11-22T01:30:00.000+03:00" {
		t.Error(got)
	}
}

func TestTimes_SurviveTheirText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Int64Range(946_684_800, 4_133_980_799-86_400).Draw(t, "seconds")
		at := time.Unix(seconds, rapid.Int64Range(0, 999).Draw(t, "ms")*int64(time.Millisecond))
		text := FormatTime(at)
		got, err := ParseTime(text)
		require(t, err == nil && got.Equal(at), "%s becomes %v, %v", text, got, err)
	})
}

// FuzzParseTime holds what is accepted to Go's own reading of it.
func FuzzParseTime(f *testing.F) {
	for _, seed := range []string{"2026-11-21T12:30:00+03:00", "2026-11-21T12:30", "2026-11-21T12:30:00.5Z", "2026-02-30T00:00:00+03"} {
		f.Add(seed)
	}

	layouts := []string{
		"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07", "2006-01-02T15:04:05",
		"2006-01-02T15:04Z07:00", "2006-01-02T15:04Z0700", "2006-01-02T15:04Z07", "2006-01-02T15:04",
	}

	f.Fuzz(func(t *testing.T, in string) {
		got, err := ParseTime(in)
		if err != nil {
			return
		}

		for _, layout := range layouts {
			if want, err := time.ParseInLocation(layout, in, Istanbul); err == nil {
				check(t, got.Equal(want), "%q: got %v, want %v", in, got, want)
				return
			}
		}

		t.Errorf("%q was accepted as %v", in, got)
	})
}

// Programs that do not know a time send 0001 or 9999; what becomes of it is each field's matter.
func TestParseTime_ReadsAnyYear(t *testing.T) {
	for in, want := range map[string]int64{
		"0001-01-01T00:00:00Z": -62135596800, "1970-01-01T00:00:00Z": 0, "1999-12-31T23:59:59Z": 946684799, "9999-12-31T23:59:59Z": 253402300799,
	} {
		got, err := ParseTime(in)
		check(t, err == nil && got.Unix() == want, "%s: got %v, %v", in, got, err)
	}

	for _, in := range []string{"", "now", "10000-01-01T00:00:00Z", "2026-02-30T00:00:00Z", "1795251600"} {
		_, err := ParseTime(in)
		check(t, err != nil, "%q is a time", in)
	}
}
