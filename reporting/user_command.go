package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"vendorapi/reporting/panel/auth"
)

// accessCommand is a command that takes a name and its roles.
func accessCommand(use, short, long string, run func(c *cobra.Command, name string, roles auth.Roles) error) *cobra.Command {
	var text string
	c := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			roles, err := auth.ParseRoles(text)
			if err != nil {
				return fmt.Errorf("--roles: %w", err)
			}
			return run(c, args[0], roles)
		},
	}
	c.Flags().StringVar(&text, "roles", "", "operator, finance, or both with a comma")
	requireFlag(c, "roles")
	return c
}

// newUserCommand is `reporting user`.
func newUserCommand() *cobra.Command {
	long := fmt.Sprintf(`Make the line for somebody who signs in to the panel with a password.

It asks for the password, without showing it, or reads one line from the
standard input when that is no terminal. The line, which holds the password's
argon2id hash and goes into the file that $%[1]s_FILE names (or into
$%[1]s), is printed on the standard output:

  reporting user ayse --roles finance >> panel-users

A password has at least %[2]d characters. Names are of a-z 0-9 . _ @ + -. Roles
are operator (runs accounts, webhooks, fleets) and finance (reads and downloads
reports), or both with a comma. Programs read the file when they start; a
changed line ends the sessions that were begun with the old one.`, auth.UsersVariable, auth.LeastPassword)
	return accessCommand("user NAME --roles ROLES", "Make the line for somebody who signs in to the panel", long,
		func(c *cobra.Command, name string, roles auth.Roles) error {
			password, err := askPassword(c.InOrStdin(), c.ErrOrStderr(), name)
			if err != nil {
				return err
			}
			user, err := auth.NewUser(name, roles, password)
			if err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), user.Line())
			return nil
		})
}

// newTokenCommand is `reporting token`.
func newTokenCommand() *cobra.Command {
	long := fmt.Sprintf(`Make a bearer token for a program. With the role finance it downloads reports
and reads their pages, with the role operator the operators' pages; it changes
nothing.

The token is printed once, on the standard error; it cannot be had again. The
line, which holds its SHA-256 only and goes into the file that $%[1]s_FILE
names (or into $%[1]s), is printed on the standard output:

  reporting token erp --roles finance >> report-tokens

The program then sends the header "Authorization: Bearer TOKEN".`, auth.TokensVariable)
	return accessCommand("token NAME --roles ROLES", "Make a bearer token for a program", long,
		func(c *cobra.Command, name string, roles auth.Roles) error {
			text, token, err := auth.NewToken(name, roles)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "The token of %s, shown this once:\n%s\n", name, text)
			fmt.Fprintln(c.OutOrStdout(), token.Line())
			return nil
		})
}

func requireFlag(c *cobra.Command, name string) {
	if err := c.MarkFlagRequired(name); err != nil {
		panic(err) // the flag's name is misspelt above
	}
}

// askPassword asks twice on a terminal, which shows nothing of what is typed,
// and reads one line of anything else.
func askPassword(in io.Reader, prompt io.Writer, name string) (string, error) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		line, err := bufio.NewReader(io.LimitReader(in, 4*auth.MostPassword)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the password: %w", err)
		}
		return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
	}
	ask := func(question string) (string, error) {
		fmt.Fprint(prompt, question)
		typed, err := term.ReadPassword(int(file.Fd()))
		fmt.Fprintln(prompt) // the one that was typed is not shown either
		if err != nil {
			return "", fmt.Errorf("read the password: %w", err)
		}
		return string(typed), nil
	}
	first, err := ask("Password for " + name + ": ")
	if err != nil {
		return "", err
	}
	second, err := ask("Once more: ")
	if err != nil {
		return "", err
	}
	if first != second {
		return "", errors.New("the two passwords differ")
	}
	return first, nil
}
