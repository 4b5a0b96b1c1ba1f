package finance

import (
	"testing"

	"vendorapi/reporting/panel/layout"
)

func TestFind_TakesIDsAndNamesOfExactlyOne(t *testing.T) {
	t.Parallel()
	var ps parties
	for id, name := range map[string]string{"1": "Işık Kurye", "2": "İzmir Hızlı", "3": "İkiz", "4": "ikiz", "5": "Çift", "6": "Çift", "7": "1", "8": ""} {
		ps.add(id, name)
	}
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
		if got := ps.find(typed); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
	var nobody parties // Redis is away
	if got := nobody.find("Işık"); got != "Işık" {
		t.Error(got)
	}
}

func TestChoice_TellsPartiesOfOneNameApart(t *testing.T) {
	t.Parallel()
	var ps parties
	ps.add("1", "Moda")
	ps.add("2", "Moda")
	ps.add("3", "Çiğköfteci")
	ps.add("4", "")
	c := ps.choice("account", "Account", "gone")
	if len(c.Options) != 5 || c.Options[0].Name == c.Options[1].Name || c.Options[4] != (layout.Choice{Value: "gone", Name: "gone", Chosen: true}) {
		t.Errorf("%+v", c.Options)
	}
}
