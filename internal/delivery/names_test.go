package delivery

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

//rule:order-status-delivery-state/courier.name delivery-rules/6 webhooks/courier-surnames-are-abbreviated-in decisions/courier-s-name
func TestAbbreviateName_LeavesTheSurnamesInitial(t *testing.T) {
	for full, want := range map[string]string{
		"":                         "",
		"   ":                      "",
		"Mehmet":                   "Mehmet",
		"  Mehmet  ":               "Mehmet",
		"Mehmet Yılmaz":            "Mehmet Y.",
		"Mehmet  Yılmaz":           "Mehmet Y.",
		"Mehmet YILMAZ.":           "Mehmet Y.",
		"Ayşe Fatma Öztürk":        "Ayşe Ö.",
		"Ayşe Yılmaz Demir":        "Ayşe D.",
		" Ayşe\t Fatma \n Öztürk ": "Ayşe Ö.",
		"Ali inan":                 "Ali İ.",
		"Ali ışık":                 "Ali I.",
		"Ali İnan":                 "Ali İ.",
		"Ayşe şahin":               "Ayşe Ş.",
		"Ayse O\u0308ztu\u0308rk":  "Ayse O\u0308.",
		"Mehmet Y.":                "Mehmet Y.",
		"M. Y.":                    "M. Y.",
		"M. Ali Yılmaz":            "M. Y.",
		"Ali (Veli)":               "Ali V.",
		"Ali 'O":                   "Ali O.",
		"Ali O'Neil":               "Ali N.",
		"Jean Saint-Exupéry":       "Jean E.",
		"Ali Demir-Yılmaz":         "Ali Y.",
		"Kurye 12":                 "Kurye",
		"Kurye …":                  "Kurye",
		"Ali \xff\xfe":             "Ali",
		"Наталья Петрова":          "Наталья П.",
		"محمد یلماز":               "محمد ی.",
		"王 小明":                     "王. 小.",
		"Mehmet\u00a0Yılmaz":       "Mehmet Y.",
		"Mehmet\u200bYılmaz":       "Mehmet Y.",
		"Mehmet\u202eYılmaz":       "Mehmet Y.",
		"Ali \U0001F600":           "Ali",
		"\U0001F600":               "",
		"0532 123 45 67":           "",

		"Mehmet Yılmaz (2)":               "Mehmet Y.",
		"Mehmet Yılmaz 2":                 "Mehmet Y.",
		"Ayşe Demir - Moto":               "Ayşe D.",
		"Ayşe Demir-Moto":                 "Ayşe M.",
		"Ayşe Demir / Moto / Kadıköy":     "Ayşe D.",
		"Ali Veli Kaya 05321234567":       "Ali K.",
		"05321234567 Ali Veli Kaya":       "Ali K.",
		"Mehmet Yılmaz 🛵":                 "Mehmet Y.",
		"🛵 Mehmet Yılmaz 🛵":               "Mehmet Y.",
		"(Moto) Ayşe Demir":               "Ayşe D.",
		"34 ABC 123 Mehmet Yılmaz":        "Mehmet Y.",
		"[Kadıköy] Mehmet Yılmaz [gece]":  "Mehmet Y.",
		"Mehmet2 Yılmaz3":                 "Mehmet Y.",
		"mehmet.yilmaz@kurye.example":     "mehmet Y.",
		"mehmet_yilmaz":                   "mehmet Y.",
		"Demir, Ayşe":                     "Ayşe D.",
		"DEMİR,AYŞE":                      "AYŞE D.",
		"Yılmaz Demir, Ayşe Nur":          "Ayşe D.",
		"Mehmet Yılmaz,":                  "Mehmet Y.",
		", Mehmet Yılmaz":                 "Mehmet Y.",
		"Av. Mehmet Yılmaz":               "Mehmet Y.",
		"Prof. Dr. Ayşe Demir":            "Ayşe D.",
		"Kurye Mehmet Yılmaz":             "Mehmet Y.",
		"Dr. Yılmaz":                      "Y.",
		"Ahmet Bey":                       "Ahmet",
		"SAYIN Ahmet Bey":                 "A.",
		"Kurye":                           "Kurye",
		"Mehmet\u0301\u0302 Yılmaz\u0301": "Mehmet\u0301\u0302 Y.",
	} {
		got := AbbreviateName(full)
		check(t, got == want, "%q: got %q, want %q", full, got, want)
	}
}

// Whatever stands around the words of a name, at most the first run of letters that leaves has more than
// one, and no digit leaves.
func TestAbbreviateName_HidesAnySurname(t *testing.T) {
	word := rapid.StringMatching(`[A-ZÇĞİÖŞÜЀ-Яא-ת][a-zçğıöşüЀ-Яא-ת]{1,12}`)
	other := rapid.SampledFrom([]string{" ", "  ", ".", " - ", "-", "'", "’", " (", ") ", "/", "_", ", ", "0532 123 45 67", "5", "🛵", "\u200b", "\u200d",
		"\u202e", "\u00a0", "\t", "…", "·", "•", "|", "\u0301", "\xff", "②", "٣", "Dr. ", "Av.", " Bey", "M."})
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.OneOf(word, other), 0, 9).Draw(t, "parts")
		full := strings.Join(parts, "")

		short := AbbreviateName(full)

		require(t, AbbreviateName(short) == short, "%q becomes %q, and that %q", full, short, AbbreviateName(short))
		require(t, !strings.ContainsFunc(short, unicode.IsNumber) && utf8.ValidString(short), "%q becomes %q", full, short)
		runs := strings.FieldsFunc(short, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) })
		for i, run := range runs {
			letters := utf8.RuneCountInString(strings.Map(func(r rune) rune {
				if unicode.IsMark(r) {
					return -1
				}
				return r
			}, run))
			require(t, i < 2 && (i == 0 || letters == 1), "%q becomes %q", full, short)
		}
	})
}

// The surname of a name as it is usually written never leaves, with whatever fleets write around it.
func TestAbbreviateName_HidesTheSurnameBesideRemarks(t *testing.T) {
	name := rapid.StringMatching(`[A-ZÇĞİÖŞÜ][a-zçğıöşü]{2,12}`)
	before := rapid.SampledFrom([]string{"", " ", "🛵 ", "(", "Av. ", "Dr ", "05321234567 ", "[2] ", "- ", "Moto ", "\u200e"})
	behind := rapid.SampledFrom([]string{"", " ", ".", ",", " (2)", " - Moto", " 05321234567", " 🛵", "/Kadıköy", " Moto", "*", "\u202c", " Jr."})
	rapid.Check(t, func(t *rapid.T) {
		given, surname := name.Draw(t, "given"), "Q"+name.Draw(t, "surname")
		for _, written := range []string{given + " " + surname, surname + ", " + given} {
			full := before.Draw(t, "before") + written + behind.Draw(t, "behind")
			short := AbbreviateName(full)
			require(t, !strings.Contains(short, surname) && !strings.Contains(short, surname[:3]), "%q becomes %q", full, short)
		}
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
