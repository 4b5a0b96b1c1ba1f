//go:build long

package lib_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// noted is what testdata/settings.js notes.
type noted struct {
	Origin   string `json:"origin"`
	Accounts []struct {
		ClientID string `json:"clientId"`
		Label    string `json:"label"`
		Length   int    `json:"length"` // of the secret
	} `json:"accounts"`
	Origins []struct {
		Value string `json:"value"`
		Error string `json:"error"`
	} `json:"origins"`
	Durations []struct {
		Value float64 `json:"value"`
		Error string  `json:"error"`
	} `json:"durations"`
	Rate struct {
		Value float64 `json:"value"`
		Error string  `json:"error"`
	} `json:"rate"`
	Rates struct {
		Value []float64 `json:"value"`
		Error string    `json:"error"`
	} `json:"rates"`
}

// readSettings runs a script that only notes its settings.
func readSettings(t *testing.T, env settings) noted {
	t.Helper()
	r := play(t, "settings.js", env)
	r.requireExit(t, exitHeld)
	found := notes[noted](t, r)
	if len(found) != 1 {
		t.Fatalf("%d notes, want 1", len(found))
	}
	return found[0]
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestBaseURL_IsReadInEachSensibleForm(t *testing.T) {
	t.Parallel()

	cases := []struct{ given, want string }{
		{given: "http://127.0.0.1:8080", want: "http://127.0.0.1:8080"},
		{given: "http://127.0.0.1:8080/", want: "http://127.0.0.1:8080"},
		{given: "http://127.0.0.1:8080//", want: "http://127.0.0.1:8080"},
		{given: " https://api.example.com ", want: "https://api.example.com"},
		{given: "https://api.example.com/api/vendor/v1", want: "https://api.example.com"},
		{given: "https://api.example.com/api/vendor/v1/", want: "https://api.example.com"},
		{given: "https://api.example.com/api/vendor", want: "https://api.example.com"},
		{given: "HTTPS://API.example.com", want: "HTTPS://API.example.com"},
		{given: "https://example.com/delivery/", want: "https://example.com/delivery"},
		{given: "https://example.com/delivery/api/vendor/v1", want: "https://example.com/delivery"},
		{given: "api.example.com", want: "https://api.example.com"},
		{given: "api.example.com:8443/api/vendor/v1", want: "https://api.example.com:8443"},
		{given: "localhost:8080", want: "http://localhost:8080"},
		{given: "localhost", want: "http://localhost"},
		{given: "localhost.example.com", want: "https://localhost.example.com"},
		{given: "gateway:8080/", want: "http://gateway:8080"},
		{given: "127.0.0.1:8080", want: "http://127.0.0.1:8080"},
		{given: "10.1.2.3:8080", want: "http://10.1.2.3:8080"},
		{given: "10.example.com", want: "https://10.example.com"},
		{given: "172.16.0.9", want: "http://172.16.0.9"},
		{given: "172.32.0.9", want: "https://172.32.0.9"},
		{given: "192.168.1.1:80", want: "http://192.168.1.1:80"},
		{given: "[::1]:8080", want: "http://[::1]:8080"},
	}

	var given []string
	for _, c := range cases {
		given = append(given, c.given)
	}

	read := readSettings(t, settings{"ORIGINS": asJSON(t, given)})

	for i, c := range cases {
		if read.Origins[i].Value != c.want {
			t.Errorf("%q is read as %+v, want %q", c.given, read.Origins[i], c.want)
		}
	}
}

func TestBaseURL_OfAnotherKindIsRefusedWithoutRepeatingIt(t *testing.T) {
	t.Parallel()

	given := []string{
		"https://api.example.com?key=" + recognisableSecret,
		"https://api.example.com/#" + recognisableSecret,
		"https://user:" + recognisableSecret + "@api.example.com",
		"user:" + recognisableSecret + "@api.example.com",
		"https://user:half/" + recognisableSecret + "@api.example.com",
		"ftp://api.example.com",
		"htp:/127.0.0.1",
		"https://api.example.com:port",
		"https://",
		"https:///api/vendor/v1",
		"https://api example.com",
	}

	read := readSettings(t, settings{"ORIGINS": asJSON(t, given)})

	want := "BASE_URL must be like https://api.example.com, without credentials, query or fragment"
	for i, g := range given {
		if read.Origins[i].Error != want {
			t.Errorf("%q: %+v", g, read.Origins[i])
		}
	}
}

func TestBaseURL_OfAnotherKindEndsTheScriptBeforeItStarts(t *testing.T) {
	t.Parallel()
	r := play(t, "till.js", settings{"BASE_URL": "https://user:" + recognisableSecret + "@api.example.com"})

	r.requireExit(t, exitScriptException)
	if !contains(r.messages("error"), "BASE_URL must be like") || strings.Contains(r.rawLog, recognisableSecret) {
		t.Error("k6 does not say what BASE_URL must be, or shows the password")
	}
}

func TestBaseURL_ReachesTheServiceInEachForm(t *testing.T) {
	t.Parallel()

	for name, form := range map[string]func(url string) string{
		"a slash at the end": func(url string) string { return url + "/" },
		"the API's path":     func(url string) string { return url + "/api/vendor/v1" },
		"no scheme":          func(url string) string { return strings.TrimPrefix(url, "http://") },
		"a prefix":           func(url string) string { return url + "/delivery/" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newVendorAPI(t)

			r := play(t, "till.js", api.settings(settings{"BASE_URL": form(api.URL)}))

			r.requireExit(t, exitHeld)
		})
	}
}

func TestSeconds_ReadsDurationsAsK6Does(t *testing.T) {
	t.Parallel()

	cases := []struct {
		given string
		want  float64
	}{
		{given: "90s", want: 90},
		{given: "1d", want: 86400},
		{given: "1d12h", want: 129600},
		{given: "1h30m", want: 5400},
		{given: "1.5h", want: 5400},
		{given: "500ms", want: 0.5},
		{given: "5000", want: 5},
		{given: "0", want: 0},
		{given: "1m500ms", want: 60.5},
		{given: " 10s ", want: 10},
	}

	var given []string
	for _, c := range cases {
		given = append(given, c.given)
	}

	read := readSettings(t, settings{"DURATIONS": asJSON(t, given)})

	for i, c := range cases {
		if read.Durations[i].Error != "" || read.Durations[i].Value != c.want {
			t.Errorf("%q is read as %+v, want %v", c.given, read.Durations[i], c.want)
		}
	}
}

func TestSeconds_RefusesWhatIsNoDuration(t *testing.T) {
	t.Parallel()

	given := []string{"", "long", "-5s", "5 s", "5x", "1h 30m", "h", "1:30", "5s!", "NaN", "1e3"}

	read := readSettings(t, settings{"DURATIONS": asJSON(t, given)})

	for i, g := range given {
		if !strings.Contains(read.Durations[i].Error, "is no duration: write 90s, 30m, 1h30m or 1d") {
			t.Errorf("%q is read as %+v", g, read.Durations[i])
		}
	}
}

func TestRates_AreWholeNumbersAboveZero(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		env   settings
		rate  float64
		rates []float64
	}{
		"none is set":        {env: nil, rate: 30, rates: []float64{25, 50}},
		"a number":           {env: settings{"RATE": "7", "RATES": "8"}, rate: 7, rates: []float64{8}},
		"a list with spaces": {env: settings{"RATES": "1, 2 ,30"}, rate: 30, rates: []float64{1, 2, 30}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := readSettings(t, c.env)

			if read.Rate.Value != c.rate || !slices.Equal(read.Rates.Value, c.rates) {
				t.Errorf("the rates are %+v and %+v, want %v and %v", read.Rate, read.Rates, c.rate, c.rates)
			}
		})
	}
}

func TestRates_OfAnotherKindAreRefused(t *testing.T) {
	t.Parallel()

	for _, given := range []string{"0", "-1", "1.5", "many", "5,", ",", "5 6"} {
		t.Run(given, func(t *testing.T) {
			t.Parallel()
			read := readSettings(t, settings{"RATE": given, "RATES": given})

			want := `is "` + given + `": it must be a whole number above 0`
			if !strings.Contains(read.Rate.Error, "RATE "+want) || !strings.Contains(read.Rates.Error, "RATES "+want) {
				t.Errorf("read as %+v and %+v", read.Rate, read.Rates)
			}
		})
	}
}

func TestRates_AListIsRefusedWhereTheScriptTakesOne(t *testing.T) {
	t.Parallel()
	read := readSettings(t, settings{"RATE": "5,10"})

	if read.Rate.Error != `RATE is "5,10": it must be one whole number above 0` {
		t.Errorf("read as %+v", read.Rate)
	}
}

const twoAccounts = `[{"clientId": "one", "clientSecret": "123"}, {"clientId": "two", "clientSecret": "12345"}]`

func TestAccounts_AreAListOrAFile(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	file := filepath.Join(dir, "accounts.json")
	if err := os.WriteFile(file, []byte(twoAccounts), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, env := range map[string]settings{
		"a list":                                {"ACCOUNTS": twoAccounts},
		"a list in lines":                       {"ACCOUNTS": "\n " + twoAccounts + "\n"},
		"an absolute path":                      {"ACCOUNTS": file, "PWD": "/"},
		"a path from where k6 is started":       {"ACCOUNTS": "accounts.json", "PWD": dir},
		"a path to another folder":              {"ACCOUNTS": "../" + filepath.Base(dir) + "/accounts.json", "PWD": dir},
		"besides the credentials of an account": {"ACCOUNTS": twoAccounts, "CLIENT_ID": "other", "CLIENT_SECRET": "other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			read := readSettings(t, env)

			if len(read.Accounts) != 2 {
				t.Fatalf("%+v", read.Accounts)
			}

			first, second := read.Accounts[0], read.Accounts[1]
			if first.ClientID != "one" || first.Label != "1" || first.Length != 3 {
				t.Errorf("the first account is %+v", first)
			}
			if second.ClientID != "two" || second.Label != "2" || second.Length != 5 {
				t.Errorf("the second account is %+v", second)
			}
		})
	}
}

func TestAccounts_OfAnotherKindAreRefusedWithoutShowingASecret(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	file := filepath.Join(dir, "accounts.json")
	if err := os.WriteFile(file, []byte(`{"clientId": "one", "clientSecret": "`+recognisableSecret+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, given := range map[string]string{
		"no list":                `{"clientId": "one", "clientSecret": "` + recognisableSecret + `"}`,
		"a file with no list":    file,
		"broken JSON":            `[{"clientId": "one", "clientSecret": "` + recognisableSecret + `"`,
		"an empty list":          `[]`,
		"a list of nothing":      `[null]`,
		"a list of texts":        `["` + recognisableSecret + `"]`,
		"a text":                 `"` + recognisableSecret + `"`,
		"no id":                  `[{"clientSecret": "` + recognisableSecret + `"}]`,
		"no secret":              `[{"clientId": "one"}]`,
		"an empty secret":        `[{"clientId": "one", "clientSecret": ""}]`,
		"a number as id":         `[{"clientId": 1, "clientSecret": "` + recognisableSecret + `"}]`,
		"credentials as a pair":  "one:" + recognisableSecret,
		"a missing file":         "/" + recognisableSecret + "/accounts.json",
		"a folder":               dir,
		"a name of another file": "settings_test.go",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := play(t, "till.js", settings{"ACCOUNTS": given})

			r.requireExit(t, exitScriptException)
			said := r.messages("error")
			want := `ACCOUNTS must be a JSON list of {"clientId": …, "clientSecret": …}, or a file with one`
			if len(said) != 1 || !strings.Contains(said[0], want) {
				t.Errorf("k6 said %q", said)
			}
			if strings.Contains(r.rawLog+r.stdout, recognisableSecret) {
				t.Error("k6 shows the secret")
			}
		})
	}
}
