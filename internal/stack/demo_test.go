package stack

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
)

//rule:make-run/the-demo-fleet-covers-at
func TestDemo_FleetCoversTheSixCities(t *testing.T) {
	t.Parallel()

	coverage, err := delivery.ParseCoverage(demoCoverage)
	if err != nil {
		t.Fatal(err)
	}

	for city, p := range map[string]delivery.Point{
		"İstanbul, Sultanahmet": {Latitude: 41.0082, Longitude: 28.9784}, "İstanbul, Kadıköy": {Latitude: 40.9903, Longitude: 29.0290},
		"Ankara": {Latitude: 39.9334, Longitude: 32.8597}, "İzmir": {Latitude: 38.4237, Longitude: 27.1428},
		"Bursa": {Latitude: 40.1885, Longitude: 29.0610}, "Antalya": {Latitude: 36.8969, Longitude: 30.7133},
		"Adana": {Latitude: 37.0000, Longitude: 35.3213},
	} {
		if !coverage.Contains(p) {
			t.Errorf("%s is not covered", city)
		}
	}

	if coverage.Contains(delivery.Point{Latitude: 38.4942, Longitude: 43.3800}) {
		t.Error("Van is covered, so nothing would ever be out of coverage")
	}
}

// Programs read demo.json by these names.
//
//rule:make-run/when-all-is-ready-it
func TestDemo_IsWrittenAsTheContractNamesIt(t *testing.T) {
	t.Parallel()

	demo := Demo{PanelURL: "p", ClickHouseURL: "c", ReportsToken: "t", Webhook: Webhook{URL: "w"}}
	demo.Panel.User = "u"
	content, err := json.Marshal(demo)
	if err != nil {
		t.Fatal(err)
	}

	var written map[string]any
	if err := json.Unmarshal(content, &written); err != nil {
		t.Fatal(err)
	}

	names := []string{}
	for name, value := range written {
		if inner, is := value.(map[string]any); is {
			name += "{" + strings.Join(slices.Sorted(maps.Keys(inner)), ",") + "}"
		}
		names = append(names, name)
	}

	slices.Sort(names)
	want := []string{
		"account{accountId,clientId,clientSecret}", "adminKey", "baseUrl", "clickhouseUrl", "fleet{clientId,clientSecret,fleetId}",
		"opsUrl", "panelUrl", "panel{password,user}", "reportsToken", "webhook{secret,url}",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}
