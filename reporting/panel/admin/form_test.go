package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/layout"
)

func TestNumber_IsWhatItLooksLike(t *testing.T) {
	t.Parallel()

	for typed, want := range map[string]string{
		"5": "5", " 60 ": "60", "-1": "-1", "0": "0", "": `""`, "007": `"007"`, "1.5": `"1.5"`, "1e3": `"1e3"`, "5}": `"5}"`, `5,"x":1`: `"5,\"x\":1"`, "٥": `"٥"`,
	} {
		if got, err := json.Marshal(number(typed)); err != nil || string(got) != want {
			t.Errorf("%q: %s %v, want %s", typed, got, err, want)
		}
	}

	if numberOrNull("  ") != nil || numberOrNull("x") != "x" {
		t.Error("an empty field is the default, and nothing else is")
	}
}

// Whatever is typed, the body is JSON with one value in the field's place.
func FuzzNumber(f *testing.F) {
	for _, seed := range []string{"5", "-0", "1e9", `"`, "5,6", "999999999999999", "\xff"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, typed string) {
		body, err := json.Marshal(map[string]any{"count": number(typed)})
		if err != nil {
			t.Fatal(err)
		}

		var back map[string]any
		if err := json.Unmarshal(body, &back); err != nil || len(back) != 1 {
			t.Errorf("%q: %s %v", typed, body, err)
		}
	})
}

// A pasted area never becomes more than the value of its field.
func FuzzCoverageOf(f *testing.F) {
	for _, seed := range []string{istanbul, "{}", "", "{", `1},"suspended":true`, "null", `"x"`, " [1] "} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, pasted string) {
		body, err := json.Marshal(map[string]any{"coverage": coverageOf(pasted)})
		if err != nil {
			t.Fatal(err)
		}

		var back map[string]json.RawMessage
		if err := json.Unmarshal(body, &back); err != nil || len(back) != 1 {
			t.Errorf("%q: %s %v", pasted, body, err)
		}
		if string(back["coverage"]) == "null" {
			t.Errorf("%q asks for no change", pasted)
		}

		var compact bytes.Buffer
		if json.Compact(&compact, []byte(pasted)) == nil && compact.String() != "null" && utf8.ValidString(pasted) && !strings.ContainsAny(pasted, "<>&\u2028\u2029") &&
			compact.String() != string(back["coverage"]) {
			t.Errorf("%q became %s", pasted, back["coverage"])
		}
	})
}

func TestStorePath_LeadsBackToItsStore(t *testing.T) {
	t.Parallel()

	var found string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stores/{account}/{store}", func(_ http.ResponseWriter, r *http.Request) {
		found, _ = storeID(r)
	})
	mux.HandleFunc("GET /stores/{account}/{store}/confirm", func(_ http.ResponseWriter, r *http.Request) {
		found, _ = storeID(r)
		if layout.PageOf(r.URL) != layout.StorePath(delivery.AccountID{1}, found, "") {
			found = "another page: " + layout.PageOf(r.URL)
		}
	})

	runes := rapid.RuneFrom([]rune("./%?#&;:@+=_-~ \\'\"<>aZşİ店😀"))
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringOfN(rapid.OneOf(runes, rapid.Rune()), 1, 64, -1).
			Filter(func(s string) bool { return delivery.CheckExternalStoreID(s) == nil }).Draw(t, "id")
		for _, act := range []string{"", "/confirm"} {
			path := layout.StorePath(delivery.AccountID{1}, id, act)
			to, err := url.Parse("http://panel.example" + path)
			if err != nil {
				t.Fatal(err)
			}

			found = ""
			mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, to.String(), nil))
			if found != id {
				t.Fatalf("%q: %s leads to %q", id, path, found)
			}
		}
	})
}
