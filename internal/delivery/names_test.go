package delivery

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestAbbreviateName(t *testing.T) {
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
		if got := AbbreviateName(full); got != want {
			t.Errorf("%q: got %q, want %q", full, got, want)
		}
	}
}

func TestAbbreviateNameHidesTheSurname(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		full := rapid.StringMatching(`[a-zçğıöşü A-ZÇĞİÖŞÜ]{0,40}`).Draw(t, "name")
		words, short := strings.Fields(full), AbbreviateName(full)
		if AbbreviateName(short) != short {
			t.Fatalf("%q becomes %q, and that %q", full, short, AbbreviateName(short))
		}
		if len(words) < 2 {
			return
		}
		given, surname := strings.Join(words[:len(words)-1], " "), strings.TrimPrefix(short, strings.Join(words[:len(words)-1], " ")+" ")
		if !strings.HasPrefix(short, given+" ") || utf8.RuneCountInString(surname) != 2 || !strings.HasSuffix(surname, ".") {
			t.Fatalf("%q becomes %q", full, short)
		}
	})
}
