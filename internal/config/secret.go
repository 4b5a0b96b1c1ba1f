package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// KeySize is the length in bytes of every key of a Keyring.
const KeySize = 32

// ErrEmpty reports that the file of a variable holds nothing.
var ErrEmpty = errors.New("is empty")

// Variable returns the value of the environment variable name, or the contents of the file
// that the variable name_FILE names, without one newline at its end. An empty variable
// counts as unset; with neither set the value is empty. Both set, a file that cannot be
// read, and an empty one (ErrEmpty) are errors, which never show a value.
func Variable(name string) (string, error) { return VariableOf(os.Getenv, name) }

// VariableOf is Variable in another environment than the process's.
func VariableOf(env func(name string) string, name string) (string, error) {
	value, path := env(name), env(name+fileSuffix)
	switch {
	case value != "" && path != "":
		return "", fmt.Errorf("%s and %s_FILE are both set; set one", name, name)
	case path == "":
		return value, nil
	}

	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s_FILE: %w", name, err)
	}

	value = strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if value == "" {
		return "", fmt.Errorf("%s_FILE: %s %w", name, path, ErrEmpty)
	}

	return value, nil
}

// fileSuffix stands behind the name of a variable whose value is in a file.
const fileSuffix = "_FILE"

// IsSet reports whether Variable has a value, or an error.
func IsSet(name string) bool { return os.Getenv(name) != "" || os.Getenv(name+fileSuffix) != "" }

// Secret is Variable, for one that must be set.
func Secret(name string) (string, error) {
	value, err := Variable(name)
	if err == nil && value == "" {
		err = fmt.Errorf("set %s, or %s_FILE to the path of a file that holds it", name, name)
	}
	return value, err
}

// SplitList is a value that may be several, such as a secret while it is rotated: "old,new".
// The first is the one to present; each is accepted. Spaces around them and one comma
// too many mean nothing.
func SplitList(value string) []string {
	var each []string
	for s := range strings.SplitSeq(value, ",") {
		s = strings.TrimSpace(s)
		if s != "" {
			each = append(each, s)
		}
	}
	return each
}

// Keyring holds symmetric keys by key id. New work is done with Current; what
// older keys made stays readable until they are taken out.
type Keyring struct {
	Current string
	Keys    map[string][]byte // each KeySize bytes
}

// Keys reads the secret name (see Secret) in the form
// "kid:base64[,kid2:base64...]": the first is current, each decoded key has
// exactly KeySize bytes. A kid has 1 to 32 characters of a-z A-Z 0-9 - and _.
func Keys(name string) (Keyring, error) {
	text, err := Secret(name)
	if err != nil {
		return Keyring{}, err
	}
	ring, err := parseKeyring(text)
	if err != nil {
		return Keyring{}, fmt.Errorf("%s: %w", name, err)
	}
	return ring, nil
}

var keyID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

func parseKeyring(text string) (Keyring, error) {
	ring := Keyring{Keys: map[string][]byte{}}
	for item := range strings.SplitSeq(text, ",") {
		kid, encoded, found := strings.Cut(strings.TrimSpace(item), ":")
		if !found || !keyID.MatchString(kid) {
			return Keyring{}, errors.New(`want "kid:base64", separated by commas, kid of 1 to 32 letters, digits, - and _`)
		}

		key, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return Keyring{}, fmt.Errorf("key %q is not base64", kid)
		}

		if len(key) != KeySize {
			return Keyring{}, fmt.Errorf("key %q has %d bytes, want %d", kid, len(key), KeySize)
		}
		if _, repeated := ring.Keys[kid]; repeated {
			return Keyring{}, fmt.Errorf("key %q occurs twice", kid)
		}

		if ring.Current == "" {
			ring.Current = kid
		}

		ring.Keys[kid] = key
	}

	return ring, nil
}
