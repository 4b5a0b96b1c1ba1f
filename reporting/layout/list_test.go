package layout

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"pgregory.net/rapid"
)

func TestCut_ShowsEveryOneOnce(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		list := make([]int, rapid.IntRange(0, 50).Draw(t, "length"))
		for i := range list {
			list[i] = i
		}

		size := rapid.IntRange(1, 10).Draw(t, "size")
		var seen []int
		query := &Filters{Values: url.Values{"text": {"ı &=?"}}}
		for {
			part, pg := Cut(list, size, "/x", query)
			seen = append(seen, part...)
			if len(part) > size || pg.Total != len(list) || (pg.Prev == "") != (pg.Page == 1) {
				t.Fatalf("%+v", pg)
			}
			if pg.Next == "" {
				break
			}

			next, err := url.Parse(pg.Next)
			if err != nil || next.Query().Get("text") != "ı &=?" {
				t.Fatalf("%s %v", pg.Next, err)
			}

			query.Values = next.Query()
		}

		for i, n := range seen {
			if i != n {
				t.Fatalf("%v", seen)
			}
		}

		if len(seen) != len(list) {
			t.Fatalf("%d of %d", len(seen), len(list))
		}
	})
}

// Whatever an address holds, a page's number is one that there is or is refused.
func TestFilters_PageIsOneOrRefused(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		given := rapid.OneOf(rapid.String(), rapid.StringMatching(`-?[0-9]{1,25}`)).Draw(t, "page")
		r := httptest.NewRequest(http.MethodGet, "/x?"+url.Values{"page": {given}}.Encode(), nil)
		f := FiltersOf(r, "page")
		asked := f.Get("page")
		n := f.Page()
		if n < 1 || (f.Err() != nil) == f.Has("page") && asked != "" {
			t.Fatalf("%q: %d, %v", given, n, f.Err())
		}
	})
}
