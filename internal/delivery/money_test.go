package delivery

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
)

//rule:finance/money-is-a-json-number
func TestParseMoney_IsExact(t *testing.T) {
	for literal, want := range map[string]int64{
		"0": 0, "0.0": 0, "0.00": 0, "-0": 0, "0e999999999999": 0, "0.000000": 0, "1": 100, "12.5": 1250, "12.50": 1250,
		"12.500": 1250, "0.01": 1, "0.010": 1, "1e2": 10000, "1E+2": 10000, "125e-1": 1250, "100e-4": 1, "0.0001e2": 1,
		"9999999.99": 999_999_999, "9999999": 999_999_900, "999999999e-2": 999_999_999, "0.0000000001e12": 10000,
		"1e6": 100_000_000, "10000000e-7": 100, "1e-00000000000000000002": 1,
	} {
		got, err := ParseMoney(literal)
		check(t, err == nil && got == (Money{Minor: want, Set: true}), "%s: got %+v, %v, want %d", literal, got, err, want)
	}
}

//rule:finance/money-is-a-json-number
func TestParseMoney_RefusesWhatIsNoAmount(t *testing.T) {
	for _, literal := range []string{
		"", "-", "-1", "-0.01", "12.501", "0.001", "1e-3", "9999999.991", "10000000", "1e7", "1e999999999999999999999",
		"1e-999999999999999999999", "01", "1.", ".5", "+1", " 1", "1 ", "1,5", "1e", "1e+", "0x1", "NaN", "Infinity", "\"1\"",
		"1_000", "1.2.3", "1e2e2", "٣", strings.Repeat("9", 60000),
	} {
		got, err := ParseMoney(literal)
		check(t, err != nil && got == (Money{}), "%.40q: got %+v, %v", literal, got, err)
	}
}

func TestMoney_IsWrittenWithTwoDecimals(t *testing.T) {
	for m, want := range map[Money]string{
		{}: "", {Set: true}: "0.00", {1, true}: "0.01", {1250, true}: "12.50", {MaxMoneyMinor, true}: "9999999.99",
	} {
		if got := m.String(); got != want {
			t.Errorf("%+v: got %q, want %q", m, got, want)
		}
	}

	if got := (Money{1250, true}).Decimal().String(); got != "12.5" {
		t.Errorf("decimal %s", got)
	}
}

// FuzzParseMoney compares with exact rational arithmetic.
func FuzzParseMoney(f *testing.F) {
	for _, seed := range []string{"0", "12.50", "1e2", "-1", "9999999.99", "0.001", "1e-2", "00", "1.e1", "1E000000"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, literal string) {
		got, err := ParseMoney(literal)
		want, ok := moneyByRational(literal)
		check(t, ok == (err == nil) && got.Minor == want, "%q: got %+v, %v, want %d, %v", literal, got, err, want, ok)
		if again, err := ParseMoney(got.String()); got.Set && (err != nil || again != got) {
			t.Errorf("%q does not survive its own text %q", literal, got.String())
		}
	})
}

func moneyByRational(literal string) (minor int64, ok bool) {
	if !json.Valid([]byte(literal)) || strings.Trim(literal, "0123456789.eE+-") != "" {
		return 0, false
	}
	if i := strings.IndexAny(literal, "eE"); i >= 0 && len(strings.TrimLeft(literal[i+1:], "+-0")) > 4 {
		// An exponent too long to compute with: only zero may carry it.
		return 0, strings.Trim(literal[:i], "-0.") == ""
	}

	r, isRational := new(big.Rat).SetString(literal)
	if !isRational {
		return 0, false
	}

	r.Mul(r, big.NewRat(100, 1))
	if !r.IsInt() || r.Sign() < 0 || r.Cmp(big.NewRat(MaxMoneyMinor, 1)) > 0 {
		return 0, false
	}

	return r.Num().Int64(), true
}
