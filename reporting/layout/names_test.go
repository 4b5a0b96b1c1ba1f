package layout

import "testing"

func TestFind_TakesIDsAndNamesOfExactlyOne(t *testing.T) {
	t.Parallel()

	names := Names{"1": "Işık Kurye", "2": "İzmir Hızlı", "3": "İkiz", "4": "ikiz", "5": "Çift", "6": "Çift", "7": "1", "8": ""}
	for typed, want := range map[string]string{
		"":                          "",
		"1":                         "1", // an id before a name
		"7":                         "7",
		"Işık Kurye":                "1",
		"ışık kurye":                "1",
		"IŞIK KURYE":                "1",
		"isik kurye":                "isik kurye", // ş is no s
		"izmir hizli":               "2",
		"İZMİR HIZLI":               "2",
		"İkiz":                      "3", // as it is written, before others in another case
		"ikiz":                      "4",
		"IKIZ":                      "IKIZ",
		"Çift":                      "Çift",
		"nobody":                    "nobody",
		"Işık":                      "Işık",
		"<script>alert(1)</script>": "<script>alert(1)</script>",
	} {
		if got := names.Find(typed); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}

	var nobody Names // Redis is unavailable
	if got := nobody.Find("Işık"); got != "Işık" {
		t.Error(got)
	}
}

func TestChoices_TellEqualNamesApart(t *testing.T) {
	t.Parallel()
	options := Names{"1": "Moda", "2": "Moda", "3": "Çiğköfteci", "4": ""}.Choices("gone", 4)
	if len(options) != 5 || options[2].Name == options[3].Name || options[4] != (Choice{Value: "gone", Name: "gone", Chosen: true}) {
		t.Errorf("%+v", options)
	}
}
