package delivery

import (
	"regexp"
	"strings"
	"testing"
)

//rule:order-creation-request/recipient.phone decisions/phone
func TestNormalizePhone_StripsPrefixes(t *testing.T) {
	for in, want := range map[string]string{
		"5321234567": "5321234567", "05321234567": "5321234567", "+905321234567": "5321234567",
		"+9005321234567": "5321234567", " 5321234567\n": "5321234567", "2121234567": "2121234567", "9053212345": "9053212345",
	} {
		got, err := NormalizePhone(in)
		check(t, err == nil && got == want, "%q: got %q, %v, want %q", in, got, err, want)
	}
}

//rule:order-creation-request/recipient.phone errors/INVALID_PHONE decisions/phone
func TestNormalizePhone_RefusesWhatIsNotTenDigits(t *testing.T) {
	for _, in := range []string{
		"", "0", "+90", "+900", "532123456", "53212345678", "0532123456", "00532123456", "005321234567", "0053212345678",
		"905321234567", "+915321234567", "+90 5321234567", "532 123 45 67", "532-123-4567", "532123456a", "(532)1234567",
		"٥٣٢١٢٣٤٥٦٧", "５３２１２３４５６７", "5321234567 ext 1", "+90+905321234567", "532123456\x00", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		got, err := NormalizePhone(in)
		check(t, err != nil && got == "", "%q: got %q, %v", in, got, err)
	}
}

func FuzzNormalizePhone(f *testing.F) {
	for _, seed := range []string{"5321234567", "+9005321234567", "00", " 05321234567 ", "+90"} {
		f.Add(seed)
	}
	rule := regexp.MustCompile(`^(?:\+90)?0?([1-9][0-9]{9})$`)
	f.Fuzz(func(t *testing.T, in string) {
		want := ""
		if m := rule.FindStringSubmatch(strings.TrimSpace(in)); m != nil {
			want = m[1]
		}
		got, err := NormalizePhone(in)
		check(t, got == want && (err == nil) == (want != ""), "%q: got %q, %v, want %q", in, got, err, want)
	})
}
