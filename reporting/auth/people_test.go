package auth

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A hash and a digest that are well made, and a secret that no error may show.
const (
	goodHash   = "$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHRzYWx0c2FsdA$a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2U"
	goodDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func TestParseUsers_ReadsWhatIsPrinted(t *testing.T) {
	t.Parallel()

	made, err := NewUser("fatma", Roles{Operator, Finance}, password)
	must(t, err)
	want := append([]User{made}, cast().Users...)
	text := "# the panel's users\r\n\r\n"
	for i := range want {
		text += want[i].Line() + "\r\n"
	}

	users, err := ParseUsers(text)
	must(t, err)
	if len(users) != len(want) {
		t.Fatalf("%d users", len(users))
	}

	for i := range users {
		if users[i].Line() != want[i].Line() || users[i].credential("id") != want[i].credential("id") {
			t.Errorf("%s became %s", want[i].Line(), users[i].Line())
		}
	}
}

func TestParseUsers_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()

	weaker := func(old, changed string) string { return "ayse:finance:" + strings.Replace(goodHash, old, changed, 1) }
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "the list is empty"},
		{"comments only", "# none\n\n", "the list is empty"},
		{"no role", "ayse:" + goodHash, `want "name:roles:"`},
		{"no hash", "ayse:finance:", "not one of argon2id"},
		{"a name only", "ayse", `want "name:roles:"`},
		{"unknown role", "ayse:admin:" + goodHash, `"ayse": want operator, finance and closer`},
		{"a role twice", "ayse:finance,finance:" + goodHash, "want operator, finance and closer"},
		{"a space before a role", "ayse:finance, operator:" + goodHash, "want operator, finance and closer"},
		{"a hash in the role's place", "ayse:" + goodHash + ":finance", "want operator, finance and closer"},
		{"no name", ":finance:" + goodHash, "a name has 1 to 64"},
		{"capitals", "Ayse:finance:" + goodHash, "a name has 1 to 64"},
		{"not ASCII", "ayşe:finance:" + goodHash, "a name has 1 to 64"},
		{"a long name", strings.Repeat("x", 65) + ":finance:" + goodHash, "a name has 1 to 64"},
		{"a dash first", "-x:finance:" + goodHash, "a name has 1 to 64"},
		{"twice", "# x\nayse:finance:" + goodHash + "\n\nayse:operator:" + goodHash, `line 4: "ayse" is in line 2 already`},
		{"a password instead of a hash", "ayse:finance:hunter2", "not one of argon2id"},
		{"another algorithm", weaker("argon2id", "argon2i"), "not one of argon2id"},
		{"another version", weaker("v=19", "v=16"), "not one of argon2id"},
		{"text before it", "ayse:finance:x" + goodHash, "not one of argon2id"},
		{"text behind it", "ayse:finance:" + goodHash + "$x", "not one of argon2id"},
		{"text within", weaker("p=4", "p=4x"), "not one of argon2id"},
		{"odd numbers", weaker("m=65536", "m=065536"), "not one of argon2id"},
		{"no base64", weaker("c2FsdHNhbHRzYWx0c2FsdA", "!"), "not one of argon2id"},
		{"little memory", weaker("m=65536", "m=8192"), "too weak"},
		{"one pass over little", weaker("m=65536,t=3", "m=19456,t=1"), "too weak"},
		{"no pass", weaker("t=3", "t=0"), "too weak"},
		{"no lane", weaker("p=4", "p=0"), "too weak"},
		{"little salt", weaker("c2FsdHNhbHRzYWx0c2FsdA", "c2FsdA"), "too weak"},
		{"a short key", weaker("a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2V5a2U", "a2V5"), "too weak"},
		{"much memory", weaker("m=65536", "m=4194304"), "too much memory"},
		{"many passes", weaker("t=3", "t=1000"), "too much memory or time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseUsers(c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}

			if c.text != "" && c.name != "comments only" && !strings.Contains(err.Error(), "line ") {
				t.Errorf("%v names no line", err)
			}

			for _, secret := range []string{"c2FsdHNhbHR", "a2V5a2V5", "hunter2"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%v shows a secret", err)
				}
			}
		})
	}
}

func TestParseTokens_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ name, text, want string }{
		{"empty", "\n", "the list is empty"},
		{"unknown role", "erp:root:" + goodDigest, `line 1: "erp": want operator, finance and closer`},
		{"no role", "erp:" + goodDigest, `"erp": want operator, finance and closer`},
		{"the token itself", "erp:finance:rpt_0123456789abcdef", `want "sha256:" and 64 hexadecimal digits`},
		{"a digest without its name", "erp:finance:" + strings.TrimPrefix(goodDigest, digestPrefix), "64 hexadecimal"},
		{"a short digest", "erp:finance:" + goodDigest[:70], "64 hexadecimal"},
		{"a long digest", "erp:finance:" + goodDigest + "00", "64 hexadecimal"},
		{"no digits", "erp:finance:" + strings.Replace(goodDigest, "f", "g", 1), "64 hexadecimal"},
		{"the digest of nothing", "erp:finance:sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "the digest of nothing"},
		{"twice", "erp:finance:" + goodDigest + "\nerp:finance:" + goodDigest, `line 2: "erp" is in line 1 already`},
		{"the same token for two", "erp:finance:" + goodDigest + "\nbi:operator:" + goodDigest, `line 2: "bi": another name has the same token`},
		{"too many", manyTokens(maxLines + 1), "line 1001: at most 1000 are taken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseTokens(c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if strings.Contains(err.Error(), "0123456789abcdef") {
				t.Errorf("%v shows a secret", err)
			}
		})
	}

	if tokens, err := ParseTokens(manyTokens(maxLines)); err != nil || len(tokens) != maxLines {
		t.Errorf("%d tokens, %v", len(tokens), err)
	}
}

func manyTokens(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "t%d:finance:sha256:%064x\n", i, i+1)
	}
	return b.String()
}

func TestNewUser_RefusesBadPasswordsAndNames(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ name, password string }{
		{"ayse", ""}, {"ayse", "fourteen chars"}, {"ayse", strings.Repeat("x", 257)}, {"ayse", "\xff\xfe" + strings.Repeat("x", 20)},
		{"Ayse", password}, {"", password}, {"a:b", password}, {"a\nb", password},
	} {
		if u, err := NewUser(c.name, Roles{Finance}, c.password); err == nil {
			t.Errorf("%q: %s", c, u.Line())
		} else if c.password != "" && strings.Contains(err.Error(), c.password) {
			t.Errorf("%v shows the password", err)
		}
	}

	if _, _, err := NewToken("a b", Roles{Finance}); err == nil {
		t.Error("a name with a space")
	}
}

func TestFindToken_FindsEachAndNoOther(t *testing.T) {
	t.Parallel()

	var tokens []Token
	var texts []string
	for range 5 {
		text, token, err := NewToken("x", Roles{Finance})
		must(t, err)
		parsed, err := ParseTokens(token.Line())
		must(t, err)
		tokens, texts = append(tokens, parsed...), append(texts, text)
	}

	for i, text := range texts {
		if got := findToken(tokens, text); got != &tokens[i] {
			t.Errorf("token %d is %v", i, got)
		}
	}

	for _, text := range []string{"", texts[0][:40], texts[0] + " ", strings.ToLower(texts[0])} {
		if got := findToken(tokens, text); got != nil {
			t.Errorf("%q is %v", text, got)
		}
	}

	if findToken(nil, texts[0]) != nil {
		t.Error("a token without a list")
	}
}

func TestFromEnvironment_TakesEitherListOrBoth(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	must(t, os.WriteFile(file, []byte("ayse:finance:"+goodHash+"\n"), 0o600))
	for _, c := range []struct {
		name, users, usersFile, tokens string
		people                         [2]int
		want                           string
	}{
		{"neither", "", "", "", [2]int{}, "nobody may come in: set PANEL_USERS or REPORT_TOKENS"},
		{"users", "ayse:finance:" + goodHash, "", "", [2]int{1, 0}, ""},
		{"tokens", "", "", "erp:finance:" + goodDigest, [2]int{0, 1}, ""},
		{"a file and tokens", "", file, "erp:finance:" + goodDigest, [2]int{1, 1}, ""},
		{"value and file", "x", file, "", [2]int{}, "PANEL_USERS and PANEL_USERS_FILE are both set"},
		{"no such file", "", file + "x", "", [2]int{}, "PANEL_USERS_FILE: open"},
		{"a bad line", "ayse:finance:x", "", "", [2]int{}, `PANEL_USERS: line 1: "ayse": the password's hash`},
		{"a bad token", "", "", "erp:finance:x", [2]int{}, `REPORT_TOKENS: line 1: "erp": want`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("PANEL_USERS", c.users)
			t.Setenv("PANEL_USERS_FILE", c.usersFile)
			t.Setenv("REPORT_TOKENS", c.tokens)
			people, err := FromEnvironment()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if got := [2]int{len(people.Users), len(people.Tokens)}; got != c.people {
				t.Errorf("%v, want %v", got, c.people)
			}
		})
	}
}

func TestSettings_AreChecked(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		s    Settings
		want string
	}{
		{Settings{PasswordChecks: 2, TrustedProxies: []string{"10.0.0.0/8", "::1"}}, ""},
		{Settings{}, "access.password_checks: want 1 to 64"},
		{Settings{PasswordChecks: 65}, "access.password_checks: want 1 to 64"},
		{Settings{PasswordChecks: 1, TrustedProxies: []string{"proxy.local"}}, `access.trusted_proxies: "proxy.local" is neither`},
	} {
		if err := c.s.Validate(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.s, err, c.want)
		}
	}
}

func FuzzParseUsers(f *testing.F) {
	f.Add("ayse:finance:" + goodHash)
	f.Add("# x\nayse:finance,operator:" + goodHash + "\r\nece:operator:" + goodHash)
	f.Add("ayse:finance:$argon2id$v=19$m=65536,t=3,p=4$$")
	f.Fuzz(func(t *testing.T, text string) {
		users, err := ParseUsers(text)
		if err != nil {
			return
		}

		for i := range users { // what was taken can be written down and read again
			again, err := ParseUsers(users[i].Line())
			if err != nil || again[0].Line() != users[i].Line() || len(users[i].Roles) == 0 {
				t.Errorf("%q: %v", users[i].Line(), err)
			}
		}
	})
}

func FuzzParseTokens(f *testing.F) {
	f.Add("erp:finance:" + goodDigest)
	f.Add("erp:finance:" + goodDigest + "\n#\nbi:operator:" + strings.Replace(goodDigest, "0", "A", 1))
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := ParseTokens(text)
		if err != nil {
			return
		}

		for i := range tokens {
			again, err := ParseTokens(tokens[i].Line())
			if err != nil || again[0].digest != tokens[i].digest || len(tokens[i].Roles) == 0 {
				t.Errorf("%q: %v", tokens[i].Line(), err)
			}
		}
	})
}
