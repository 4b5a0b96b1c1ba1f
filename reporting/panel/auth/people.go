package auth

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"vendorapi/internal/config"
)

// The variables that hold the lists, or, with _FILE behind, name a file.
const (
	UsersVariable  = "PANEL_USERS"
	TokensVariable = "REPORT_TOKENS"
)

// maxLines bounds each list; every token is compared with every request's.
const maxLines = 1000

// maxName is the greatest length of a name, which is ASCII.
const maxName = 64

// People are who may come in.
type People struct {
	Users  []User
	Tokens []Token
}

// FromEnvironment reads both lists. One of them may be missing: then nobody
// comes in that way. Both missing is an error, for nobody could come in at all.
// Errors name variable and line, and show nothing of a secret.
func FromEnvironment() (People, error) {
	if !isSet(UsersVariable) && !isSet(TokensVariable) {
		return People{}, fmt.Errorf("nobody may come in: set %s or %s, or one of them with _FILE", UsersVariable, TokensVariable)
	}
	users, err := readList(UsersVariable, ParseUsers)
	if err != nil {
		return People{}, err
	}
	tokens, err := readList(TokensVariable, ParseTokens)
	if err != nil {
		return People{}, err
	}
	return People{Users: users, Tokens: tokens}, nil
}

func isSet(variable string) bool {
	return os.Getenv(variable) != "" || os.Getenv(variable+"_FILE") != ""
}

func readList[T any](variable string, parse func(string) ([]T, error)) ([]T, error) {
	if !isSet(variable) {
		return nil, nil
	}
	text, err := config.Secret(variable)
	if err != nil {
		return nil, err
	}
	list, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	return list, nil
}

// named is the beginning of a line of either list.
type named struct {
	name  string
	roles Roles
}

// parseLines reads "name:roles:secret" lines. Empty lines and those that begin
// with # are left out. Errors name the line by its number.
func parseLines(text string, add func(n named, secret string) error) error {
	seen := make(map[string]int)
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if len(seen) == maxLines {
			return fmt.Errorf("line %d: at most %d are taken", number, maxLines)
		}
		n, secret, err := parseLine(line)
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if before, repeated := seen[n.name]; repeated {
			return fmt.Errorf("line %d: %q is in line %d already", number, n.name, before)
		}
		seen[n.name] = number
		if err := add(n, secret); err != nil {
			return fmt.Errorf("line %d: %q: %w", number, n.name, err)
		}
	}
	if len(seen) == 0 {
		return errors.New("the list is empty")
	}
	return nil
}

func parseLine(line string) (named, string, error) {
	name, rest, _ := strings.Cut(line, ":")
	roles, secret, complete := strings.Cut(rest, ":")
	if !complete {
		return named{}, "", errors.New(`want "name:roles:" and what the command printed behind it`)
	}
	if err := checkName(name); err != nil {
		return named{}, "", err
	}
	parsed, err := ParseRoles(roles)
	if err != nil {
		return named{}, "", fmt.Errorf("%q: %w", name, err)
	}
	return named{name: name, roles: parsed}, secret, nil
}

// checkName holds names to what is typed the same on every keyboard, a Turkish
// one with its two letters i included.
func checkName(name string) error {
	valid := len(name) >= 1 && len(name) <= maxName
	for i := 0; valid && i < len(name); i++ {
		c := name[i]
		valid = 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || i > 0 && strings.IndexByte("._@+-", c) >= 0
	}
	if !valid {
		return fmt.Errorf("a name has 1 to %d characters of a-z 0-9 . _ @ + -, a letter or digit first", maxName)
	}
	return nil
}
