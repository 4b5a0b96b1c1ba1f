package delivery

import (
	"slices"
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
		"Ayşe Demir-Moto":                 "Ayşe D.",
		"Ayşe Demir / Moto / Kadıköy":     "A. D.",
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
		"Yılmaz Demir, Ayşe Nur":          "Y. D.", // two words before a comma are a name, so that "Mehmet Yılmaz, Ali Demir" is Mehmet
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

// Fleets' files and phones write surnames first, labels, remarks and titles beside a name.
//
//rule:order-status-delivery-state/courier.name delivery-rules/6 decisions/courier-s-name
func TestAbbreviateName_ReadsWhatFleetsWrite(t *testing.T) {
	for full, want := range map[string]string{
		"Yılmaz, Mehmet":        "Mehmet Y.",
		"Yılmaz; Mehmet":        "Mehmet Y.",
		"Yılmaz，Mehmet":         "Mehmet Y.",
		"Yılmaz、Mehmet":         "Mehmet Y.",
		"Yılmaz، Mehmet":        "Mehmet Y.",
		"Yılmaz / Mehmet":       "Mehmet Y.",
		"Yılmaz | Mehmet":       "Mehmet Y.",
		"Yılmaz, Mehmet Ali":    "Mehmet Y.",
		"Yılmaz, Mehmet, Jr.":   "Mehmet Y.",
		"Dr. Yılmaz, Mehmet":    "Mehmet Y.",
		"Dr., Yılmaz":           "Y.",
		"Yılmaz, Dr. Mehmet":    "Mehmet Y.",
		"Yılmaz-Demir, Ayşe":    "Ayşe D.",
		"O'Neil, Ali":           "Ali N.",
		"Demir, AYŞE":           "AYŞE D.",
		"(2) Yılmaz, Mehmet":    "Mehmet Y.",
		"Yılmaz, (Moto) Mehmet": "Mehmet Y.",

		"Mehmet Yılmaz, Jr.":                "Mehmet Y.",
		"Mehmet Yılmaz: Moto":               "Mehmet Y.",
		"Mehmet Yılmaz, Kadıköy":            "M. Y.",
		"Mehmet Yılmaz, 34 ABC 123":         "M. Y.",
		"Mehmet Yılmaz, Ali Demir":          "M. Y.",
		"Mehmet Yılmaz, Dr.":                "Mehmet Y.",
		"Ayşe Kaya, Moto Kurye":             "Ayşe K.",
		"Ayşe Kaya; Kadıköy / Moda, gece":   "A. K.",
		"05321234567, Ayşe Kaya":            "Ayşe K.",
		"Yılmaz, Jr.":                       "Y.",
		"Mehmet, 2":                         "Mehmet",
		"Mehmet Yılmaz, Hızlı Kurye - Moto": "M. Y.",

		"YILMAZ Mehmet":       "Y. M.",
		"YILDIZ ışıl":         "Y. I.",
		"İNAN Işık":           "İ. I.",
		"IŞIK İnan":           "I. İ.",
		"YILMAZ Mehmet Ali":   "Y. A.",
		"YILMAZ DEMİR Mehmet": "Y. M.",
		"YILMAZ M. Ali":       "Y. A.",
		"DR. YILMAZ Mehmet":   "Y. M.",
		"KADIKÖY Ayşe Kaya":   "K. K.",
		"MEHMET YILMAZ":       "MEHMET Y.",
		"MEHMET Y.":           "MEHMET Y.",
		"AB ß.":               "AB ß.",
		"M. Yılmaz":           "M. Y.",
		"M Yılmaz":            "M. Y.",
		"Mehmet YILMAZ":       "Mehmet Y.",
		"J.R. Yılmaz":         "J. Y.",

		"Soyadı: Yılmaz Adı: Mehmet":     "Mehmet",
		"Soyadı: Yılmaz, Adı: Mehmet":    "Mehmet",
		"Adı: Mehmet Soyadı: Yılmaz":     "Y.",
		"SOYADI: YILMAZ":                 "Y.",
		"Soyadı: Yılmaz Demir":           "D.",
		"Last name: Yılmaz":              "Y.",
		"Adı Soyadı: Mehmet Yılmaz":      "Mehmet Y.",
		"Ad-Soyad： Mehmet Yılmaz":        "Mehmet Y.",
		"Adı Soyadı: Yılmaz, Mehmet":     "Mehmet Y.",
		"Kurye No 5: Ayşe Kaya":          "Ayşe K.",
		"Kurye: Ayşe Kaya :)":            "Ayşe K.",
		"Mehmet Yılmaz Tel: 05321234567": "Mehmet T.",
		"09:00 Mehmet Yılmaz":            "Mehmet Y.",
		"Ayşe Kaya (vardiya: gece)":      "Ayşe K.",

		"Moto Kurye Ayşe Kaya":                "Ayşe K.",
		"MOTO KURYE Ayşe Kaya":                "Ayşe K.",
		"Motokurye Ayşe Kaya":                 "Ayşe K.",
		"Ayşe Kaya Moto Kurye":                "Ayşe K.",
		"Ayşe Moto Kaya":                      "Ayşe K.",
		"🛵 Moto Kurye 🛵 Ayşe Kaya":            "Ayşe K.",
		"Courier Ayşe Kaya Sr.":               "Ayşe K.",
		"Bay Mehmet Yılmaz":                   "Mehmet Y.",
		"BAYAN Ayşe Kaya":                     "Ayşe K.",
		"Ayşe Kaya PhD":                       "Ayşe K.",
		"Dr. Öğr. Üyesi Ayşe Kaya":            "Ayşe K.",
		"Dr.Öğr.Üyesi Ayşe Kaya":              "Ayşe K.",
		"O\u0308g\u0306r. Üyesi Ayşe Kaya":    "Ayşe K.",
		"ARŞ. GÖR. AYŞE KAYA":                 "AYŞE K.",
		"Moto Kurye":                          "Moto",
		"Moto Kurye 12":                       "Moto",
		"(Kadıköy Şube) Ayşe Kaya":            "Ayşe K.",
		"Ayşe Kaya (Kadıköy Şube)":            "Ayşe K.",
		"Kadıköy (Moda (2) Şube) Ayşe Kaya":   "Ayşe K.",
		"Mehmet(Ali)Yılmaz":                   "Mehmet Y.",
		"(Mehmet Yılmaz)":                     "Mehmet Y.",
		"Ayşe Kaya (gece":                     "Ayşe K.",
		"【Kadıköy Şube】 Ayşe Kaya":            "Ayşe K.",
		"Hızlı Kurye - Ayşe Kaya":             "Ayşe K.",
		"Hızlı Kurye – Ayşe Kaya":             "Ayşe K.",
		"Hızlı Kurye\u00a0—\u2003Ayşe Kaya":   "Ayşe K.",
		"Hızlı Teslimat - Kaya, Ayşe":         "Ayşe K.",
		"Kadıköy - Ayşe Kaya - Moto":          "Ayşe K.",
		"Ayşe Kaya - Moto Kurye":              "Ayşe K.",
		"Ayşe Kaya – Kadıköy":                 "Ayşe K.",
		"Kadıköy - Ayşe":                      "Kadıköy A.",
		"Ayşe Demir–Yılmaz":                   "Ayşe Y.",
		"Mehmet Ali Yılmaz-Demir Motokurye 7": "Mehmet D.",
	} {
		got := AbbreviateName(full)
		check(t, got == want, "%q: got %q, want %q", full, got, want)
		check(t, AbbreviateName(got) == got, "%q becomes %q, and that %q", full, got, AbbreviateName(got))
	}
}

// In a courier's name, what nobody sees separates words as a blank does, so that no surname is glued to
// the given name.
func TestCourierName_IsSplitWhereNobodySees(t *testing.T) {
	for name, marks := range unseen {
		for _, mark := range marks + "\u2800" {
			written := "Mehmet" + string(mark) + "Yılmaz"
			var f Faults
			kept := f.CourierName("name", text(written), 2, 10+len(written))
			check(t, kept == "Mehmet Yılmaz" && f.Err() == nil, "%s: %+q is kept as %+q, %v", name, written, kept, f.Err())
			check(t, AbbreviateName(written) == "Mehmet Y.", "%s: %+q becomes %q", name, written, AbbreviateName(written))
		}
	}

	var f Faults
	f.CourierName("name", text("\u200eA\u200e"), 2, 10)
	f.CourierName("other", text("\u200eAy\x00şe"), 2, 10)
	f.CourierName("last", text("Ali\xff"), 2, 10)
	checkRefusal(t, "names", f.Err(), CodeValidationFailed, "name,other,last")
	check(t, f.fields[0].Message == "must have 2 to 10 characters that can be seen", "%+v", f.fields[0])
	check(t, f.fields[1].Message == "must not contain control characters; character 4 is U+0000", "%+v", f.fields[1])
	check(t, f.fields[2].Message == "must be valid UTF-8", "%+v", f.fields[2])
}

// Whatever is written, what leaves is one of its words and one initial at most.
func TestAbbreviateName_LeavesOneWordAndAnInitial(t *testing.T) {
	likeNames := rapid.StringOf(rapid.RuneFrom([]rune("AaİıŞşßǅ王ی\u0301.,;:/-–()'  \u200b\u3164\u200d5🛵\xff")))
	rapid.Check(t, func(t *rapid.T) {
		full := rapid.OneOf(likeNames, rapid.String()).Draw(t, "name")

		short := AbbreviateName(full)

		require(t, AbbreviateName(short) == short, "%q becomes %q, and that %q", full, short, AbbreviateName(short))
		words := strings.Split(short, " ")
		isPartOfName := func(r rune) bool { return (unicode.IsLetter(r) || unicode.IsMark(r)) && !isInvisible(r) }
		written := strings.FieldsFunc(full, func(r rune) bool { return !isPartOfName(r) })
		given := strings.TrimSuffix(words[0], ".")
		hasGiven := short == "" || slices.Contains(written, given) || words[0] == initial(given)
		require(t, hasGiven && len(words) <= 2, "%q becomes %q", full, short)
		require(t, len(words) == 1 || words[1] == initial(words[1]), "%q becomes %q", full, short)
	})
}

// Whatever stands around the words of a name, at most the first run of letters that leaves has more than
// one, and no digit leaves.
func TestAbbreviateName_HidesAnySurname(t *testing.T) {
	word := rapid.StringMatching(`[A-ZÇĞİÖŞÜЀ-Яא-ת][a-zçğıöşüЀ-Яא-ת]{1,12}`)
	other := rapid.SampledFrom([]string{" ", "  ", ".", " - ", "-", "'", "’", " (", ") ", "/", "_", ", ", "0532 123 45 67", "5", "🛵", "\u200b", "\u200d",
		"\u202e", "\u00a0", "\t", "…", "·", "•", "|", ":", ": ", ";", "；", "، ", "、", " / ", " – ", "—", "[", "]", "\u3164", "\u00ad", "\ufffc", "\U00013441", "Jr.", "Moto ", "\u0301", "\xff", "②", "٣", "Dr. ", "Av.", " Bey", "M."})
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
	name := rapid.StringMatching(`[A-ZÇĞİÖŞÜ][a-zçğıöşü]{2,12}`).Filter(isNoWordOfFleets)
	before := rapid.SampledFrom([]string{"", " ", "🛵 ", "(", "Av. ", "Dr ", "05321234567 ", "[2] ", "Moto Kurye ", "(Kadıköy Şube) ", "Kurye No 5: ", "Bay ", "- ", "Moto ", "\u200e"})
	behind := rapid.SampledFrom([]string{"", " ", ".", ",", " (2)", " - Moto", " (Kadıköy Şube)", " – Moto Kurye", ", Jr.", ", 34 ABC 123", "; gece", " 05321234567", " 🛵", "/Kadıköy", " Moto", "*", "\u202c", " Jr."})
	rapid.Check(t, func(t *rapid.T) {
		given, surname := name.Draw(t, "given"), "Q"+name.Draw(t, "surname")
		capitals := strings.ToUpperSpecial(unicode.TurkishCase, surname)
		for _, written := range []string{
			given + " " + surname, surname + ", " + given, surname + "; " + given, surname + " / " + given, capitals + " " + given,
			"Adı Soyadı: " + given + " " + surname, "Soyadı: " + surname + " Adı: " + given, "Adı: " + given + ", Soyadı: " + surname,
			"Hızlı Kurye - " + given + " " + surname, given + " " + surname + ", Kadıköy", given + "\u200b" + surname, given + "\u3164" + surname,
		} {
			full := before.Draw(t, "before") + written + behind.Draw(t, "behind")
			short := AbbreviateName(full)
			require(t, !strings.Contains(short, surname[:3]) && !strings.Contains(short, capitals[:3]), "%q becomes %q", full, short)
		}
	})
}

// isNoWordOfFleets reports that a word is a name: neither a title nor a word of a label.
func isNoWordOfFleets(word string) bool {
	folded := foldWord(word)
	return !titles[folded] && !surnameLabels[folded] && !givenLabels[folded]
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
