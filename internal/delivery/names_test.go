package delivery

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

//rule:order-status-delivery-state/courier.name delivery-rules/6 webhooks/courier-surnames-are-abbreviated-in
func TestAbbreviateName_LeavesTheSurnamesInitial(t *testing.T) {
	for full, want := range map[string]string{
		"":                         "",
		"   ":                      "",
		"Mehmet":                   "Mehmet",
		"  Mehmet  ":               "Mehmet",
		"Mehmet Yılmaz":            "Mehmet Y.",
		"Ayşe Fatma Öztürk":        "Ayşe Fatma Ö.",
		" Ayşe\t Fatma \n Öztürk ": "Ayşe Fatma Ö.",
		"Ali inan":                 "Ali İ.",
		"Ali ışık":                 "Ali I.",
		"Ali İnan":                 "Ali İ.",
		"Ayşe şahin":               "Ayşe Ş.",
		"Ayse O\u0308ztu\u0308rk":  "Ayse O\u0308.",
		"Mehmet Y.":                "Mehmet Y.",
		"Ali (Veli)":               "Ali V.",
		"Ali 'O":                   "Ali O.",
		"Kurye 12":                 "Kurye 1.",
		"Kurye …":                  "Kurye ….",
		"Jean Saint-Exupéry":       "Jean S.",
		"Ali \xff\xfe":             "Ali \ufffd.",
		"Наталья Петрова":          "Наталья П.",
		"Mehmet\u00a0Yılmaz":       "Mehmet Y.",
		"Ali \U0001F600":           "Ali \U0001F600.",
		"Ali Veli Kırk Dokuz Elli": "Ali Veli Kırk Dokuz E.",
	} {
		got := AbbreviateName(full)
		check(t, got == want, "%q: got %q, want %q", full, got, want)
	}
}

func TestAbbreviateName_HidesAnySurname(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		full := rapid.StringMatching(`[a-zçğıöşü A-ZÇĞİÖŞÜ]{0,40}`).Draw(t, "name")
		words, short := strings.Fields(full), AbbreviateName(full)
		require(t, AbbreviateName(short) == short, "%q becomes %q, and that %q", full, short, AbbreviateName(short))
		if len(words) < 2 {
			return
		}
		given, surname := strings.Join(words[:len(words)-1], " "), strings.TrimPrefix(short, strings.Join(words[:len(words)-1], " ")+" ")
		require(t, strings.HasPrefix(short, given+" ") && utf8.RuneCountInString(surname) == 2 && strings.HasSuffix(surname, "."), "%q becomes %q", full, short)
	})
}

func TestFoldName_TurkishAndEnglishAreAlike(t *testing.T) {
	for _, alike := range [][]string{
		{"istanbul", "İstanbul", "ISTANBUL", "İSTANBUL", "ıstanbul", strings.ToLower("İSTANBUL"), "I\u0307STANBUL"},
		{"isirgan", "ısırgan", "ISIRGAN", "Isırgan"},
		{"isparta şubesi", "ISPARTA ŞUBESİ", "ısparta şubesi", "Isparta Şubesi", "İSPARTA ŞUBESI"},
		{"çğöşü", "ÇĞÖŞÜ"},
		{"s-1", "S-1"},
		{"", "\u0307"},
		{"a\ufffdb", "A\xffB"},
	} {
		for _, name := range alike {
			got := FoldName(name)
			check(t, got == alike[0], "%q: got %q, want %q", name, got, alike[0])
		}
	}
	check(t, FoldName("şube") != FoldName("sube"), "letters are taken for others")
}

func TestFoldName_IsIdempotentAndKnowsNoCase(t *testing.T) {
	turkish := rapid.StringOf(rapid.RuneFrom([]rune("abcçdefgğhıijklmnoöprsştuüvyzABCÇDEFGĞHIİJKLMNOÖPRSŞTUÜVYZ -0189\u0307")))
	rapid.Check(t, func(t *rapid.T) {
		anything := rapid.OneOf(rapid.String(), turkish, rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "name")
		once := FoldName(anything)
		require(t, FoldName(once) == once && utf8.ValidString(once), "%q becomes %q, and that %q", anything, once, FoldName(once))
		name := turkish.Draw(t, "Turkish name")
		for _, other := range []string{
			strings.ToUpper(name), strings.ToLower(name),
			strings.ToUpperSpecial(unicode.TurkishCase, name), strings.ToLowerSpecial(unicode.TurkishCase, name),
		} {
			require(t, FoldName(other) == FoldName(name), "%q and %q differ", name, other)
		}
	})
}
