package dashboard

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"vendorapi/internal/delivery"
)

// Whatever an address holds is understood or refused; what is understood leads to
// itself again.
func FuzzParseSearch(f *testing.F) {
	c := cursor{created: time.UnixMilli(1_795_000_000_123), order: delivery.MakeOrderID(1, 20000, [12]byte{9})}
	for _, seed := range []string{"", "q=moda", "q=%00%ff&days=7", "account=" + delivery.AccountID{1}.String() + "&status=open&days=30",
		"status=Failed&after=" + c.String(), "days=-1&after=AAAA", "status=overdue", "q=+%E2%80%8Bx+"} {
		f.Add(seed)
	}

	now := time.UnixMilli(1_795_000_500_000)
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}

		s, err := parseSearch(values, now)
		if err != nil {
			if delivery.CodeOf(err) != delivery.CodeValidationFailed {
				t.Fatal(err)
			}
			return
		}

		if s.since.After(now) || s.days < 1 || s.days > longest {
			t.Errorf("%q: %d days since %s", query, s.days, s.since)
		}

		u, err := url.Parse(s.address(s.after))
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseSearch(u.Query(), now)
		if err != nil {
			t.Fatalf("%q became %q: %v", query, u, err)
		}

		if again.address(again.after) != s.address(s.after) {
			t.Errorf("%q became %q and then %q", query, s.address(s.after), again.address(again.after))
		}
	})
}

// ClickHouse compares with what Go has folded.
func TestFoldedStore_IsWhatFoldNameMakes(t *testing.T) {
	e := newEnv(t)
	names := []string{"ISPARTA ŞUBESİ", "ısparta şubesi", "İSTANBUL", strings.ToLower("İSTANBUL"), "I\u0307zmir", "a\u0307b", "", "店舗 😀", "%_'\\"}
	for r := rune('!'); r <= '\u017f'; r++ { // Latin, with the Turkish letters
		names = append(names, "x"+string(r)+"I")
	}

	sql, err := queries.ReadFile("sql/orders.sql")
	must(t, err)
	_, expression, _ := strings.Cut(string(sql), "WITH ")
	expression, _, _ = strings.Cut(expression, " AS folded_store")
	var folded []string
	err = e.pages.archive.Each(t.Context(), "SELECT "+expression+" FROM (SELECT arrayJoin({names:Array(String)}) AS store_name)", func(rows driver.Rows) error {
		folded = append(folded, "")
		return rows.Scan(&folded[len(folded)-1])
	}, clickhouse.Named("names", names))

	must(t, err)
	if len(folded) != len(names) {
		t.Fatalf("%d of %d names", len(folded), len(names))
	}

	for i, name := range names {
		if want := delivery.FoldName(name); folded[i] != want {
			t.Errorf("%q: ClickHouse has %q, Go %q", name, folded[i], want)
		}
	}
}
