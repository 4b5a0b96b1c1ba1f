package layout

import (
	"html/template"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
)

func TestFields_AreNamedInWords(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]string{
		"limits.orders.sustained.count": "Orders, sustained, requests", "limits.orderStatus.burst.seconds": "Order status, burst, seconds",
		"closingDate": "Closing date", "to": "To", "": "", "İl": "İl",
	} {
		if got := fieldName(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}

	field := delivery.FieldError{Field: "limits.orders.sustained.count", Message: "must be 1 to 1,000,000"}
	if got := said(&delivery.Error{Message: field.Field + " " + field.Message, Fields: []delivery.FieldError{field}}); got != "Orders, sustained, requests must be 1 to 1,000,000" {
		t.Errorf("%q", got)
	}

	for field, want := range map[string]string{"2026-11-22": "22 Nov 2026", "2026-11-22T14:05": "22 Nov 2026 14:05:00", "2026-11-22T14:05:09": "22 Nov 2026 14:05:09", "22.11.2026": "", "": ""} {
		if got := written(field); got != want {
			t.Errorf("%s: %q", field, got)
		}
	}
}

func TestTimes_AreLocal(t *testing.T) {
	t.Parallel()

	at := time.Date(2026, 11, 21, 21, 30, 5, 0, time.UTC)
	for _, c := range []struct{ got, want string }{
		{Clock(at), "22 Nov 2026 00:30:05"}, {Date(at), "22 Nov 2026"},
		{Brief(at, at.Add(-30*time.Minute)), "00:00:05"}, {Brief(at, at.Add(-31*time.Minute)), "21 Nov 23:59"},
		{Brief(at, at.AddDate(-1, 0, 0)), "22 Nov 2025 00:30"}, {Brief(at, time.Time{}), ""},
		{machine(at), "2026-11-22T00:30:05+03:00"}, {Clock(time.Time{}), ""},
		{Ago(at, at), "just now"}, {Ago(at, at.Add(-999*time.Millisecond)), "just now"},
		{Ago(at, at.Add(-59*time.Second)), "59 s ago"}, {Ago(at, at.Add(-119*time.Second)), "1 min ago"},
		{Ago(at, at.Add(90*time.Minute)), "in 1 h"}, {Ago(at, at.Add(-48*time.Hour)), "2 d ago"},
		{Ago(at, at.Add(-48*time.Hour+time.Second)), "47 h ago"},
		{Ago(at, time.Time{}), "never"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ got, want string }{
		{Count(0), "0"}, {Count(999), "999"}, {Count(-1000), "-1,000"}, {Count(1234567), "1,234,567"},
		{Count(math.MinInt64), "-9,223,372,036,854,775,808"},
		{Money(0), "0.00"}, {Money(5), "0.05"}, {Money(-105), "-1.05"}, {Money(123456789), "1,234,567.89"},
		{share(0, 0), ""}, {share(0, 5), "0.0 %"}, {share(5, 0), "100.0 %"}, {share(99_999, 1), "99.9 %"}, {share(1, 99_999), "0.1 %"}, {share(2, 2), "50.0 %"},
		{Short("0197-abcdef"), "0197-abc"}, {Short("x"), "x"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}

	for value, want := range map[any]string{int64(1250): "12.50", delivery.Money{}: "–", (delivery.Money{Minor: 7, Set: true}): "0.07"} {
		if got, err := moneyOf(value); err != nil || got != want {
			t.Errorf("%v: %q, %v", value, got, err)
		}
	}

	if _, err := moneyOf(12.5); err == nil {
		t.Error("a float passed for money")
	}
	if _, err := countOf("12"); err == nil {
		t.Error("a text passed for a count")
	}
}

// Whatever the amount, its digits are those of the kuruş.
func TestMoney_LosesNothing(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		kurus := rapid.Int64().Draw(t, "kurus")
		text := strings.NewReplacer(",", "", ".", "").Replace(Money(kurus))
		if got, err := strconv.ParseInt(text, 10, 64); err != nil || got != kurus {
			t.Fatalf("%d became %s", kurus, Money(kurus))
		}
	})
}

func TestFault_FindsTheField(t *testing.T) {
	t.Parallel()
	alert := &delivery.Error{Fields: []delivery.FieldError{{Field: "name", Message: "is required"}}}
	if Fault(alert, "name") != "is required" || Fault(alert, "other") != "" || Fault(nil, "name") != "" {
		t.Error("a fault stands at the wrong field")
	}
}

// What a label contains cannot end the attribute that the chart's data is in.
func TestChart_IsData(t *testing.T) {
	t.Parallel()

	hostile := `"><script>alert(1)</script>`
	c := &Chart{ID: "c", Title: hostile, Unit: "orders", Labels: []string{hostile}, Series: []Series{{Name: hostile, Values: []float64{1.5}, Texts: []string{hostile}}}}
	set, err := template.New("").Funcs(withAssets(t).functions()).ParseFS(files, "page/parts.html")
	must(t, err)
	var b strings.Builder
	must(t, set.ExecuteTemplate(&b, "chart", c))
	if strings.Contains(b.String(), "<script") || !strings.Contains(b.String(), `<td class="number">&#34;&gt;&lt;script&gt;`) {
		t.Errorf("rendered %s", b.String())
	}
}

func TestKeep_IDsThatFitACell(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"besiktas-03-20067": "keep", "AS-S-İstanbul-2": "keep", "besiktas-03-200678": "", "店舗": "", `s-"><b>`: "keep", "": "keep",
	} {
		if got := keep(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
