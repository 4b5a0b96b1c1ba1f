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

func accessCommand(use string, run func(c *cobra.Command, name string, roles auth.Roles) error) *cobra.Command {
	var text string
	c := newCommand(use, cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		roles, err := auth.ParseRoles(text)
		if err != nil {
			return fmt.Errorf("--roles: %w", err)
		}
		return run(c, args[0], roles)
	})
	c.Flags().StringVar(&text, "roles", "", "operator, finance, or both with a comma")
	requireFlag(c, "roles")
	return c
}

func newUserCommand() *cobra.Command {
	return accessCommand("user NAME --roles ROLES", func(c *cobra.Command, name string, roles auth.Roles) error {
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

func newTokenCommand() *cobra.Command {
	return accessCommand("token NAME --roles ROLES", func(c *cobra.Command, name string, roles auth.Roles) error {
		text, token, err := auth.NewToken(name, roles)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.ErrOrStderr(), "The token of %s, shown this once:\n%s\n", name, text)
		fmt.Fprintln(c.OutOrStdout(), token.Line())
		return nil
	})
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
