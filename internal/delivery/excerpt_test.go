package delivery

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestExcerpt_KeepsWhatCanBeRead(t *testing.T) {
	for _, c := range []struct {
		name, text string
		limit      int
		want       string
	}{
		{"short text", "Sipariş alınamadı", 20, "Sipariş alınamadı"},
		{"nothing", "", 5, ""},
		{"as long as it may be", "12345", 5, "12345"},
		{"longer", "123456", 5, "1234…"},
		{"white space only behind the limit", "12345 \r\n", 5, "12345"},
		{"lines", " a\r\n\r\n\tb ", 10, "a b"},
		{"a direction that turns", "a\u202eb", 10, "a b"},
		{"no UTF-8", "a\xff\xfeb\xc3", 10, "a b"},
		{"the sign for what is no UTF-8", "a\ufffdb", 10, "a\ufffdb"},
		{"signs of several bytes", "ğüşiöç", 4, "ğüş…"},
	} {
		got := Excerpt(c.text, c.limit)
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestForeign_CutsTheTextAndKeepsTheCause(t *testing.T) {
	if Foreign(nil) != nil {
		t.Error("no error became one")
	}

	cause := fmt.Errorf("%w: %s", ErrUnavailable, strings.Repeat("\xff\x00\r\nş", 10_000))
	err := Foreign(cause)
	text := err.Error()
	n := utf8.RuneCountInString(text)
	hidden := strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
	if n > MaxForeignError || hidden || !utf8.ValidString(text) {
		t.Errorf("%d characters: %q", n, err)
	}
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
}

func TestExcerpt_IsBoundedAndPrintableWhateverComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		text := strings.Repeat(piece.Draw(t, "piece"), rapid.IntRange(1, 50).Draw(t, "times"))
		limit := rapid.IntRange(1, 600).Draw(t, "limit")

		got := Excerpt(text, limit)

		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > limit {
			t.Fatalf("%d code points: %q", utf8.RuneCountInString(got), got)
		}
		if strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("not printable: %q", got)
		}
	})
}
