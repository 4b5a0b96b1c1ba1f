package delivery

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// unseen are code points that print nothing, one of each kind.
var unseen = map[string]string{
	"soft hyphen": "\u00ad", "grapheme joiner": "\u034f", "Arabic letter mark": "\u061c",
	"Hangul fillers": "\u115f\u1160\u3164\uffa0", "Khmer vowels": "\u17b4\u17b5", "Mongolian selectors": "\u180b\u180c\u180d\u180f",
	"Mongolian separator": "\u180e", "zero width space": "\u200b", "joiners": "\u200c\u200d", "marks of direction": "\u200e\u200f",
	"embeddings": "\u202a\u202b\u202c", "overrides": "\u202d\u202e", "word joiner": "\u2060", "operators": "\u2061\u2062\u2063\u2064",
	"reserved": "\u2065", "isolates": "\u2066\u2067\u2068\u2069", "deprecated": "\u206a\u206b\u206c\u206d\u206e\u206f",
	"selectors": "\ufe00\ufe0d\ufe0e\ufe0f", "byte order mark": "\ufeff", "reserved specials": "\ufff0", "annotations": "\ufff9\ufffa\ufffb",
	"object": "\ufffc", "shorthand": "\U0001bca0", "music": "\U0001d159\U0001d173\U0001d17a", "tags": "\U000e0001\U000e0041\U000e007f",
	"more selectors": "\U000e0100\U000e01ef", "reserved of plane 14": "\U000e0fff",
	"blanks of hieroglyphs": "\U00013441\U00013442",
}

// Invisible code points in a phone number are taken away, wherever they stand.
//
//rule:order-creation-request/recipient.phone decisions/phone
func TestNormalizePhone_StripsWhatNobodySees(t *testing.T) {
	unseenInPhones := map[string]string{"separators": "\u2028\u2029", "blanks around": ""}
	for name, marks := range unseen {
		unseenInPhones[name] = marks
	}

	for name, marks := range unseenInPhones {
		for _, phone := range []string{
			marks + "+905321234567" + marks, "\u00a0" + marks + " 05321234567\u3000" + marks, "+" + marks + "90" + marks + "532123" + marks + "4567",
			"5321234567" + marks + "\t",
		} {
			got, err := NormalizePhone(phone)
			check(t, err == nil && got == "5321234567", "%s: %+q: got %q, %v", name, phone, got, err)
		}
	}
}

// What may stand for a digit is refused, and named unless everybody sees it.
//
//rule:order-creation-request/recipient.phone errors/INVALID_PHONE
func TestNormalizePhone_NamesWhatIsNoDigit(t *testing.T) {
	for phone, named := range map[string]string{
		"532123456\u0660":       "; character 10 is U+0660",
		"５321234567":            "; character 1 is U+FF15",
		"\u202a＋905321234567":   "; character 2 is U+FF0B",
		"532\u00a01234567":      "; character 4 is U+00A0",
		"532\u20101234567":      "; character 4 is U+2010",
		"532123456\x00":         "; character 10 is U+0000",
		"532 1234567":           "",
		"532-1234567":           "",
		"\u200e532123456\u200e": "",
		"532123456\U0001d7ce":   "; character 10 is U+1D7CE",
		"\u06005321234567":      "; character 1 is U+0600",
		"5321234567\u0301":      "; character 11 is U+0301",
		"532123456l":            "",

		"\u200e\u200e\u200e0532\u00a01234567":  "; character 8 is U+00A0",
		"5\ufe0f\u20e33":                       "; character 3 is U+20E3",
		" \u200e\u00a0532\u2028\u20101234567 ": "; character 8 is U+2010",
		"\u200b\u200b\u200b":                   "",
	} {
		_, err := NormalizePhone(phone)
		check(t, err != nil && err.Error() == errPhone.Error()+named, "%+q: %v", phone, err)
	}
}

// What nobody sees counts for no text's least length; what is kept does not have it.
//
//rule:order-creation-request/recipient.name order-creation-request/dropoff.text errors/INVALID_RECIPIENT errors/INVALID_ADDRESS decisions/lengths
func TestOrderRequest_CountsWhatCanBeSeen(t *testing.T) {
	for name, marks := range unseen {
		marks := strings.Repeat(marks, 10)
		r := validOrder()
		r.RecipientName, r.DropoffText = text("A"+marks), text(marks+"Bağdat"+marks)
		_, err := r.Check(new(Faults), noon)
		checkRefusal(t, name, err, CodeInvalidRecipient, "recipient.name,dropoff.text")

		r.RecipientName, r.DropoffText = text(marks), text(marks+" \u2800 "+marks)
		_, err = r.Check(new(Faults), noon)
		checkRefusal(t, name, err, CodeInvalidRecipient, "recipient.name,dropoff.text")

		r.RecipientName, r.DropoffText = text(marks+"Ay"+marks+"şe"), text("Bağdat"+marks+" Cad. "+marks)
		r.PackageNote, r.DropoffNote = text(marks), text("zil"+marks)
		got, err := r.Check(new(Faults), noon)
		wantName := "Ayşe"
		if strings.ContainsFunc(marks, looksBlank) {
			wantName = "Ay şe"
		}

		check(t, err == nil && got.Recipient.Name == wantName && got.Dropoff.Text == "Bağdat Cad." && got.PackageNote == "" && got.Dropoff.Note == "zil",
			"%s: %+v, %v", name, got, err)
	}

	for name, address := range map[string]string{"blanks": "1         2", "marks over a letter": "a" + strings.Repeat("\u0301", 20), "no-break spaces": "1" + strings.Repeat("\u00a0", 20) + "2"} {
		r := validOrder()
		r.DropoffText = text(address)
		_, err := r.Check(new(Faults), noon)
		checkRefusal(t, name, err, CodeInvalidAddress, "dropoff.text")
	}
}

// Texts of stores, of cancellations and lines are read alike.
func TestTexts_AreVisibleEverywhere(t *testing.T) {
	const hidden = "\u202e\u200b\u3164"
	store := validStore()
	store.Name, store.AddressText = text(hidden), text(hidden+"\u2066")
	_, err := store.Check(new(Faults), nil)
	checkRefusal(t, "a store", err, CodeValidationFailed, "name,address.text")
	check(t, strings.Contains(err.Error(), "must have 1 to 200 characters that can be seen"), "%v", err)

	store.Name, store.AddressText, store.TaxNumber = text(hidden+"Kebapçı"), text("Moda"+hidden), text("\u202a1234567890\u202c")
	got, err := store.Check(new(Faults), nil)
	check(t, err == nil && got.Name == "Kebapçı" && got.Address == "Moda" && got.TaxNumber == "1234567890", "%+v, %v", got, err)

	cancel := CancelRequest{Note: text(hidden + "vazgeçti" + hidden)}
	_, note, err := cancel.Check(new(Faults))
	check(t, err == nil && note == "vazgeçti", "%q, %v", note, err)

	var f Faults
	line := f.Line("name", text(" "+hidden+"Ali "+hidden+" "), true, 2, 10)
	check(t, line == "Ali" && f.Err() == nil, "%q, %v", line, f.Err())
	f.Line("name", text(hidden), true, 2, 10)
	checkRefusal(t, "a line", f.Err(), CodeValidationFailed, "name")
}

// What changes how others look stays: emoji, flags, and letters of scripts that join.
func TestVisible_KeepsWhatHasAMeaning(t *testing.T) {
	for name, kept := range map[string]string{
		"a family":           "👨\u200d👩\u200d👧 kapıda",
		"a profession":       "👩🏽\u200d⚕\ufe0f",
		"a flag in parts":    "🏳\ufe0f\u200d🌈",
		"an eye in a bubble": "👁\ufe0f\u200d🗨\ufe0f",
		"a heart":            "teşekkürler ❤\ufe0f",
		"a sign as text":     "☎\ufe0e 2",
		"a keycap":           "kat 3\ufe0f\u20e3",
		"a copyright sign":   "©\ufe0f",
		"an exclamation":     "!\u203c\ufe0f",
		"Scotland":           "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f!",
		"Persian":            "می\u200cخواهم",
		"Arabic, joined":     "ه\u200dم",
		"Persian with marks": "مِ\u200cخ",
		"Hindi":              "क्\u200dष क्\u200cष",
		"an ideograph":       "葛\U000e0100城",
		"Mongolian":          "ᠠ\u180bᠨ",
		"a number sign":      "\u0600١",
		"Turkish":            "Ağaç, İğne ıslık",
		"line breaks":        "zil bozuk\n\tara\r\nsonra",
		"no blank in a row":  "a  b",
		"a lost half":        "\ufffd",
	} {
		got := Visible(kept)
		check(t, got == kept, "%s: %+q becomes %+q", name, kept, got)
	}

	for given, want := range map[string]string{
		"Ali\u200dVeli":                       "AliVeli",
		"\u200dمی\u200d":                      "می",
		"می\u200c\u200cخ":                     "می\u200cخ",
		"❤\ufe0f\ufe0f\ufe0f":                 "❤\ufe0f",
		"a\ufe0f 1\ufe0f":                     "a 1",
		"🏴\U000e0067\U000e0062":               "🏴",
		"🏴" + strings.Repeat("\U000e0061", 9): "🏴",
		"a\U000e0068\U000e0069":               "a",
		"Kat 5\u2028Daire 3":                  "Kat 5\nDaire 3",
		"\u202eterse\u202c":                   "terse",
		" \u2800x\u00a0\u200e":                "x",
		"Bağdat\u200bCad.\u2800No\u31641":     "Bağdat Cad. No 1",
		"\u180ea\u115fb\u1160c\uffa0":         "a b c",
		"a\U00013441b\U00013442":              "a b",
	} {
		got := Visible(given)
		check(t, got == want, "%+q: got %+q, want %+q", given, got, want)
	}
}

func TestVisible_IsIdempotentAndHidesNothing(t *testing.T) {
	runes := []rune("aşЖمक葛👨🏴❤1#\ufe0f\u200d\u200c\u200e\u202e\u00ad\u0301\u094d\U000e0067\U000e007f\U000e0100\u20e3 \u2800\n\u2028\u180b\u200b\u3164\u180e\U00013441")
	rapid.Check(t, func(t *rapid.T) {
		given := rapid.OneOf(rapid.StringOf(rapid.RuneFrom(runes)), rapid.String()).Draw(t, "text")

		got := Visible(given)

		require(t, Visible(got) == got && utf8.ValidString(got), "%+q becomes %+q, and that %+q", given, got, Visible(got))
		require(t, !strings.ContainsFunc(got, func(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }), "%+q becomes %+q", given, got)
		seen := func(s string) string {
			return strings.Map(func(r rune) rune {
				if isInvisible(r) || isBlank(r) {
					return -1
				}
				return r
			}, s)
		}

		require(t, seen(given) == seen(got), "%+q becomes %+q", given, got)
	})
}

// A control character is named with its place, which is the one in the text as it was sent.
func TestTexts_NameControlCharacters(t *testing.T) {
	for given, want := range map[string]string{
		"Ayşe\u0007":             "recipient.name must not contain control characters; character 5 is U+0007",
		"  Ay\x00şe":             "recipient.name must not contain control characters; character 5 is U+0000",
		"\u200eAy\u0085şe":       "recipient.name must not contain control characters; character 4 is U+0085",
		"Ay\rşe":                 "recipient.name must not contain control characters; character 3 is U+000D",
		"a\x1b[31mkırmızı\x1b[m": "recipient.name must not contain control characters; character 2 is U+001B",
		"Ay\x7fşe":               "recipient.name must not contain control characters; character 3 is U+007F",
	} {
		r := validOrder()
		r.RecipientName = text(given)
		_, err := r.Check(new(Faults), noon)
		check(t, err != nil && err.(*Error).Message == want, "%+q: %v", given, err)
	}

	for given, want := range map[string]string{
		"a\nb":      "name must not contain control characters; character 2 is U+000A",
		"a\tb":      "name must not contain control characters; character 2 is U+0009",
		"ab\u2028c": "name must not contain control characters; character 3 is U+2028",
	} {
		var f Faults
		f.Line("name", text(given), true, 1, 10)
		check(t, f.Err() != nil && f.Err().(*Error).Message == want, "%+q: %v", given, f.Err())
	}
}

// An id is kept as it is, or refused with what is wrong with it.
//
//rule:order-creation-request/externalOrderId order-creation-request/externalStoreId decisions/ids
func TestIDs_AreKeptOrRefused(t *testing.T) {
	for _, id := range []string{"A-1", "a b", "a  b", "şube-1", "Å", "注文", "=1", `"A"`, "🍕", "a\u00a0b", chars(64), "ṩ"} {
		r := validOrder()
		r.ExternalOrderID, r.ExternalStoreID = text(id), text(id)
		got, err := r.Check(new(Faults), noon)
		check(t, err == nil && got.ExternalOrderID == id && got.ExternalStoreID == id, "%+q: %+q, %v", id, got.ExternalOrderID, err)
	}

	refused := map[string]string{
		"":                   "must have 1 to 64 characters",
		chars(65):            "must have 1 to 64 characters",
		"A-1 ":               "must not begin or end with white space; character 4 is U+0020",
		" A-1":               "must not begin or end with white space; character 1 is U+0020",
		"A-1\u00a0":          "must not begin or end with white space; character 4 is U+00A0",
		"\u3000":             "must not begin or end with white space; character 1 is U+3000",
		"\u2800A":            "must not begin or end with white space; character 1 is U+2800",
		"A\n1":               "must not contain control characters; character 2 is U+000A",
		"\tA1":               "must not contain control characters; character 1 is U+0009",
		"A1\x00":             "must not contain control characters; character 3 is U+0000",
		"A\u20281":           "must not contain control characters; character 2 is U+2028",
		"s\u0327ube":         "must be composed (NFC of Unicode); from there on it is not: character 1 is U+0073",
		"A-s\u0327":          "must be composed (NFC of Unicode); from there on it is not: character 3 is U+0073",
		"\u212b":             "must be composed (NFC of Unicode); from there on it is not: character 1 is U+212B",
		"\u1112\u1161\u11ab": "must be composed (NFC of Unicode); from there on it is not: character 1 is U+1112",
		"\xff":               "must be valid UTF-8",
	}

	for _, marks := range unseen {
		for _, mark := range marks {
			refused["A"+string(mark)+"1"] = "must not contain invisible characters; character 2 is " + strings.TrimPrefix(at(string(mark), 0), "character 1 is ")
		}
	}

	for id, want := range refused {
		r := validOrder()
		r.ExternalOrderID, r.ExternalStoreID = text(id), text(id)
		_, err := r.Check(new(Faults), noon)
		checkRefusal(t, id, err, CodeValidationFailed, "externalStoreId,externalOrderId")
		check(t, strings.HasPrefix(fmt.Sprint(err), "VALIDATION_FAILED: externalStoreId "+want), "%+q: %v", id, err)
		checkRefusal(t, id, CheckExternalStoreID(id), CodeValidationFailed, "externalStoreId")
	}
}

// Two ids that are equal once they are composed are never both taken.
func TestIDs_HaveOneForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := rapid.StringOf(rapid.RuneFrom([]rune("asşeéÅ\u0327\u0301\u030a\u1112\u1161한क\u093c-1"))).Draw(t, "id")
		fault := idFault(given)
		require(t, (fault == "") == (given == norm.NFC.String(given)), "%+q: %q", given, fault)
	})
}
