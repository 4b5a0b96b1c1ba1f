package config

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// WriteEffective writes "ok", the settings as they are in force, defaults and
// environment included, as YAML, and from where each of the named secrets comes. No
// secret is shown: passwords in URLs are "xxxxx".
func WriteEffective(w io.Writer, path string, settings any, secrets ...string) error {
	text, err := yaml.Marshal(settings)
	if err != nil {
		return fmt.Errorf("write the settings: %w", err)
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return fmt.Errorf("write the settings: %w", err)
	}
	for _, n := range ast.FilterFile(ast.StringType, file) {
		scalar := n.(*ast.StringNode)
		scalar.Value = withoutPassword(scalar.Value)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "# %s: ok\n%s", path, file.String())
	if len(secrets) > 0 {
		out.WriteString("# Secrets, whose values are not shown:\n")
	}
	for _, name := range secrets {
		fmt.Fprintf(&out, "#   %-14s %s\n", name, sourceOf(name))
	}
	_, err = io.WriteString(w, out.String())
	return err
}

// sourceOf says where a secret comes from (see Secret).
func sourceOf(name string) string {
	if path := os.Getenv(name + "_FILE"); path != "" {
		return "from the file " + path
	}
	if os.Getenv(name) != "" {
		return "from the environment"
	}
	return "not set"
}

// redacted stands for a password, as in package net/url.
const redacted = "xxxxx"

var secretParameter = regexp.MustCompile(`(?i)pass|secret|token|key`)

// withoutPassword is a setting without the passwords that it holds as a URL, as
// user:password@ or among its parameters. What looks like one and cannot be
// read is hidden as a whole.
func withoutPassword(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	u, err := url.Parse(text)
	if err != nil {
		return redacted
	}
	values := u.Query()
	for name := range values {
		if secretParameter.MatchString(name) {
			values.Set(name, redacted)
			u.RawQuery = values.Encode()
		}
	}
	return u.Redacted()
}
