package main

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"vendorapi/reporting/auth"
)

const longPassword = "doğru at pil zımba"

// call runs a command with the given standard input.
func call(t *testing.T, c *cobra.Command, in string, args ...string) (out, said string, err error) {
	t.Helper()
	var stdout, stderr strings.Builder
	c.SetIn(strings.NewReader(in))
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(append([]string{}, args...)) // nil would be this process's own
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.ExecuteContext(t.Context())

	return stdout.String(), stderr.String(), err
}

func TestUser_PrintsALineThatIsTaken(t *testing.T) {
	t.Parallel()

	for _, in := range []string{longPassword + "\n", longPassword, longPassword + "\r\nnot this"} {
		out, said, err := call(t, newUserCommand(), in, "ayse", "--roles", "finance,operator")
		if err != nil {
			t.Fatal(err)
		}
		users, err := auth.ParseUsers(out)
		if err != nil || len(users) != 1 || users[0].Name != "ayse" || users[0].Roles.String() != "finance,operator" {
			t.Errorf("%q: %v, %v", out, users, err)
		}

		if strings.Contains(out+said, longPassword) || strings.Count(out, "\n") != 1 {
			t.Errorf("it printed %q and %q", out, said)
		}
	}
}

func TestAdminKey_PrintsItOnceAndALineOfItsDigest(t *testing.T) {
	t.Parallel()

	out, said, err := call(t, newAdminKeyCommand(), "", "ayse")
	if err != nil {
		t.Fatal(err)
	}

	lines := strings.Split(strings.TrimSpace(said), "\n")
	key := lines[len(lines)-1]
	if !strings.HasPrefix(key, "adm_") || len(key) != 47 || out != fmt.Sprintf("ayse:sha256:%x\n", sha256.Sum256([]byte(key))) {
		t.Errorf("the key is %q, the line %q", key, out)
	}
	if again, _, err := call(t, newAdminKeyCommand(), "", "ayse"); err != nil || again == out {
		t.Errorf("%v, again %q", err, again)
	}

	for _, args := range [][]string{{"Ayşe"}, {""}, {"a b"}, {"a:b"}, {strings.Repeat("a", 65)}, {}, {"a", "b"}} {
		if out, said, err := call(t, newAdminKeyCommand(), "", args...); err == nil || out+said != "" {
			t.Errorf("%q: printed %q", args, out+said)
		}
	}
}

func TestToken_PrintsItOnceAndALineThatIsTaken(t *testing.T) {
	t.Parallel()

	out, said, err := call(t, newTokenCommand(), "", "erp", "--roles", "finance")
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := auth.ParseTokens(out)
	if err != nil || len(tokens) != 1 || tokens[0].Name != "erp" || tokens[0].Roles.String() != "finance" {
		t.Errorf("%q: %v, %v", out, tokens, err)
	}

	lines := strings.Split(strings.TrimSpace(said), "\n")
	token := lines[len(lines)-1]
	if !strings.HasPrefix(token, "rpt_") || len(token) != 47 || strings.Contains(out, token) {
		t.Errorf("the token is %q, the line %q", token, out)
	}

	again, _, err := call(t, newTokenCommand(), "", "erp", "--roles", "finance")
	if err != nil || again == out {
		t.Errorf("the same token twice: %q, %v", again, err)
	}
}

func TestUserAndToken_SayWhatIsWrong(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		command *cobra.Command
		in      string
		args    []string
		want    string
	}{
		{newUserCommand(), longPassword, []string{"ayse"}, `required flag(s) "roles" not set`},
		{newUserCommand(), longPassword, []string{"--roles", "finance"}, "accepts 1 arg(s)"},
		{newUserCommand(), longPassword, []string{"ayse", "--roles", "admin"}, "--roles: want operator, finance and closer"},
		{newUserCommand(), longPassword, []string{"Ayşe", "--roles", "finance"}, "a name has 1 to 64 characters"},
		{newUserCommand(), "too short\n", []string{"ayse", "--roles", "finance"}, "a password has at least 15 characters"},
		{newUserCommand(), "", []string{"ayse", "--roles", "finance"}, "a password has at least 15 characters"},
		{newUserCommand(), strings.Repeat("x", 100_000), []string{"ayse", "--roles", "finance"}, "at most 256 bytes"},
		{newTokenCommand(), "", []string{"erp"}, `required flag(s) "roles" not set`},
		{newTokenCommand(), "", []string{"erp", "--roles", ""}, "--roles: want operator, finance and closer"},
		{newTokenCommand(), "", []string{"e:p", "--roles", "finance"}, "a name has 1 to 64 characters"},
	} {
		out, _, err := call(t, c.command, c.in, c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%s %q: %v, printed %q", c.command.Name(), c.args, err, out)
		}
	}
}
