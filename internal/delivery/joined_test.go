package delivery

import "testing"

// A text of one line has one blank where white space was, so that a row of a report is one line.
func TestJoinWords_LeavesOneBlankBetweenWords(t *testing.T) {
	for given, want := range map[string]string{
		"Moda\nŞube":            "Moda Şube",
		"Moda\r\n\tŞube":        "Moda Şube",
		" Moda  Şube ":          "Moda Şube",
		"Moda\u2028Şube\u00a01": "Moda Şube 1",
		"Moda Şube":             "Moda Şube",
		"":                      "",
		"\n":                    "",
	} {
		if got := joinWords(given); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}
